"""HPAs of one namespace with slow or many metrics do not delay those of others; in virtual time."""

import asyncio
import itertools
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop.clients import ThrottledClients
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.options import Options
from kube.aio.fairness import FairSemaphore, enter_namespace, for_namespace
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from kube.controller.workqueue import WorkQueue, run_workers
from kube.values.selectors import LabelSelector

OPTIONS = Options()
QUICK = 0.05
RUN = 40.0
ALL = LabelSelector()


@dataclass(frozen=True)
class Team:
    """The HPAs of a namespace: how many, with how many metrics each, and the seconds of a request for one."""

    namespace: str
    hpas: int
    metrics: int = 1
    seconds: float = QUICK


QUIET = (*(Team(f"quiet-{number}", 1) for number in range(10)), Team("busy", 20, metrics=3))
SLOW = Team("slow", 40, seconds=10.0)
MANY = Team("many", 10, metrics=100)
BOTH = Team("both", 40, metrics=100, seconds=10.0)


class Clock:
    """The loop's time, which has a resolution of a microsecond; each call adds a little, so that no timer is early."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = itertools.count()

    def __call__(self) -> float:
        return self._loop.time() + next(self._calls) * 1e-7


class ApiServer:
    """Responds to requests for custom metrics after the seconds of the team."""

    def __init__(self, teams: tuple[Team, ...]) -> None:
        self.most = 0
        self._seconds = {team.namespace: team.seconds for team in teams}
        self._in_flight = 0

    async def get_bytes(self, path: str, *_: object, **__: object) -> bytes:
        return msgspec.json.encode(await self._response(path))

    async def _response(self, path: str) -> dict[str, Any]:
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        if path.endswith("custom.metrics.k8s.io"):
            self._in_flight -= 1
            return {"versions": [{"version": "v1beta2"}]}
        await asyncio.sleep(self._seconds[path.split("/")[5]])
        self._in_flight -= 1
        return {"items": [{"describedObject": {"name": "web-0"}, "value": "1"}]}


class Syncs:
    """When each HPA was reconciled: the queue, the workers and the limits of a controller, with its defaults."""

    def __init__(self, *teams: Team) -> None:
        clock = Clock()
        hpas = self.hpas = sum(team.hpas for team in teams)
        self.ended: dict[HPAKey, list[float]] = defaultdict(list)
        self.server = ApiServer(teams)
        self._teams = {team.namespace: team for team in teams}
        qps, burst = OPTIONS.rate_limit_for(hpas)
        kube = cast(KubeClient, self.server)
        client = ThrottledClient(
            kube,
            TokenBucket(qps=qps, burst=burst, clock=clock),
            slots=FairSemaphore(OPTIONS.metrics_in_flight_for(hpas), spare=256),
        )
        self._metrics = MetricsClient(
            resource=client, custom=client, external=client, mapper=RestMapper(kube), version_seconds=15, clock=clock
        )
        self._queue: WorkQueue[HPAKey] = WorkQueue(
            tick=0.125, namespace=lambda key: key.namespace, limit=lambda: OPTIONS.workers_for(hpas), clock=clock
        )
        keys = [HPAKey(team.namespace, f"app-{number}") for team in teams for number in range(team.hpas)]
        for number, key in enumerate(keys):
            self._queue.add_after(key, number * 0.01)

    async def run(self) -> None:
        """Reconcile for a while."""
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(RUN, stop.set)
        await run_workers(self._queue, self._reconcile, stop=stop)

    def longest(self, *teams: Team) -> float:
        """Return the longest time between two reconciliations of an HPA of the teams."""
        names = {team.namespace for team in teams}
        return max(
            later - earlier
            for key, times in self.ended.items()
            if key.namespace in names
            for earlier, later in pairwise([0.0, *times])
        )

    async def _reconcile(self, key: HPAKey) -> None:
        enter_namespace(key.namespace)
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._teams[key.namespace].metrics):
                name = f"{key.name}-{number}"
                metrics = self._metrics
                tasks.create_task(metrics.pods_metric(key.namespace, name, pods=ALL, metric_selector=ALL))
        self.ended[key].append(asyncio.get_running_loop().time())
        self._queue.add_after(key, OPTIONS.sync_period)


@pytest.mark.looptime
@pytest.mark.parametrize(
    "others",
    [(SLOW,), (MANY,), (BOTH,)],
    ids=["slow", "many", "slow and many"],
)
async def test_slow_and_many_metrics_delay_the_hpas_of_their_own_namespace_only(others: tuple[Team, ...]) -> None:
    syncs = Syncs(*others, *QUIET)
    await syncs.run()
    assert {key.namespace for key in syncs.ended} >= {team.namespace for team in QUIET}
    assert syncs.longest(*QUIET) < OPTIONS.sync_period + 2.0
    # kube-apiserver has some 250 seats for all service accounts.
    assert syncs.server.most <= OPTIONS.metrics_in_flight_for(syncs.hpas) + len(QUIET)


@pytest.mark.looptime
async def test_a_namespace_alone_gets_all_workers_and_requests() -> None:
    """Five workers, ten seconds each."""
    syncs = Syncs(SLOW)
    await syncs.run()
    reconciled = sum(map(len, syncs.ended.values()))
    assert reconciled >= RUN * OPTIONS.workers_for(SLOW.hpas) / SLOW.seconds


@pytest.mark.looptime
async def test_clients_of_each_metrics_api_have_a_limit_that_grows_with_the_hpas() -> None:
    server = ApiServer((Team("shop", 1),))
    clients = ThrottledClients(
        cast(KubeClient, server),
        rate_limit=lambda _: (0, 1),
        in_flight=lambda hpas: 2 + hpas,
        metrics_seconds=30,
        may_write=lambda: True,
        on_error=lambda _group, _code: None,
    )
    path = "/apis/any/v1/namespaces/shop/pods"
    for hpas in (0, 1):
        clients.resize(hpas)
        for client in (clients.resource_metrics, clients.custom_metrics, clients.external_metrics):
            server.most = 0
            with for_namespace("shop"):
                await asyncio.gather(*(client.get_bytes(path) for _ in range(5)))
            assert server.most == 2 + hpas
