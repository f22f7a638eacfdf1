"""An outage of Prometheus: nothing is scaled down, and scaling resumes by itself."""

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from kube.api.status import StatusError
from playground.bundle import METRIC_PATHS, Bundle, Timing, run_bundle
from playground.load import Backlog, Load, Traffic, Wave
from playground.scenario import NAMESPACE
from tests.e2e.tools import fetch
from tests.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("outage")]

DISCOVERY = "/apis/custom.metrics.k8s.io/v1beta2"
APPLICATIONS = ("router", "shop", "worker")
# Without stabilization, a controller that takes a missing metric for a low one scales down at once.
TIMING = Timing(sync_period=1, relist_interval=1, downscale_stabilization=0)


def steady_load() -> Load:
    """A constant load for four pods of each application."""

    def steady(rate: float) -> Wave:
        return Wave(low=rate, high=rate, period=60)

    return Load(
        traffic={
            "router": Traffic(wave=steady(350), counters={"packets_total": 1}),
            "shop": Traffic(wave=steady(175), counters={"requests_total": 1}),
        },
        backlogs={"orders": Backlog(wave=steady(17.5), workers="worker", drain=5)},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bundle]:
    """Each test leaves it with a Prometheus that runs."""
    async with run_bundle(tmp_path_factory.mktemp("bundle"), load=steady_load(), timing=TIMING) as bundle:
        yield bundle


async def deployments(bundle: Bundle) -> dict[str, int]:
    listed = await bundle.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
    return {entry["metadata"]["name"]: entry["spec"]["replicas"] for entry in listed["items"]}


async def scaling_active(bundle: Bundle) -> dict[str, Any]:
    listed = await bundle.client.get(f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers")
    return {
        entry["metadata"]["name"]: next(
            (one["status"] for one in entry["status"].get("conditions", []) if one["type"] == "ScalingActive"), None
        )
        for entry in listed["items"]
    }


async def reconciliations(bundle: Bundle) -> float:
    _, text = await fetch(f"{bundle.autoscaler_url}/metrics")
    counts = re.findall(
        r"^horizontal_pod_autoscaler_controller_reconciliations_total\{[^}]*\} (\S+)", text, re.MULTILINE
    )
    return sum(map(float, counts))


async def failure(bundle: Bundle, path: str) -> tuple[int, str] | None:
    """Return code and reason of the error for a path; None if there is no error."""
    try:
        await bundle.client.get(path)
    except StatusError as error:
        return error.code, error.reason
    return None


async def discovered(bundle: Bundle) -> bool:
    """True if the API server serves the adapter's discovery."""
    return await failure(bundle, DISCOVERY) is None


async def all_metrics_fail(bundle: Bundle) -> bool:
    failures = {path: await failure(bundle, path) for path in METRIC_PATHS}
    assert set(failures.values()) == {(503, "ServiceUnavailable")}, failures
    return True


async def recovered(bundle: Bundle) -> bool:
    """True if every HPA has its metric."""
    bundle.check()
    return set((await scaling_active(bundle)).values()) == {"True"}


async def test_scaling_stops_during_an_outage_of_prometheus_and_resumes(bundle: Bundle) -> None:

    async def scaled_up() -> bool:
        bundle.check()
        return all(replicas >= 3 for replicas in (await deployments(bundle)).values())

    assert await eventually(scaled_up, within=60)
    await bundle.prometheus.stop()

    assert await eventually(partial(all_metrics_fail, bundle), within=20)
    # The adapter remains available, because an unavailable API service breaks discovery for all clients.
    assert (await fetch(f"{bundle.adapter_url}/readyz"))[0] == 200
    resources = await bundle.client.get(DISCOVERY)
    assert "pods/packets_per_second" in {entry["name"] for entry in resources["resources"]}

    async def all_inactive() -> bool:
        return set((await scaling_active(bundle)).values()) == {"False"}

    assert await eventually(all_inactive, within=20)
    before_outage = await deployments(bundle)
    before = await reconciliations(bundle)

    async def many_more_reconciliations() -> bool:
        return await reconciliations(bundle) >= before + 5 * len(APPLICATIONS)

    assert await eventually(many_more_reconciliations, within=40)
    assert await deployments(bundle) == before_outage, "without metrics nothing may be scaled down"

    await bundle.prometheus.start()
    assert await eventually(partial(recovered, bundle), within=40)


async def test_adapter_starts_without_prometheus_and_waits_for_it(bundle: Bundle) -> None:
    await bundle.prometheus.stop()
    await bundle.adapter.restart()

    async def not_ready() -> str:
        status, text = await fetch(f"{bundle.adapter_url}/readyz")
        assert status == 500
        assert "no good relist yet" in text
        assert "Prometheus cannot be reached" in text, "readyz says why"
        return text

    await eventually(not_ready, within=20)
    assert await eventually(partial(discovered, bundle), within=20)
    assert await eventually(partial(all_metrics_fail, bundle), within=20)
    await bundle.prometheus.start()
    assert await eventually(partial(recovered, bundle), within=40)
    assert (await fetch(f"{bundle.adapter_url}/readyz"))[0] == 200
