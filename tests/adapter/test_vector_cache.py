"""The cache of vectors in the whole data path: which queries Prometheus gets."""

import asyncio
import contextlib
import math
from pathlib import Path

import pytest

from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.objects import ListedObjects
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vectors import IndexedVector, ObjectLabels, Outcome, VectorCache
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBusy,
    PrometheusOptions,
    PrometheusTimeout,
    Sample,
    Tenant,
    Vector,
)
from adapter.telemetry import RuleTelemetry
from kube.aio.fairness import current_namespace, enter_namespace
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import (
    NOW,
    CannedPrometheus,
    MetricsEnv,
    custom_request,
    external_request,
    metrics_env,
    packets,
    vector,
)
from tests.deadlines import after
from tests.kube.scripted import LoopIterations

ALL = LabelSelector()


def paths(env: MetricsEnv, cache: VectorCache) -> tuple[CustomMetrics, ExternalMetrics]:
    coalescer = MetricsQueryCoalescer(cache)
    queries = RuleQueries(cache, telemetry=RuleTelemetry(), coalescer=coalescer)
    return (
        CustomMetrics(env.catalog, queries, ListedObjects(env.client), env.mapper, clock=lambda: NOW),
        ExternalMetrics(env.catalog, queries, clock=lambda: NOW),
    )


async def test_query_refused_for_another_namespaces_full_queue_is_sent_again() -> None:
    class Prometheus(CannedPrometheus):
        async def instant(
            self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
        ) -> Vector:
            await asyncio.sleep(0)
            if current_namespace() == "noisy":
                raise PrometheusBusy("noisy")
            return await super().instant(query, deadline=deadline, destination=destination)

    async def request(cache: VectorCache, namespace: str) -> Vector:
        enter_namespace(namespace)
        return await cache.instant("depth", deadline=after(5))

    prometheus = Prometheus(result=vector(({}, 5)))
    async with VectorCache(prometheus, ttl=60.0) as cache:
        tasks = [asyncio.create_task(request(cache, namespace)) for namespace in ("noisy", "quiet", "noisy")]
        first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(second, Vector)
    assert second.samples == ((Sample({}, NOW, 5),))
    assert isinstance(first, PrometheusBusy)
    assert isinstance(third, PrometheusBusy)
    assert prometheus.queries == ["depth"]


async def test_external_metric_that_cannot_be_coalesced_is_one_query_for_each_namespace(tmp_path: Path) -> None:
    rules, prometheus = packets()
    prometheus.result = vector(({"queue": "q1", "tier": "gold"}, 3.0))
    async with metrics_env(tmp_path, rules, prometheus) as env, VectorCache(prometheus, ttl=60.0) as cache:
        await env.catalog.relist()
        _, external = paths(env, cache)
        for _ in range(20):
            for namespace in ("a", "b"):
                await external.values(external_request(namespace=namespace, metric="queue_depth"))
    assert prometheus.queries == [f'max(queue_depth{{namespace="{namespace}"}}) by (queue, tier)' for namespace in "ab"]


async def test_request_waits_until_its_own_deadline() -> None:
    _, prometheus = packets()
    arrived, hold = asyncio.Event(), asyncio.Event()
    instant = prometheus.instant

    async def slow(query: str, **arguments: object) -> object:
        arrived.set()
        await hold.wait()
        return await instant(query)

    prometheus.instant = slow  # type: ignore[method-assign, assignment]
    async with VectorCache(prometheus, ttl=60.0) as cache:
        long_wait = asyncio.create_task(cache.instant("up", deadline=after(10.0)))
        await arrived.wait()
        with pytest.raises(PrometheusTimeout):
            await cache.instant("up", deadline=after(0.01))
        hold.set()
        assert isinstance(await long_wait, Vector)
    assert prometheus.queries == ["up"]


@pytest.mark.looptime
async def test_shared_query_gets_the_latest_deadline() -> None:
    _, prometheus = packets()
    async with VectorCache(prometheus, ttl=0.0) as cache:
        await cache.instant("alone", deadline=after(3.0))
        together = [after(seconds) for seconds in (3.0, 7.0, 5.0)]
        await asyncio.gather(*(cache.instant("together", deadline=deadline) for deadline in together))
        await asyncio.gather(cache.instant("no limit", deadline=after(3.0)), cache.instant("no limit"))
    deadlines = dict(zip(prometheus.queries, prometheus.deadlines, strict=True))
    assert deadlines["alone"] < deadlines["together"] == max(together)
    assert deadlines["no limit"] == math.inf


@pytest.mark.looptime
async def test_request_with_a_later_deadline_sends_the_query_again() -> None:
    _, prometheus = packets()
    arrived, instant = asyncio.Event(), prometheus.instant

    async def slow(query: str, *, deadline: float = math.inf, **_: object) -> object:
        if not arrived.is_set():
            arrived.set()
            await asyncio.sleep(deadline - asyncio.get_running_loop().time())
            raise PrometheusTimeout("slow")
        return await instant(query, deadline=deadline)

    prometheus.instant = slow  # type: ignore[method-assign, assignment]
    async with VectorCache(prometheus, ttl=60.0) as cache:
        hurried = asyncio.create_task(cache.instant("up", deadline=after(0.05)))
        await arrived.wait()
        assert await cache.instant("up", deadline=after(10.0))
        with pytest.raises(PrometheusTimeout):
            await hurried
    assert prometheus.queries == ["up"]


async def test_queries_of_different_tenants_are_not_shared() -> None:
    _, prometheus = packets()
    others = [Destination(headers=(("X-Scope-OrgID", tenant),)) for tenant in "ab"]
    others.append(Destination(server=PrometheusOptions(url="http://other.example")))
    async with VectorCache(prometheus, ttl=60.0) as cache:
        for number, destination in enumerate((DEFAULT_DESTINATION, *others) * 2):
            prometheus.result = vector(({"pod": "web-0"}, float(number)))
            alone = await cache.instant("up", destination=destination)
            assert isinstance(alone, Vector)
            assert cache.cached(("up", destination)) is alone
            assert alone.samples[0].value == number % 4
    assert prometheus.destinations == [DEFAULT_DESTINATION, *others]


async def test_cached_values_keep_their_timestamp(tmp_path: Path) -> None:
    rules, prometheus = packets()
    sampled = NOW - 40.0
    labels = {"namespace": "shop", "pod": "web-0"}
    prometheus.result = Vector((Sample(labels, sampled, 1.0),))
    async with metrics_env(tmp_path, rules, prometheus) as env, VectorCache(prometheus, ttl=60.0) as cache:
        await env.catalog.relist()
        custom, external = paths(env, cache)
        for name in ("web-0", "web-0", "web-1", "web-0"):  # alone, from memory, and then merged
            await cache.prefetches()
            with contextlib.suppress(StatusError):  # there is no web-1
                values = await custom.values(custom_request(name=name, metric="http_packets_per_second"))
                assert [(value.timestamp, value.milli) for value in values] == [(sampled, 1000)]
        for namespace in ("shop", "shop", "other", "shop"):
            items = await external.values(external_request(namespace=namespace, metric="queue_depth"))
            assert {value.timestamp for value in items} == {sampled}


async def test_long_external_list_yields_to_other_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.aio.tasks._BUSY_SECONDS", -1.0)  # at each opportunity, however quick the machine is
    rules, prometheus = packets()
    prometheus.result = vector(*(({"region": f"r{number:05d}"}, number) for number in range(5_000)))
    iterations = LoopIterations()
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        async with iterations.counted():
            found = await env.external.values(external_request(metric="backlog"))
    assert [value.milli for value in found] == [number * 1000 for number in range(5_000)]
    assert iterations.count >= 5_000


class CountedLabels(dict[str, str]):
    """Labels of which one sees when they go."""

    gone = 0

    def __del__(self) -> None:
        CountedLabels.gone += 1


@pytest.mark.parametrize(("objects", "several"), [(None, False), (("namespace", "pod"), True)])
async def test_large_vectors_are_freed_in_parts(objects: ObjectLabels | None, several: bool) -> None:
    """All at once they would hold up the loop, also when a reload ends the use of all of them."""
    count, prometheus = 20_000, CannedPrometheus()
    CountedLabels.gone = 0
    prometheus.result = Vector(
        tuple(Sample(CountedLabels(namespace="a", pod=f"web-{n // (1 + several)}"), 1.0, 1.0) for n in range(count))
    )
    cache, came, end = VectorCache(prometheus, ttl=60.0), asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with cache:
            await cache.prefetch_query("up", DEFAULT_DESTINATION, index=objects, observe=lambda _: came.set())
            await end.wait()

    using = asyncio.create_task(use())
    await came.wait()
    await cache.prefetches()
    prometheus.result = Vector(())
    end.set()
    at_once = []
    async with asyncio.timeout(60):
        while (before := CountedLabels.gone) < count:
            await asyncio.sleep(0)
            at_once.append(CountedLabels.gone - before)
        await using
    assert max(at_once) <= 1_000


async def test_prefetched_query_is_sent_once_and_its_result_indexed() -> None:
    prometheus = CannedPrometheus(result=vector(({"namespace": "a", "pod": "web-0"}, 1.0)))
    outcomes: list[Outcome] = []
    came = asyncio.Event()

    def observe(outcome: Outcome) -> None:
        outcomes.append(outcome)
        came.set()

    async with VectorCache(prometheus, ttl=60.0) as cache:
        for _ in range(3):
            assert cache.cached(("up", DEFAULT_DESTINATION)) is None
            await cache.prefetch_query("up", DEFAULT_DESTINATION, index=("namespace", "pod"), observe=observe)
        await came.wait()
        found = await cache.instant("up")
        assert cache.cached(("up", DEFAULT_DESTINATION)) is found
    assert isinstance(found, IndexedVector)
    assert found.index.objects(("namespace", "pod"), "a") == {"web-0": found.samples[0]}
    assert outcomes == [found]
    assert prometheus.queries == ["up"]


async def test_results_of_a_namespace_evict_none_of_others() -> None:
    """Each takes 5 MB of the cache's 100: twenty evicted all others."""
    large = Vector(tuple(Sample({"pod": f"web-{number}"}, NOW, 1.0) for number in range(10_000)))
    prometheus = CannedPrometheus(result=vector(({}, 1.0)))
    shop, bank = (Destination(tenant=Tenant(namespace=name)) for name in ("shop", "bank"))
    async with VectorCache(prometheus, ttl=60.0) as cache:
        for destination in (DEFAULT_DESTINATION, bank):
            await cache.instant("one", destination=destination)
        prometheus.result = large
        for number in range(30):
            await cache.instant(f"large {number}", destination=shop)
        assert cache.latest(("large 29", shop)) is not None
        assert cache.latest(("large 0", shop)) is None
        for destination in (DEFAULT_DESTINATION, bank):
            assert cache.latest(("one", destination)) is not None
        assert cache.size < 26_000_000
