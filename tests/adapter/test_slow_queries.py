"""Requests for slow queries fail soon, so that they do not delay those of other namespaces."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from adapter.planning.slow_queries import SlowQueries
from adapter.planning.vectors import VectorCache
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusError,
    PrometheusServers,
    PrometheusTimeout,
    Vector,
)
from kube.aio.fairness import for_namespace
from tests.deadlines import after

pytestmark = pytest.mark.looptime

WORKERS = 5
"""Of kube-controller-manager (--concurrent-horizontal-pod-autoscaler-syncs)."""

PERIOD = 15.0


@dataclass
class Prometheus:
    """Each query takes `seconds` of the query's first word, but none longer than `limit`; `alive` takes no time."""

    seconds: dict[str, float]
    limit: float = 20.0
    queries: list[str] = field(default_factory=list)
    in_flight: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        kind = query.split()[0]
        if kind == "alive":
            return Vector(())
        self.queries.append(query)
        self.in_flight[kind] += 1
        self.most[kind] = max(self.most[kind], self.in_flight[kind])
        try:
            takes = self.seconds[kind]
            await asyncio.sleep(min(takes, self.limit))
            if takes > self.limit:
                raise PrometheusTimeout("slow")
            return Vector((), seconds=takes)
        finally:
            self.in_flight[kind] -= 1


@dataclass
class Controller:
    """Reconciles HPAs as kube-controller-manager does: some workers, one queue, each again some seconds later.

    `late` has the delays of each namespace's HPAs in the queue, in seconds.
    """

    request: Callable[[str], Awaitable[None]]
    late: dict[str, list[float]] = field(default_factory=dict)
    results: Counter[str] = field(default_factory=Counter)

    async def run(self, hpas: list[str], *, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        end = loop.time() + seconds

        async def worker() -> None:
            while True:
                hpa, due = await queue.get()
                self.late.setdefault(hpa.split()[0], []).append(loop.time() - due)
                try:
                    await self.request(hpa)
                    self.results[f"{hpa.split()[0]} value"] += 1
                except PrometheusError as error:
                    self.results[f"{hpa.split()[0]} {type(error).__name__}"] += 1
                loop.call_later(PERIOD, queue.put_nowait, (hpa, loop.time() + PERIOD))

        for hpa in hpas:
            queue.put_nowait((hpa, loop.time()))
        workers = [asyncio.create_task(worker()) for _ in range(WORKERS)]
        await asyncio.sleep(end - loop.time())
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


@asynccontextmanager
async def limited(
    prometheus: Prometheus | PrometheusServers, *, seconds: float = 1.0, ttl: float = 5.0
) -> AsyncIterator[tuple[VectorCache, SlowQueries]]:
    """Serve queries of the namespaces; every second there is another query, without a namespace."""
    slow = SlowQueries(seconds=seconds)
    async with VectorCache(prometheus, ttl=ttl, slow_queries=slow) as cache:

        async def others() -> None:
            for number in itertools.count():
                await cache.instant(f"alive {number}")
                await asyncio.sleep(1.0)

        task = asyncio.create_task(others())
        yield cache, slow
        task.cancel()


async def outcome(cache: VectorCache, query: str, *, namespace: str = "", seconds: float = math.inf) -> str:
    """Send a query of a namespace, its first word if not given; return "value" or the error, and how long it took."""
    started = asyncio.get_running_loop().time()
    with for_namespace(namespace or query.split()[0]):
        try:
            await cache.instant(query, deadline=after(seconds))
            what = "value"
        except PrometheusError as error:
            what = type(error).__name__.removeprefix("Prometheus").lower()
    return f"{what} after {asyncio.get_running_loop().time() - started:.4g} s"


async def reconciled(prometheus: Prometheus, *, seconds: float, replicas: int) -> Controller:
    """Reconcile 40 noisy and 10 quiet HPAs for five minutes, with the adapter's replicas in turn."""
    hpas = [f"noisy {number}" for number in range(40)] + [f"quiet {number}" for number in range(10)]
    async with limited(prometheus, seconds=seconds) as (one, _), limited(prometheus, seconds=seconds) as (other, _):
        requests = itertools.count()

        async def request(hpa: str) -> None:
            with for_namespace(hpa.split()[0]):
                await (one, other)[next(requests) % replicas].instant(hpa)

        controller = Controller(request)
        await controller.run(hpas, seconds=300.0)
    return controller


@pytest.mark.parametrize(("takes", "limit", "replicas"), [(3.0, 10.0, 2), (9.9, 10.0, 1), (60.0, 20.0, 2)])
async def test_slow_queries_of_a_namespace_do_not_delay_the_hpas_of_others(
    takes: float, limit: float, replicas: int
) -> None:
    prometheus = Prometheus({"noisy": takes, "quiet": 0.05}, limit=limit)
    controller = await reconciled(prometheus, seconds=1.0, replicas=replicas)
    late = controller.late["quiet"]
    assert controller.results["quiet value"] == len(late) >= 140
    # A reaction takes half a period, 7.5 s, on average; half of that is 1.5 times.
    assert statistics.mean(late[50:]) < 3.75
    assert prometheus.most["noisy"] <= WORKERS


async def test_without_a_limit_they_are_delayed() -> None:
    controller = await reconciled(Prometheus({"noisy": 9.9, "quiet": 0.05}), seconds=0.0, replicas=2)
    assert statistics.mean(controller.late["quiet"]) > 40


async def test_query_that_timed_out_fails_at_once_for_a_while_that_doubles() -> None:
    prometheus = Prometheus({"slow": 60.0}, limit=10.0)
    sent: list[float] = []
    async with limited(prometheus) as (cache, _):
        for _ in range(900):
            before = len(prometheus.queries)
            result = await outcome(cache, "slow x")
            if len(prometheus.queries) > before:
                assert result == "timeout after 10 s"
                sent.append(asyncio.get_running_loop().time())
            else:
                assert result == "slow after 0 s"
            await asyncio.sleep(1.0)
    pauses = [after - before - 10 for before, after in itertools.pairwise(sent)]
    for pause, least in zip(pauses, (15, 30, 60, 120, 240, 250), strict=False):
        assert least <= pause <= min(least * 1.2, 300) + 2
    assert len(pauses) >= 6


async def test_requests_that_share_a_query_that_timed_out_count_as_one() -> None:
    prometheus = Prometheus({"slow": 60.0}, limit=10.0)
    async with limited(prometheus) as (cache, _):
        assert await asyncio.gather(*(outcome(cache, "slow x") for _ in range(2))) == ["timeout after 10 s"] * 2
        await asyncio.sleep(20)
        assert await outcome(cache, "slow x") == "timeout after 10 s"  # not paused for twice as long


async def test_server_that_hangs_altogether_costs_nothing_and_pauses_no_query() -> None:
    prometheus = Prometheus({"slow": 60.0}, limit=10.0)
    async with VectorCache(prometheus, ttl=5.0, slow_queries=SlowQueries(seconds=1.0)) as cache:
        for _ in range(5):
            assert await asyncio.gather(*(outcome(cache, f"slow {n}") for n in range(2))) == ["timeout after 10 s"] * 2
            await asyncio.sleep(2.0)
        prometheus.seconds["slow"] = 0.1
        assert await asyncio.gather(*(outcome(cache, f"slow {n}") for n in range(2))) == ["value after 0.1 s"] * 2


async def test_query_that_was_sent_while_the_server_hung_is_not_paused_once_it_responds_to_others() -> None:
    prometheus = Prometheus({"slow": 60.0}, limit=10.0)
    async with VectorCache(prometheus, ttl=5.0, slow_queries=SlowQueries(seconds=1.0)) as cache:
        assert await outcome(cache, "slow x") == "timeout after 10 s"
        await asyncio.sleep(2)
        last = asyncio.create_task(outcome(cache, "slow x"))
        await asyncio.sleep(1)
        prometheus.seconds["slow"] = 0.1
        assert await outcome(cache, "slow y") == "value after 0.1 s"
        assert await last == "timeout after 10 s"
        await asyncio.sleep(2)
        assert await outcome(cache, "slow x") == "value after 0.1 s"


async def test_pause_is_short_again_after_a_query_has_worked() -> None:
    prometheus = Prometheus({"slow": 60.0}, limit=10.0)
    async with limited(prometheus) as (cache, _):
        for seconds, result in ((60.0, "timeout after 10 s"), (3.0, "value after 3 s"), (60.0, "timeout after 10 s")):
            prometheus.seconds["slow"] = seconds
            assert await outcome(cache, "slow x") == result
            await asyncio.sleep(20)
        assert await outcome(cache, "slow x") == "timeout after 10 s"


async def test_pause_of_a_query_holds_in_its_namespace_only() -> None:
    async with limited(Prometheus({"shared": 60.0}, limit=10.0)) as (cache, _):
        assert await outcome(cache, "shared x", namespace="noisy") == "timeout after 10 s"
        await asyncio.sleep(5)
        assert await outcome(cache, "shared x", namespace="noisy") == "slow after 0 s"
        assert await outcome(cache, "shared x", namespace="quiet") == "timeout after 10 s"


async def test_debt_of_a_namespace_is_paid_after_ten_seconds() -> None:
    async with limited(Prometheus({"slow": 60.0}, limit=100.0)) as (cache, _):
        results = await asyncio.gather(*(outcome(cache, f"slow {n}") for n in range(2)))
        assert results == ["value after 60 s"] * 2
        await asyncio.sleep(12)
        assert await outcome(cache, "slow 2") == "value after 60 s"


async def test_few_slow_queries_get_their_values() -> None:
    """Ten HPAs whose queries take 3 s, with two replicas."""
    prometheus = Prometheus({"shop": 3.0})
    async with limited(prometheus) as (one, _), limited(prometheus) as (other, _):
        for cycle in range(20):
            caches = [(one, other)[(number + cycle) % 2] for number in range(10)]
            results = await asyncio.gather(*(outcome(cache, f"shop {n}") for n, cache in enumerate(caches)))
            await asyncio.sleep(12)
    assert results == ["value after 3 s"] * 10


async def test_query_that_is_sent_again_while_its_cancellation_ends_has_a_value() -> None:
    class Lingering(Prometheus):
        async def instant(self, query: str, **arguments: Any) -> Vector:
            try:
                return await super().instant(query, **arguments)
            finally:
                await asyncio.sleep(0.5)  # ends late when cancelled

    async with limited(Lingering({"slow": 4.0})) as (cache, _):
        first = asyncio.create_task(outcome(cache, "slow x"))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.sleep(0)
        assert await outcome(cache, "slow x") == "value after 4.5 s"
        assert not [query for query, _ in cache._in_flight if query == "slow x"]


async def test_timeout_of_an_impatient_client_pauses_no_query() -> None:
    prometheus = Prometheus({"shared": 4.0})
    async with limited(prometheus) as (cache, _):
        for _ in range(3):
            assert await outcome(cache, "shared x", namespace="shop", seconds=2.0) == "timeout after 2 s"
        assert await outcome(cache, "shared x", namespace="shop") == "value after 4 s"


@asynccontextmanager
async def without_budget(cache: VectorCache, kind: str) -> AsyncIterator[list[asyncio.Task[str]]]:
    """Let 20 requests of the namespace noisy use up its budget; those that wait still do so in the context."""
    requests = [asyncio.create_task(outcome(cache, f"{kind} {n}", namespace="noisy")) for n in range(20)]
    await asyncio.sleep(2.0)
    requests.append(asyncio.create_task(outcome(cache, f"{kind} 20", namespace="noisy")))
    await asyncio.sleep(1.5)
    yield requests
    await asyncio.gather(*requests)


async def test_namespace_without_budget_affects_no_other_that_sends_the_same_query() -> None:
    async with limited(Prometheus({"shared": 8.0}), ttl=1.0) as (cache, _), without_budget(cache, "shared"):
        assert await outcome(cache, "shared 9", namespace="noisy") == "slow after 0 s"
        assert await outcome(cache, "shared 9", namespace="quiet") == "value after 8 s"


async def test_every_request_that_waits_for_a_shared_query_pays() -> None:
    prometheus = Prometheus({"slow": 10.0})
    async with limited(prometheus) as (cache, _):
        results = await asyncio.gather(*(outcome(cache, "slow x") for _ in range(20)))
    assert prometheus.queries == ["slow x"]
    assert Counter(results) == {"value after 10 s": 2, "slow after 1 s": 18}


async def test_fresh_values_are_served_and_quick_queries_sent_without_a_budget() -> None:
    prometheus = Prometheus({"slow": 8.0, "quick": 0.2, "new": 0.3})
    async with limited(prometheus) as (cache, _):
        assert await outcome(cache, "quick cached", namespace="noisy") == "value after 0.2 s"
        async with without_budget(cache, "slow") as requests:
            assert await outcome(cache, "quick cached", namespace="noisy") == "value after 0 s"
            assert await outcome(cache, "quick x", namespace="noisy") == "value after 0.2 s"
            assert await outcome(cache, "new x", namespace="noisy") == "slow after 0.25 s"
            assert await outcome(cache, "slow 9", namespace="noisy") == "slow after 0 s"
        assert Counter(task.result() for task in requests) == {"value after 8 s": 3, "slow after 1 s": 18}


async def test_no_old_value_is_served_when_the_namespace_may_not_wait() -> None:
    prometheus = Prometheus({"slow": 8.0})
    async with limited(prometheus) as (cache, _):
        assert await outcome(cache, "slow old", namespace="noisy") == "value after 8 s"
        assert await outcome(cache, "slow old", namespace="noisy") == "value after 0 s"
        await asyncio.sleep(10.0)
        async with without_budget(cache, "slow"):
            assert await outcome(cache, "slow old", namespace="noisy") == "slow after 0 s"


async def test_namespaces_together_have_a_budget_of_which_each_gets_its_first_share() -> None:
    prometheus = Prometheus({"slow": 60.0}, limit=20.0)
    async with limited(prometheus) as (cache, _):

        async def requests(namespace: str) -> Counter[str]:
            return Counter(
                await asyncio.gather(*(outcome(cache, f"slow {namespace} {n}", namespace=namespace) for n in range(5)))
            )

        results = await asyncio.gather(*(requests(f"ns-{number}") for number in range(40)))
        waited = [result["timeout after 20 s"] for result in results]
        assert (max(waited), min(waited)) == (2, 1)
        assert sum(waited) < 50


async def test_metrics_name_a_few_limited_namespaces_until_they_are_not() -> None:
    prometheus = Prometheus({"slow": 10.0})
    async with limited(prometheus) as (cache, slow):
        registry = CollectorRegistry()
        registry.register(slow)
        for number in range(30):
            requests = (outcome(cache, f"slow {number} {n}", namespace=f"ns-{number}") for n in range(3 + number))
            await asyncio.gather(*requests)
            await asyncio.sleep(5.0)
        text = generate_latest(registry).decode()
        shown = re.findall(r'milliscale_adapter_namespace_slow_requests_refused{namespace="ns-(\d+)"} (\d+)', text)
        assert [(int(name), int(count)) for name, count in shown] == [(n, n + 1) for n in range(29, 9, -1)]
        assert "milliscale_adapter_slow_requests_refused_total 465.0" in text
        await asyncio.sleep(301)
        assert "namespace=" not in generate_latest(registry).decode()
