"""Coalesced requests: Prometheus gets fewer queries, and no request gets the values of another."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.coalescer import MetricsQueryCoalescer, Pause
from adapter.planning.metric_queries import ExternalQuery, ObjectsQuery
from adapter.planning.vectors import VectorCache, matching
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusError,
    PrometheusQueryError,
    PrometheusUnavailable,
    Sample,
    Vector,
    scalar,
)
from adapter.rules import RulesError
from adapter.telemetry import RuleTelemetry
from kube.values.selectors import LabelSelector
from tests.adapter.coalescing_rules import RAW, SUM, external, rule, source
from tests.adapter.metrics_env import CannedPrometheus, vector

TENANT = "  prometheus: tenant\n"
ALL = LabelSelector()
HEADERS = "  headers: {X-Scope-OrgID: a}\n"


def result(*pods: str, seconds: float = 0.0) -> Vector:
    samples = vector(*(({"namespace": "shop", "pod": pod}, float(index)) for index, pod in enumerate(pods)))
    return dataclasses.replace(samples, seconds=seconds)


def objects_query(metric: CustomSource, *names: str, namespace: str = "shop", selector: str = "") -> ObjectsQuery:
    return ObjectsQuery(metric, namespace, list(names), False, LabelSelector.parse(selector))


async def cached(
    env: CoalescerEnv, metric: CustomSource, *names: str, namespace: str = "shop", selector: str = ""
) -> dict[str, Sample | list[Sample]] | None:
    """The samples of a coalesced result that is cached now; None if the request is sent alone."""
    query = objects_query(metric, *names, namespace=namespace, selector=selector)
    vector = await env.coalescer.cached(query)
    if vector is None:
        return None
    objects = vector.index.objects(query.index, namespace)
    assert objects is not None
    return {name: objects[name] for name in names if name in objects}


async def fetched(
    env: CoalescerEnv, metric: CustomSource, *names: str, namespace: str = "shop", selector: str = ""
) -> dict[str, Sample | list[Sample]] | None:
    """As `cached`, once the result that is prefetched for this request is there."""
    await cached(env, metric, *names, namespace=namespace, selector=selector)
    await env.cache.prefetches()
    return await cached(env, metric, *names, namespace=namespace, selector=selector)


@dataclass
class CoalescerEnv:
    """A coalescer, with a clock that the test moves."""

    prometheus: CannedPrometheus
    cache: VectorCache
    now: float = 1000.0
    coalescer: MetricsQueryCoalescer = field(init=False)
    registry: CollectorRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        telemetry = RuleTelemetry(self.registry)
        self.coalescer = MetricsQueryCoalescer(self.cache, telemetry=telemetry, clock=lambda: self.now)
        telemetry.begin(
            [], digest="", now=0.0, paused=lambda: [(rule, why.label) for rule, why in self.coalescer.paused()]
        )

    def seen(self, name: str, **labels: str) -> float | None:
        """A metric of the adapter's own."""
        return self.registry.get_sample_value(f"milliscale_adapter_rule_{name}", labels)

    async def expire(self) -> None:
        """Evict all cache entries."""
        await self.cache.prefetches()
        for key in list(self.cache._entries):
            self.cache._evict(key)

    async def external(self, metric: ExternalSource, namespace: str = "a", selector: str = "") -> list[float] | None:
        """The values of a coalesced result, once the one that is prefetched for this request is there; or None."""
        query = ExternalQuery(metric, namespace, LabelSelector.parse(selector))
        await self.coalescer.cached(query)
        await self.cache.prefetches()
        vector = await self.coalescer.cached(query)
        if vector is None:
            return None
        return [sample.value for sample in (await matching(vector, query.labels, query.selector)).samples]


@asynccontextmanager
async def opened(
    results: Vector | PrometheusError | CannedPrometheus, *, ttl: float = 60.0, **options: Any
) -> AsyncIterator[CoalescerEnv]:
    prometheus = results if isinstance(results, CannedPrometheus) else CannedPrometheus(result=results)
    async with VectorCache(prometheus, ttl=ttl, **options) as cache:
        yield CoalescerEnv(prometheus, cache)


async def test_changed_rule_of_an_object_starts_anew() -> None:
    """It keeps its key; the query and the values of the rule before are not for it."""
    async with opened(result("web-0", "web-1")) as env:
        for name in ("web-0", "web-1"):
            await fetched(env, source(SUM), name)
        assert await fetched(env, source(SUM), "web-0")
        changed = source(SUM.replace("5m", "1m"))
        assert await fetched(env, changed, "web-0") is None
        assert await fetched(env, changed, "web-1")
        assert [query.partition("[")[2][:2] for query in env.prometheus.queries] == ["5m", "1m"]


async def test_second_object_starts_coalescing() -> None:
    async with opened(result(*(f"web-{n}" for n in range(20)))) as env:
        metric = source(SUM)
        assert await fetched(env, metric, "web-0") is None
        assert await fetched(env, metric, "web-0") is None
        assert env.prometheus.queries == []
        for n in range(1, 20):
            assert await fetched(env, metric, f"web-{n}")
        assert await fetched(env, metric, "web-1", "web-2")
        assert await fetched(env, metric, "web-1", namespace="other") == {}
    assert env.prometheus.queries == ['sum(rate(packets_total{namespace=~".+",pod=~".+"}[5m])) by (pod,namespace)']


@pytest.mark.parametrize(("merge", "queries"), [("always", 1), ("never", 0), ("auto", 0)])
async def test_rule_can_demand_and_forbid_coalescing(merge: str, queries: int) -> None:
    async with opened(result("web-0")) as env:
        await fetched(env, source(SUM, merge), "web-0")
        assert len(env.prometheus.queries) == queries
        await env.external(external(RAW, merge))
        assert len(env.prometheus.queries) == 2 * queries


async def test_nothing_is_coalesced_without_a_cache() -> None:
    async with opened(result("web-0"), ttl=0.0) as env:
        assert await fetched(env, source(SUM, "always"), "web-0") is None
        assert env.prometheus.queries == []


async def test_very_long_selectors_are_sent_alone_and_take_no_memory() -> None:
    values = ",".join(f"v{n}" for n in range(1_000))
    async with opened(result("web-0")) as env:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for n in range(6):
                selector = f"verb in (x{n},{values})"
                assert await fetched(env, source(SUM, "always"), "web-0", selector=selector) is None
                assert await env.external(external(RAW, "always"), selector=selector) is None
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert env.prometheus.queries == []
        assert after - before < 100_000


async def test_selectors_of_one_namespace_alone_do_not_make_queries_for_all_namespaces() -> None:
    async with opened(result("web-0", "web-1")) as env:
        for n in range(50):
            for pod in ("web-0", "web-1", "web-2"):
                assert await fetched(env, source(SUM), pod, selector=f"verb=x{n}") is None
        assert env.prometheus.queries == []
        assert await fetched(env, source(SUM), "web-0", namespace="other", selector="verb=x0") == {}
        assert len(env.prometheus.queries) == 1


def test_merge_is_auto_always_or_never() -> None:
    with pytest.raises(RulesError, match=r"rules\[0\].merge: expected auto, always or never, got 'yes'"):
        rule(SUM, "'yes'")


class Numbered(CannedPrometheus):
    """Returns another value for each query, so that results cannot be confused."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, Destination]] = []

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """One object in one namespace, whatever their labels are."""
        self.requests.append((query, destination))
        names = dict.fromkeys(("pod", "service"), "web-0")
        spaces = dict.fromkeys(("namespace", "ns"), "shop")
        return vector(({**names, **spaces, "queue": "q", "verb": "GET"}, float(len(self.requests))))


async def test_different_metrics_are_never_coalesced() -> None:
    base = source(SUM, "always")
    other_query = msgspec.structs.replace(rule(SUM.replace("sum", "max"), "always"), key="rules[1]")
    tenant, alike = (source(SUM, "always", more=more) for more in (TENANT, TENANT + HEADERS))
    of_all = 'namespace=~".+",pod=~".+"'

    def changed(**fields: Any) -> CustomSource:
        return dataclasses.replace(base, **fields)

    def keyed(one: CustomSource, key: str) -> CustomSource:  # the same text for another tenant
        return dataclasses.replace(one, rule=msgspec.structs.replace(one.rule, key=key))

    def text(matchers: str, by: str, *, series: str = "packets_total", aggregation: str = "sum") -> str:
        return f"{aggregation}(rate({series}{{{matchers}}}[5m])) by ({by})"

    different = [
        (base, "shop", "", text(of_all, "pod,namespace")),
        (base, "", "", text('pod=~".+"', "pod")),
        (base, "shop", "verb=GET", text(f'verb="GET",{of_all}', "pod,namespace")),
        (changed(series="bytes_total"), "shop", "", text(of_all, "pod,namespace", series="bytes_total")),
        (
            changed(resource_label="service"),
            *("shop", "", text('namespace=~".+",service=~".+"', "service,namespace")),
        ),
        (changed(namespace_label="ns"), "shop", "", text('ns=~".+",pod=~".+"', "pod,ns")),
        (changed(group_by=("verb",)), "shop", "", text(of_all, "pod,verb,namespace")),
        (changed(rule=other_query), "shop", "", text(of_all, "pod,namespace", aggregation="max")),
        (keyed(tenant, "rules[2]"), "shop", "", text(of_all, "pod,namespace")),
        (keyed(alike, "rules[3]"), "shop", "", text(of_all, "pod,namespace")),
    ]
    prometheus = Numbered()
    async with opened(prometheus) as env:
        for _ in range(2):
            for number, (metric, namespace, selector, _) in enumerate(different, start=1):
                found = await fetched(env, metric, "web-0", namespace=namespace, selector=selector)
                assert found is not None
                assert isinstance(sample := found["web-0"], Sample)
                assert sample.value == number
    assert prometheus.requests == [(query, metric.rule.destination) for metric, _, _, query in different]
    assert len({destination for _, destination in prometheus.requests}) == 3


async def test_different_external_metrics_are_never_coalesced() -> None:
    base = external(RAW, "always")
    other_query = msgspec.structs.replace(rule(f"rate({RAW}[5m])", "always"), key="rules[1]")
    tenant, alike = (external(RAW, "always", more=more) for more in (TENANT, TENANT + HEADERS))
    different = [
        (base, 'packets_total{namespace=~".+"}'),
        (dataclasses.replace(base, series="bytes_total"), 'bytes_total{namespace=~".+"}'),
        (dataclasses.replace(base, namespace_label="ns"), 'packets_total{ns=~".+"}'),
        (dataclasses.replace(base, rule=other_query), 'rate(packets_total{namespace=~".+"}[5m])'),
        *(
            (
                dataclasses.replace(one, rule=msgspec.structs.replace(one.rule, key=key)),
                'packets_total{namespace=~".+"}',
            )
            for one, key in ((tenant, "rules[2]"), (alike, "rules[3]"))
        ),
    ]
    prometheus = Numbered()
    async with opened(prometheus) as env:
        for selector in ("", "queue=q", ""):
            for number, (metric, _) in enumerate(different, start=1):
                assert await env.external(metric, "shop", selector) == [number]
                assert await env.external(metric, "other", selector) == []
        assert await env.external(base, "shop", "queue!=q") == []
    assert prometheus.requests == [(query, metric.rule.destination) for metric, query in different]


async def test_failure_pauses_coalescing_for_five_minutes_if_requests_succeed_alone() -> None:
    async with opened(PrometheusQueryError("too many samples")) as env:
        metric = source(SUM, "always")
        for paused in (None, 1):
            assert await fetched(env, metric, "web-0") is None
            assert env.seen("merging_paused", rule="rules[0]", reason="failure") == paused
            env.coalescer.sent_alone(objects_query(metric, "web-0"), 0.01)
            await env.expire()
        assert env.seen("merged_queries_total", rule="rules[0]", outcome="failure") == 2
        env.prometheus.result = result("web-0")
        env.now += 299.0
        assert await fetched(env, metric, "web-0") is None
        assert len(env.prometheus.queries) == 2
        env.now += 1.0
        assert await fetched(env, metric, "web-0")
        assert env.seen("merging_paused", rule="rules[0]", reason="failure") is None


async def test_requests_are_coalesced_at_once_after_an_outage() -> None:
    async with opened(result("web-0", "web-1")) as env:
        metric = source(SUM)
        for name in ("web-0", "web-1"):
            await fetched(env, metric, name)
            env.coalescer.sent_alone(objects_query(metric, name), 0.01)
        await env.expire()
        assert await fetched(env, metric, "web-0")
        env.prometheus.result = PrometheusUnavailable("connection refused")
        for _ in range(3):
            await env.expire()
            assert await fetched(env, metric, "web-0") is None
        await env.expire()
        env.prometheus.result = result("web-0", "web-1")
        assert await fetched(env, metric, "web-0")


async def test_requests_of_more_than_a_minute_ago_do_not_count() -> None:
    async with opened(result("web-0")) as env:
        metric = source(SUM)
        await fetched(env, metric, "web-0")
        assert await fetched(env, metric, "web-1") is not None
        env.now += 61.0  # those two were in the minute before
        assert await fetched(env, metric, "web-0") is not None
        env.now += 61.0
        assert await fetched(env, metric, "web-0") is None
        assert await fetched(env, metric, "web-1") is not None
        env.now += 121.0
        assert await fetched(env, metric, "web-1") is None


async def test_result_that_is_too_large_for_the_cache_pauses_coalescing(caplog: pytest.LogCaptureFixture) -> None:
    labels = [{"namespace": "shop", "pod": f"web-{n}"} for n in range(200)]
    with caplog.at_level(logging.INFO, "adapter.planning.coalescer"):
        async with opened(vector(*((one, 1.0) for one in labels)), max_bytes=50_000) as env:
            for _ in range(10):
                for n in range(10):
                    assert await fetched(env, source(SUM, "always"), f"web-{n}") is None
                    assert await env.external(external(RAW, "always"), "shop", f"pod=web-{n}") is None
                env.now += 61.0
            assert env.seen("merging_paused", rule="rules[0]", reason="too-long") == 2
    assert len(env.prometheus.queries) == 2 * 2, "they are tried again after five minutes"
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2, "once for each group of requests"
    assert all(
        "sent alone for a while: the coalesced query's result is too large for the cache (" in line for line in logged
    )


async def test_external_metrics_of_all_namespaces_and_selectors_are_one_query() -> None:
    results = vector(*(({"namespace": ns, "queue": queue}, 1.0) for ns in ("a", "b") for queue in ("q1", "q2")))
    async with opened(results) as env:
        metric = external(RAW)
        assert await env.external(metric, "a", "queue=q1") is None
        for namespace in ("a", "b"):
            for text in ("queue=q1", "queue!=q1", "queue in (q1,q3)", "queue", ""):
                found = await env.external(metric, namespace, text)
                if (namespace, text) != ("a", "queue=q1"):
                    assert found == [1.0] * (2 if text in ("queue", "") else 1)
    assert env.prometheus.queries == ['packets_total{namespace=~".+"}']


async def test_selector_that_the_coalesced_result_cannot_serve_is_sent_alone() -> None:
    async with opened(vector(({"namespace": "a", "queue": "axb"}, 1.0))) as env:
        metric = external(RAW, "always")
        assert await env.external(metric, "a", "queue=axb") == [1.0]
        assert await env.external(metric, "a", "queue in (a.b)") is None
        assert await env.external(metric, "a", "queue=axb") == [1.0]


async def test_an_external_metric_without_namespaces_is_one_query_for_all_selectors() -> None:
    async with opened(vector(*(({"queue": f"q{n}"}, float(n)) for n in range(100)))) as env:
        metric = external(RAW, namespaced=False)
        for namespace in ("a", "b"):  # of which nobody can tell the difference
            assert await env.external(metric, namespace, "queue=q0") is None
        for n in range(1, 100):
            assert await env.external(metric, "a", f"queue=q{n}") == [n]
    assert env.prometheus.queries == ["packets_total{}"]


async def test_coalesced_scalar_pauses_coalescing() -> None:
    async with opened(scalar(0.0, 1.0)) as env:
        metric = external(f"scalar({RAW})", "always")
        for _ in range(3):
            assert await env.external(metric) is None
    assert len(env.prometheus.queries) == 1


class Held(CannedPrometheus):
    """Answers queries for all objects only when the test says so."""

    def __init__(self, result: Vector) -> None:
        super().__init__(result=result)
        self.open, self.arrived = asyncio.Event(), asyncio.Event()

    async def instant(self, query: str, **arguments: Any) -> Vector:
        found = await super().instant(query, **arguments)
        if '=~".+"' in query:
            self.arrived.set()
            await self.open.wait()
        return found


async def test_no_request_waits_for_a_coalesced_query() -> None:
    """It is sent in the background. Until its result is cached, and after that expires, requests are sent alone."""
    prometheus = Held(result("web-0", "web-1"))
    async with opened(prometheus) as env:
        metric = source(SUM)
        for name in ("web-0", "web-1", "web-0", "web-1"):
            assert await cached(env, metric, name) is None
        await prometheus.arrived.wait()
        for kind in (external(RAW), external(RAW)):
            assert await env.coalescer.cached(ExternalQuery(kind, "shop", ALL)) is None
        assert await cached(env, metric, "web-0") is None
        prometheus.open.set()
        await env.cache.prefetches()
        assert await cached(env, metric, "web-0")
        await env.expire()
        prometheus.open.clear()
        assert await cached(env, metric, "web-0") is None
        prometheus.open.set()
        await env.cache.prefetches()
        assert await cached(env, metric, "web-0")
        assert prometheus.queries.count(prometheus.queries[0]) == 2
        assert env.seen("requests_total", rule="rules[0]", query="merged") == 2
        assert env.seen("requests_total", rule="rules[0]", query="alone") == 8
        assert env.seen("merged_queries_total", rule="rules[0]", outcome="success") == 2


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("slow", "coalesced", "own", "sent_alone", "is_paused"),
    [
        (range(0), 0.0, 0.0, 0, False),
        (range(130, 135), 30.0, 0.01, 1, False),  # one query, when Prometheus or its machine was busy
        (range(130, 500), 2.0, 0.5, 1, False),  # Prometheus has become slower
        (range(130, 500), 30.0, 0.01, 1 + 10 * 256, True),  # from 244 s on
    ],
)
async def test_coalescing_is_paused_for_five_minutes_if_it_costs_more_than_it_saves_in_two(
    slow: range, coalesced: float, own: float, sent_alone: int, is_paused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten requests each second, whose own queries take 10 ms, and the coalesced one 20; `slow` seconds are as given."""
    loop, alone = asyncio.get_running_loop(), Counter[bool]()
    start, metric = loop.time(), source(SUM)
    queries = [objects_query(metric, f"web-{n}") for n in range(10)]

    class Prometheus(CannedPrometheus):
        async def instant(
            self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
        ) -> Vector:
            self.result = result(*(f"web-{n}" for n in range(10)), seconds=coalesced if now() in slow else 0.02)
            return await super().instant(query, deadline=deadline, destination=destination)

    def now() -> int:
        return round(loop.time() - start)

    caplog.set_level(logging.INFO, "adapter.planning.coalescer")
    async with VectorCache(Prometheus(), ttl=5.0) as cache:
        coalescer = MetricsQueryCoalescer(cache, clock=loop.time)
        while now() < 500:
            for query in queries:
                if await coalescer.cached(query) is None:
                    coalescer.sent_alone(query, own if now() in slow else 0.01)
                    alone[now() > 60] += 1
            await asyncio.sleep(1.0)
        assert [why for _, why in coalescer.paused()] == [Pause.COST] * is_paused
    assert alone[True] == sent_alone
    assert ("the coalesced query costs more than it saves" in caplog.text) == is_paused


async def test_coalescing_that_the_rule_demands_goes_on_whatever_it_costs() -> None:
    async with opened(result("web-0", seconds=12.0)) as env:
        metric = source(SUM, "always")
        for _ in range(3):
            assert await fetched(env, metric, "web-0")
            env.coalescer.sent_alone(objects_query(metric, "web-0"), 0.02)
            env.now += 61.0
