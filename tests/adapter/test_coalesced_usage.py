"""metrics.k8s.io with coalesced queries: fewer queries, the same values."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.deadlines import Deadline
from adapter.metrics.objects import ObjectMetadata
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.metrics.usage import ObjectUsage
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.metric_queries import MetricQuery
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vector_cache import InstantQueries, VectorCache
from adapter.planning.vector_index import IndexedVector, indexed
from adapter.prometheus import DEFAULT_DESTINATION, Sample, Vector
from adapter.rules import ResourceRules, load_rules
from kube.api.mapping import ResourceInfo
from kube.values.selectors import EVERYTHING, LabelSelector
from tests.adapter.metrics_env import NOW, RULES
from tests.adapter.test_resource_metrics import Prometheus

MATCHERS = 'container!="",namespace=~".+",pod=~".+"'
CPU = f"sum by (pod,container,namespace) (rate(container_cpu_usage_seconds_total{{{MATCHERS}}}[5m]))"
MEMORY = f"sum by (pod,container,namespace) (container_memory_working_set_bytes{{{MATCHERS}}})"


class Cluster:
    """Pods that are selected by a label, and nodes."""

    def __init__(self, *found: ObjectMetadata) -> None:
        self.found = sorted(found, key=lambda one: (one.namespace, one.name))

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        return [
            one
            for one in self.found
            if bool(one.namespace) == info.namespaced
            and namespace in ("", one.namespace)
            and name in ("", one.name)
            and selector.matches(one.labels)
        ]


def pods(namespaces: int, each: int) -> list[ObjectMetadata]:
    return [
        ObjectMetadata(f"ns-{n}", f"web-{pod}", {"app": f"web-{pod}"}) for n in range(namespaces) for pod in range(each)
    ]


def canned(found: list[ObjectMetadata]) -> Prometheus:
    """Each pod has two containers, whose values all differ."""
    samples = [
        Sample({"namespace": pod.namespace, "pod": pod.name, "container": container}, NOW, float(index) + more)
        for index, pod in enumerate(found)
        for container, more in (("app", 0.25), ("proxy", 0.5))
    ]
    return Prometheus(samples, samples)


def rules() -> ResourceRules:
    found = load_rules(RULES / "resource.yaml").resource
    assert found is not None
    return found


def path(
    prometheus: InstantQueries,
    cluster: Cluster,
    *,
    coalescer: MetricsQueryCoalescer | None,
    given: ResourceRules | None = None,
) -> ResourceMetrics:
    queries = RuleQueries(prometheus, telemetry=RuleTelemetry(CollectorRegistry()), coalescer=coalescer)
    return ResourceMetrics(given or rules(), queries, cluster)


def containers(found: list[ObjectUsage]) -> dict[tuple[str, str], list[tuple[str, int]]]:
    return {
        (one.namespace, one.name): [(container.name, container.usage.cpu_milli) for container in one.containers]
        for one in found
    }


async def test_requests_of_many_namespaces_are_one_coalesced_query_of_each_resource() -> None:
    known = pods(50, 2)
    prometheus = canned(known)
    async with VectorCache(prometheus, ttl=60.0) as cache:
        metrics = path(cache, Cluster(*known), coalescer=MetricsQueryCoalescer(cache))
        for _ in range(3):
            for index, pod in enumerate(known[1:], 1):
                selector = LabelSelector.parse(f"app={pod.name}")
                await cache.prefetches()
                is_merged = cache.cached((CPU, DEFAULT_DESTINATION)) is not None
                found = await metrics.usages(
                    "pods", namespace=pod.namespace, selector=selector, deadline=Deadline.after(5)
                )
                if is_merged:  # before that the canned result has too much
                    assert containers(found) == {
                        (pod.namespace, pod.name): [("app", index * 1000 + 250), ("proxy", index * 1000 + 500)]
                    }
    assert sorted(query for query in prometheus.queries if ".+" in query) == [MEMORY, CPU]
    assert len(prometheus.queries) == 6


async def test_list_of_all_namespaces_is_one_coalesced_query_of_each_resource() -> None:
    known = pods(50, 2)
    prometheus = canned(known)
    async with VectorCache(prometheus, ttl=60.0) as cache:
        metrics = path(cache, Cluster(*known), coalescer=MetricsQueryCoalescer(cache))
        await metrics.usages("pods", namespace="", selector=EVERYTHING, deadline=Deadline.after(5))
        await cache.prefetches()
        assert sorted(query for query in prometheus.queries if ".+" in query) == [MEMORY, CPU]
        prometheus.queries.clear()
        for _ in range(3):
            found = await metrics.usages("pods", namespace="", selector=EVERYTHING, deadline=Deadline.after(5))
            await cache.prefetches()
    assert prometheus.queries == []
    assert len(found) == 100


async def test_freshness_is_observed() -> None:
    known = [*pods(2, 1), ObjectMetadata("", "node-a", {})]
    prometheus, registry = canned(known[:2]), CollectorRegistry()
    prometheus.cpu.append(Sample({"node": "node-a"}, NOW, 1.0))
    queries = RuleQueries(prometheus, telemetry=RuleTelemetry(registry))
    metrics = ResourceMetrics(rules(), queries, Cluster(*known), clock=lambda: NOW + 3)
    assert len(await metrics.usages("pods", namespace="", selector=EVERYTHING, deadline=Deadline.after(5))) == 2
    assert len(await metrics.usages("nodes", selector=EVERYTHING, deadline=Deadline.after(5))) == 1
    ages = "metrics_apiserver_metric_freshness_seconds_sum"
    assert registry.get_sample_value(ages, {"group": "metrics.k8s.io"}) == pytest.approx(9.0)


class _OtherIndexes(MetricsQueryCoalescer):
    """Has a result with as many indexes as a result may have, none of them by pod."""

    result: IndexedVector

    def cached(self, query: MetricQuery) -> IndexedVector | None:
        return self.result


async def test_result_that_is_not_indexed_by_the_objects_serves_no_request() -> None:
    known = pods(1, 1)
    prometheus = canned(known)
    async with VectorCache(prometheus, ttl=60.0) as cache:
        coalescer = _OtherIndexes(cache)
        coalescer.result = await indexed(Vector(()), [("a",), ("b",), ("c",), ("d",)])
        found = await path(cache, Cluster(*known), coalescer=coalescer).usages(
            "pods", namespace="ns-0", selector=EVERYTHING, deadline=Deadline.after(5)
        )
    assert containers(found) == {("ns-0", "web-0"): [("app", 250), ("proxy", 500)]}
