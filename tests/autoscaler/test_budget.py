"""The budget for requests, as the API server sees it: how many there are, in what order, and what waits for what.

Time for the buckets stands still until a test lets it pass, so each request is there because there was a token for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscaler.loop import controller
from autoscaler.loop.options import Options
from autoscaler.loop.throttle import TokenBucket, Urgency
from kube.client import KubeClient
from playground.apiserver.identity import User
from playground.apiserver.requests import RequestInfo
from tests.autoscaler.cluster import METRIC, Cluster, running_cluster
from tests.eventually import eventually

USER = "autoscaler"
QPS = 64.0
NEVER = 3600.0
SOON = 20.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as running:
        yield running


class Budgets:
    """The buckets of a controller, filled when the test says so."""

    def __init__(self) -> None:
        self._now = 0.0
        self._buckets: list[TokenBucket] = []

    def new(self, *, qps: float, burst: int) -> TokenBucket:
        bucket = TokenBucket(qps=qps, burst=burst, clock=lambda: self._now)
        self._buckets.append(bucket)
        return bucket

    @property
    def waiting(self) -> int:
        """How many requests wait for a token."""
        return sum(map(len, self._buckets))

    def grant_one(self) -> None:
        """Let the time pass that it takes for a token."""
        self._now += 1 / QPS


class ScalesAreFree(TokenBucket):
    """Leaves scales out of the budget."""

    async def take(self, urgency: Urgency = Urgency.OTHER, **more: Any) -> None:
        if urgency is Urgency.OTHER:
            await super().take(urgency, **more)


class NoRoomForRoutine(TokenBucket):
    """Has tokens for all but what can be left out."""

    @property
    def free(self) -> bool:
        return False

    async def take(self, urgency: Urgency = Urgency.OTHER, **more: Any) -> None:
        if urgency is Urgency.ROUTINE:
            await TokenBucket(qps=1 / NEVER, burst=0).take(**more)


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> Budgets:
    budgets = Budgets()
    monkeypatch.setattr(controller, "TokenBucket", budgets.new)
    return budgets


@pytest.fixture
def requests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the autoscaler asked for within its budget, in this order."""
    log: list[str] = []
    record = cluster.server.requests.record

    def note(user: User, info: RequestInfo) -> None:
        record(user, info)
        listed = info.verb in ("list", "watch") and not info.group.endswith("metrics.k8s.io")
        if user.name != USER or listed or (not info.is_resource and not info.path.endswith("metrics.k8s.io")):
            return
        what = " ".join(filter(None, (info.verb, info.counted_as, info.name)))
        log.append(what if info.is_resource else f"{info.verb} {info.path}")

    monkeypatch.setattr(cluster.server.requests, "record", note)
    return log


@asynccontextmanager
async def autoscaler(cluster: Cluster, **options: Any) -> AsyncIterator[None]:
    stop = asyncio.Event()
    given = Options(**{"qps": QPS, "sync_period": NEVER, "bind_address": "127.0.0.1", "metrics_port": 0, **options})
    kubeconfig = cluster.server.kubeconfig(USER)
    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.Controller(client, given).run(stop))
        try:
            yield
        finally:
            stop.set()


async def until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds, within=SOON, every=0.01)


def add_idle(cluster: Cluster, name: str) -> None:
    """An HPA that has nothing but a status to write: its target is switched off."""
    cluster.add_deployment(name, replicas=0)
    cluster.add_hpa(name)


async def test_statuses_that_wait_hold_up_no_scale_and_the_budget_is_kept(
    cluster: Cluster, budgets: Budgets, requests: list[str]
) -> None:
    """One worker, a token at a time, and the HPA that must scale comes last."""
    for name in ("a", "b", "c"):
        add_idle(cluster, name)
    cluster.add_deployment("z", replicas=1)
    cluster.add_hpa("z", least=2)
    first = [f"get deployments/scale {name}" for name in "abcz"]
    scaled = "update deployments/scale z"

    async def until_at_rest(*, asked: int, waiting: int) -> None:
        await until(lambda: (len(requests), budgets.waiting) == (asked, waiting))

    async with autoscaler(cluster, burst=1, workers=1):
        # Of those whose scale was read the statuses wait, and one scale waits to be read; in the end, to be written.
        for asked, waiting in ((1, 2), (2, 3), (3, 4), (4, 4)):
            await until_at_rest(asked=asked, waiting=waiting)
            assert requests == first[:asked]
            budgets.grant_one()
        await until_at_rest(asked=5, waiting=5)
        assert requests == [*first, scaled]
        for left in (4, 3, 2, 1, 0):
            budgets.grant_one()
            await until_at_rest(asked=10 - left, waiting=left)
    statuses = [f"update horizontalpodautoscalers/status {name}" for name in "abcz"]
    assert requests[5:8] == statuses[:3]
    assert sorted(requests[8:]) == ["create events", statuses[3]]


async def test_as_many_requests_go_out_at_once_as_the_burst_says(
    cluster: Cluster, budgets: Budgets, requests: list[str]
) -> None:
    for name in ("a", "b", "c"):
        add_idle(cluster, name)
    async with autoscaler(cluster, burst=5):
        await until(lambda: (len(requests), budgets.waiting) == (5, 1))
        budgets.grant_one()
        await until(lambda: len(requests) == 6)


async def test_each_metrics_api_has_a_budget_of_its_own(
    cluster: Cluster, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two HPAs with metrics of all three APIs, and a token for each API."""
    buckets: list[TokenBucket] = []

    def new(*, qps: float, burst: int) -> TokenBucket:
        buckets.append(ScalesAreFree(qps=qps, burst=burst, clock=lambda: 0.0))
        return buckets[-1]

    monkeypatch.setattr(controller, "TokenBucket", new)
    average = {"type": "AverageValue", "averageValue": "10"}
    for name in ("a", "b"):
        cluster.add_deployment(name, replicas=1)
        cluster.add_hpa(name)
        of_all_apis = [
            {"type": "Resource", "resource": {"name": "cpu", "target": average}},
            {"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": average}},
            {"type": "External", "external": {"metric": {"name": f"queue-{name}"}, "target": average}},
        ]
        await cluster.patch_hpa(name, metrics=of_all_apis)
    async with autoscaler(cluster, burst=1):
        # The custom metrics API was asked for its version, so neither has values of it.
        await until(lambda: sum(map(len, buckets)) == 1 + 1 + 2)
        asked = sorted(requests)
        assert [bucket.free for bucket in buckets].count(True) == 1, "that of statuses has not been touched"
    assert asked[0] == "get /apis/custom.metrics.k8s.io"
    assert asked[1:4] == ["get deployments/scale a", "get deployments/scale b", "list pods"]
    assert asked[4:] in (["list queue-a"], ["list queue-b"])


async def test_a_status_with_newer_values_only_is_left_to_the_next_step_and_news_is_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(controller, "TokenBucket", NoRoomForRoutine)
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    async with autoscaler(cluster, sync_period=0.05, workers=1), aiohttp.ClientSession() as http:
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        port = caplog.text.partition("health and metrics on 127.0.0.1 port ")[2].split()[0]

        async def superseded() -> float:
            async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
                lines = (await response.text()).splitlines()
            name = "horizontal_pod_autoscaler_controller_status_writes_superseded_total "
            return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))

        cluster.metrics.value = "10500m"
        before = await superseded()

        async def some_more() -> bool:
            return await superseded() >= before + 3

        await eventually(some_more, within=SOON, every=0.01)
        assert cluster.hpa("web")["status"]["currentMetrics"][0]["pods"]["current"] == {"averageValue": "10"}
        cluster.metrics.status = 503
        await until(lambda: cluster.condition("web", "ScalingActive") == ("False", "FailedGetPodsMetric"))
        cluster.metrics.status = 200
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        assert cluster.hpa("web")["status"]["currentMetrics"][0]["pods"]["current"] == {"averageValue": "10500m"}
        cluster.metrics.value = "30"
        await until(lambda: "lastScaleTime" in cluster.hpa("web")["status"])
    assert cluster.replicas("web") == 3
    assert "FailedUpdateStatus" not in {reason for reason, _, _ in await cluster.events("web")}


async def test_a_changed_spec_does_not_wait_for_a_status_that_can_be_left_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "TokenBucket", NoRoomForRoutine)
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    async with autoscaler(cluster):
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        cluster.metrics.value = "10500m"
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
        await cluster.admin.patch(path, {"metadata": {"annotations": {"milliscale.io/tolerance": "0.5"}}})
        await until(lambda: cluster.metrics.asked == 2)
        await cluster.patch_hpa("web", minReplicas=2)
        await until(lambda: cluster.replicas("web") == 2)
