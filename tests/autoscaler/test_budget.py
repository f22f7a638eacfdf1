"""The rate limits, as the API server sees them: the number and the order of requests.

Time for the buckets stands still until a test lets it pass, so each request is there because there was a token for it.
"""

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from autoscaler.loop import clients
from autoscaler.loop.options import Options
from autoscaler.settings import Settings, ShutdownSettings
from kube.controller.events import EventRecorder
from kube.controller.flowcontrol import TokenBucket
from playground.apiserver.identity import User
from playground.apiserver.requests import RequestInfo
from tests.autoscaler.cluster import METRIC, Cluster, Running, running_controller
from tests.eventually import until

USER = "autoscaler"
QPS = 64.0
NEVER = 3600.0


class Budgets:
    """The buckets of a controller, filled when the test says so."""

    def __init__(self) -> None:
        self.limits: list[tuple[float, int]] = []
        self._now = 0.0
        self._buckets: list[TokenBucket] = []

    def new(self, *, qps: float, burst: int) -> TokenBucket:
        limits = self.limits

        class Bucket(TokenBucket):
            def resize(self, *, qps: float, burst: int) -> None:
                limits.append((qps, burst))
                super().resize(qps=qps, burst=burst)

        self._buckets.append(Bucket(qps=qps, burst=burst, clock=lambda: self._now))
        return self._buckets[-1]

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a token."""
        return sum(map(len, self._buckets))

    def grant_one(self) -> None:
        """Let the time pass that it takes for a token."""
        self._now += 1 / QPS


class Unlimited(TokenBucket):
    """Always has a token."""

    async def take(self, *, first: bool = False, last: bool = False) -> None:
        pass


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> Budgets:
    budgets = Budgets()
    monkeypatch.setattr(clients, "TokenBucket", budgets.new)
    return budgets


@pytest.fixture
def requests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of the autoscaler within its budget, in order."""
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


def autoscaler(cluster: Cluster, **options: Any) -> AbstractAsyncContextManager[Running]:
    given = Options(**{"qps": QPS, "sync_period": NEVER, "bind_address": "127.0.0.1", "metrics_port": 0, **options})
    return running_controller(cluster.server.kubeconfig(USER), given)


def add_idle(cluster: Cluster, name: str) -> None:
    """An HPA that has nothing but a status to write: its target is switched off."""
    cluster.add_deployment(name, replicas=0)
    cluster.add_hpa(name)


async def test_a_scale_is_written_before_waiting_statuses_and_the_limit_is_kept(
    cluster: Cluster, budgets: Budgets, requests: list[str]
) -> None:
    for name in ("a", "b", "c"):
        add_idle(cluster, name)
    cluster.add_deployment("z", replicas=1)
    cluster.add_hpa("z", least=2)

    def at_rest(sent: int) -> bool:
        """Each HPA waits to send its next request; z, once it is scaled, its event and its status."""
        scaled = requests.count("update deployments/scale z")
        finished = sum(request.split()[1] in {"events", "horizontalpodautoscalers/status"} for request in requests)
        return (len(requests), budgets.waiting) == (sent, 4 + scaled - finished)

    async with autoscaler(cluster, burst=1, workers=4):
        for sent in range(1, 11):
            await until(partial(at_rest, sent))
            if requests[-1] == "get deployments/scale z":
                # Other requests have been waiting for longer.
                assert budgets.waiting > 1
            budgets.grant_one()
    scaled = requests.index("update deployments/scale z")
    assert requests[scaled - 1] == "get deployments/scale z"
    assert sorted(requests) == sorted(
        [
            *(f"get deployments/scale {name}" for name in "abcz"),
            *(f"update horizontalpodautoscalers/status {name}" for name in "abcz"),
            "update deployments/scale z",
            "create events",
        ]
    )


async def test_each_metrics_api_has_its_own_limit(
    cluster: Cluster, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two HPAs with metrics of all three APIs, and a token for each API."""
    buckets: list[TokenBucket] = []

    def new(*, qps: float, burst: int) -> TokenBucket:
        # The first is that of scales, statuses and events.
        bucket = TokenBucket if buckets else Unlimited
        buckets.append(bucket(qps=qps, burst=burst, clock=lambda: 0.0))
        return buckets[-1]

    monkeypatch.setattr(clients, "TokenBucket", new)
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
    # The reconciliations never get the tokens that they wait for.
    settings = Settings(shutdown=ShutdownSettings(reconcile_seconds=0.0))
    async with autoscaler(cluster, burst=1, settings=settings):
        # The custom metrics API was discovered first, so neither has values of it yet.
        await until(lambda: sum(map(len, buckets)) == 1 + 1 + 2)
        sent = sorted(requests)
    assert sent[0] == "get /apis/custom.metrics.k8s.io"
    assert sent[1:4] == ["get deployments/scale a", "get deployments/scale b", "list pods"]
    assert sent[4:] in (["list queue-a"], ["list queue-b"])


async def test_without_flags_the_limit_grows_with_the_hpas(
    cluster: Cluster, budgets: Budgets, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects: list[int] = []
    monkeypatch.setattr(EventRecorder, "resize", lambda _, number: objects.append(number))
    for name in ("a", "b"):
        add_idle(cluster, name)
    async with autoscaler(cluster, qps=None, sync_period=1.0):
        await until(lambda: (26.0, 39) in budgets.limits)
        await cluster.admin.delete("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/a")
        await until(lambda: budgets.limits[-1] == (23.0, 34))
    assert objects == [1, 2, 1], "events have limits of their own"
