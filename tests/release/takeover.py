"""What one release leaves behind for the next one: the scenario, and `python -m tests.release.takeover` records it.

Run it at the commit of a release: it writes tests/data/releases/VERSION/. Later releases must take that over.
"""

import argparse
import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from kube.api.mapping import GroupResource
from tests.adapter.test_process import running_adapter
from tests.autoscaler.cluster import Cluster, running_cluster
from tests.autoscaler.process import SAVES_OFTEN, Autoscaler, autoscaler
from tests.eventually import eventually, until
from tests.kube.access_api import Authorities
from tests.kube.scripted import scripted_server

ROOT = Path(__file__).parent.parent.parent
RELEASES = ROOT / "tests" / "data" / "releases"
LEASES = GroupResource("coordination.k8s.io", "leases")
CONFIG_MAPS = GroupResource("", "configmaps")
NAME = "milliscale-autoscaler"
FLAGS = (
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1200ms",
    "--leader-elect-retry-period=200ms",
    "--leader-elect-resource-namespace=default",
    "--horizontal-pod-autoscaler-sync-period=100ms",
    "--horizontal-pod-autoscaler-downscale-stabilization=30m",
    "--kube-api-qps=0",
)
ONE_POD_IN_HALF_AN_HOUR = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}],
}
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


def logged(process: Autoscaler, text: str) -> Callable[[], bool]:
    return lambda: any(text in line for line in process.log_lines)


def kubeconfig(cluster: Cluster, user: str) -> Path:
    """Each process is a user of its own, so that the API server counts the requests of each."""
    return cluster.server.kubeconfig(user, ("system:masters",))


def scale_writes(cluster: Cluster, user: str) -> int:
    return cluster.server.requests.of("update", "deployments/scale", user=user)


async def some_reconciliations(cluster: Cluster, user: str) -> None:
    """Wait until a process has reconciled both HPAs several times."""

    def number() -> int:
        return cluster.server.requests.of("get", "deployments/scale", user=user)

    goal = number() + 6
    await until(lambda: number() >= goal)


async def add_workloads(cluster: Cluster, *, web: int, slow: int) -> None:
    """Add two targets with their HPAs: web has a window of 30 minutes, slow may lose one pod in 30 minutes."""
    cluster.add_deployment("web", replicas=web)
    cluster.add_hpa("web", most=5)
    cluster.add_deployment("slow", replicas=slow)
    cluster.add_hpa("slow", most=5)
    await cluster.patch_hpa("slow", behavior={"scaleDown": ONE_POD_IN_HALF_AN_HOUR})


async def scale_up_and_lower_the_load(cluster: Cluster) -> None:
    """Have a running autoscaler scale web from 1 to 3 and slow from 5 to 4, and wait until neither may go on."""
    cluster.metrics.value = "30"
    await until(lambda: cluster.replicas("web") == 3)
    cluster.metrics.value = "1"
    await cluster.roll_out("web")
    await until(lambda: cluster.replicas("slow") == 4)
    await until(lambda: holds_back(cluster))


def holds_back(cluster: Cluster) -> bool:
    """Return whether the history keeps both from being scaled down."""
    return (
        cluster.condition("web", "AbleToScale") == ("True", "ScaleDownStabilized")
        and cluster.condition("slow", "ScalingLimited") == ("True", "ScaleDownLimit")
        and (cluster.replicas("web"), cluster.replicas("slow")) in ((3, 4), (5, 4))
    )


def left_behind(cluster: Cluster) -> dict[str, Any]:
    """Return the Lease and the ConfigMap with the saved history."""
    found = {
        "lease": cluster.server.storage.get(LEASES, "default", NAME),
        "configmap": cluster.server.storage.get(CONFIG_MAPS, "default", f"{NAME}-state"),
    }
    assert all(found.values())
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


async def record_autoscaler(folder: Path) -> dict[str, Any]:
    """Return what a killed process and a stopped one leave behind."""
    async with running_cluster(folder) as cluster:
        await add_workloads(cluster, web=1, slow=5)
        async with autoscaler(kubeconfig(cluster, "one"), *FLAGS, SAVES_OFTEN) as process:
            await scale_up_and_lower_the_load(cluster)
            before = left_behind(cluster)
            await until(lambda: left_behind(cluster)["configmap"] != before["configmap"])
            process.signal(signal.SIGKILL)
            await process.ended()
            killed = left_behind(cluster)
        async with autoscaler(kubeconfig(cluster, "two"), *FLAGS) as process:
            await some_reconciliations(cluster, "two")
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
        return {"killed": killed, "stopped": left_behind(cluster)}


@asynccontextmanager
async def prometheus() -> AsyncIterator[tuple[str, list[str]]]:
    """Run a Prometheus with a series for a rule and one for an external rule; it records its queries."""
    series = [
        {"__name__": "http_requests_total", "namespace": "shop", "pod": "web-0"},
        {"__name__": "queue_depth", "namespace": "shop", "queue": "orders"},
    ]
    queries: list[str] = []

    async def listed(request: web.Request) -> web.Response:
        match = request.query["match[]"]
        return web.json_response({"status": "success", "data": [s for s in series if _is_of(s["__name__"], match)]})

    async def query(request: web.Request) -> web.Response:
        queries.append(request.query["query"])
        result = [{"metric": {"pod": "web-0", "queue": "orders"}, "value": [1.7e9, "7"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    async with scripted_server() as server:
        server.handlers["/api/v1/series"] = listed
        server.handlers["/api/v1/query"] = query
        yield server.url, queries


def _is_of(name: str, match: str) -> bool:
    return name in match or (name == "http_requests_total" and "http_requests" in match)


async def adapter_responses(folder: Path, rules: str) -> dict[str, Any]:
    """Return the metrics that an adapter lists with a rules file, and the values and PromQL of requests for them."""
    async with (
        prometheus() as (url, queries),
        running_adapter(folder / "adapter", rules, authorities=Authorities(), prometheus=url) as adapter,
    ):

        async def body(path: str) -> Any:
            try:
                reply = await adapter.client.request_as_master(path)
            except OSError as error:
                raise AssertionError("it does not listen yet") from error
            assert reply.status == 200, reply.body
            return reply.json

        async def names(path: str) -> list[str]:
            return sorted(each["name"] for each in (await body(path))["resources"])

        listed = {
            "custom": await eventually(lambda: names(CUSTOM)),
            "external": await eventually(lambda: names(EXTERNAL)),
        }
        values = {
            path: [item["value"] for item in (await eventually(lambda path=path: body(path)))["items"]]  # type: ignore[misc]
            for path in (
                f"{CUSTOM}/namespaces/shop/pods/web-0/http_requests_per_second",
                f"{EXTERNAL}/namespaces/shop/queue_depth",
            )
        }
    return {"listed": listed, "values": values, "queries": sorted(queries)}


def record(target: Path) -> None:
    """Write all files of a release."""
    rules = (ROOT / "manifests" / "base" / "rules.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        left = asyncio.run(record_autoscaler(Path(folder)))
        responses = asyncio.run(adapter_responses(Path(folder), rules))
    target.mkdir(parents=True, exist_ok=True)
    (target / "rules.yaml").write_text(rules)
    (target / "responses.json").write_text(json.dumps(responses, indent=1) + "\n")
    for name, found in left.items():
        (target / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record what this release leaves behind for the next one.")
    parser.add_argument("version", help="the release, such as 1.2.3")
    record(RELEASES / parser.parse_args().version)
