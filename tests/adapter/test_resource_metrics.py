"""metrics.k8s.io from canned values: queries, values that count, missing ones, and outages."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from adapter.content import protobuf
from adapter.content.encoding import Representation
from adapter.content.values import ObjectUsage, Usage, UsageDocument
from adapter.metrics.objects import ObjectMetadata
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.metric_queries import MetricQuery
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.vectors import IndexedVector, VectorCache, indexed
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusError,
    PrometheusOptions,
    PrometheusUnavailable,
    Sample,
    Vector,
)
from adapter.rules import ResourceRules, load_rules, parse_rules
from adapter.serving.discovery import Discovery
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import ResourceInfo
from kube.api.status import StatusError
from kube.values.field_selectors import FieldSelector, FieldSelectorError
from kube.values.selectors import EVERYTHING, LabelSelector
from tests.adapter.metrics_env import NOW, RULES
from tests.adapter.serving import CannedNames

Value = Callable[[str], Vector]


@dataclass
class Objects:
    """The cluster's pods and nodes."""

    found: list[ObjectMetadata]

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        return [
            one
            for one in self.found
            if bool(one.namespace) == info.namespaced and namespace in ("", one.namespace) and name in ("", one.name)
        ]


@dataclass
class Prometheus:
    """Answers queries of CPU and of memory with these samples, or fails."""

    cpu: list[Sample]
    memory: list[Sample]
    error: PrometheusError | None = None
    queries: list[str] = field(default_factory=list)
    destinations: list[Destination] = field(default_factory=list)

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        self.queries.append(query)
        self.destinations.append(destination)
        if self.error is not None:
            raise self.error
        return Vector(tuple(self.cpu if "cpu" in query else self.memory))


def resource_rules() -> ResourceRules:
    rules = load_rules(RULES / "resource.yaml").resource
    assert rules is not None
    return rules


def sample(value: float, *, at: float = NOW, **labels: str) -> Sample:
    return Sample(labels, at, value)


def metrics(prometheus: Prometheus, *found: ObjectMetadata, rules: ResourceRules | None = None) -> ResourceMetrics:
    queries = RuleQueries(prometheus, telemetry=RuleTelemetry())
    return ResourceMetrics(rules or resource_rules(), queries, Objects(list(found)))


async def usages(served: ResourceMetrics, resource: str, *, namespace: str = "", name: str = "") -> list[ObjectUsage]:
    return await served.usages(resource, namespace=namespace, selector=EVERYTHING, name=name, deadline=math.inf)


def pod(name: str, namespace: str = "shop") -> ObjectMetadata:
    return ObjectMetadata(namespace, name, {"app": name})


def usage(cpu: int, memory: int, container: str = "") -> Usage:
    return Usage(cpu_milli=cpu, memory_milli=memory, container=container)


async def test_queries_for_cpu_and_memory() -> None:
    prometheus = Prometheus([], [])
    await usages(metrics(prometheus, pod("web.0"), pod("web-1")), "pods", namespace="shop")
    assert sorted(prometheus.queries) == [
        (
            "sum by (pod,container) (container_memory_working_set_bytes"
            '{container!="",namespace="shop",pod=~"web\\\\.0|web-1"})'
        ),
        (
            "sum by (pod,container) (rate(container_cpu_usage_seconds_total"
            '{container!="",namespace="shop",pod=~"web\\\\.0|web-1"}[5m]))'
        ),
    ]
    prometheus.queries.clear()
    await usages(metrics(prometheus, ObjectMetadata("", "node-a", {})), "nodes")
    assert sorted(prometheus.queries)[0] == ('sum by (node) (container_memory_working_set_bytes{id="/",node="node-a"})')


async def test_namespaces_are_queried_some_at_a_time() -> None:
    """More at once than may wait for their turn at Prometheus would be an error."""

    class Slow(Prometheus):
        now = most = 0

        async def instant(
            self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
        ) -> Vector:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await super().instant(query, deadline=deadline, destination=destination)

    prometheus = Slow([], [])
    pods = [pod("web", f"ns-{number}") for number in range(400)]
    await usages(metrics(prometheus, *pods), "pods")
    assert len(prometheus.queries) == 800
    assert 2 < prometheus.most <= PrometheusOptions(url="http://p").connections


async def test_containers_have_values_and_the_oldest_timestamp() -> None:
    prometheus = Prometheus(
        cpu=[sample(0.25, pod="web", container="app"), sample(0.1, pod="web", container="only-cpu")],
        memory=[sample(2.0**20, pod="web", container="app", at=NOW - 7)],
    )
    [found] = await usages(metrics(prometheus, pod("web")), "pods", namespace="shop")
    assert found == ObjectUsage(
        namespace="shop",
        name="web",
        labels={"app": "web"},
        timestamp=NOW - 7,
        window_seconds=300.0,
        containers=(usage(250, 2**20 * 1000, "app"), usage(100, 0, "only-cpu")),
    )


async def test_containers_of_another_namespaces_pod_are_not_counted() -> None:
    both = [("other", 8.0), ("shop", 0.25)]
    prometheus = Prometheus(
        cpu=[sample(value, namespace=namespace, pod="web", container="app") for namespace, value in both],
        memory=[sample(value, namespace=namespace, pod="web", container="app") for namespace, value in both],
    )
    [found] = await usages(metrics(prometheus, pod("web")), "pods", namespace="shop")
    assert found.containers == (usage(250, 250, "app"),)


@pytest.mark.parametrize("value", [math.nan, -1.0])
async def test_negative_and_nan_are_zero(value: float) -> None:
    prometheus = Prometheus([sample(value, node="n")], [sample(value, node="n")])
    [node] = await usages(metrics(prometheus, ObjectMetadata("", "n", {})), "nodes")
    assert node.usage == usage(0, 0)


@pytest.mark.parametrize(("cpu", "memory"), [(True, False), (False, True), (False, False)])
async def test_without_cpu_or_memory_an_object_is_left_out(cpu: bool, memory: bool) -> None:
    of_pod, of_node = sample(1.0, pod="x", container="c"), sample(1.0, node="x")
    prometheus = Prometheus([of_pod, of_node] if cpu else [], [of_pod, of_node] if memory else [])
    served = metrics(prometheus, pod("x"), ObjectMetadata("", "x", {}))
    assert await usages(served, "pods", namespace="shop") == []
    assert await usages(served, "nodes") == []


async def test_pods_of_one_name_in_two_namespaces_have_their_own_values() -> None:
    class OfNamespaces(Prometheus):
        """Each namespace's pod uses as much as its name says."""

        async def instant(
            self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
        ) -> Vector:
            found = re.search(r'namespace="ns-(\d)"', query)
            assert found is not None
            return Vector((sample(float(found[1]), pod="web", container="app"),))

    env = metrics(OfNamespaces([], []), *(pod("web", f"ns-{number}") for number in (2, 1, 3)))
    found = await usages(env, "pods")
    assert [(one.namespace, one.containers[0]) for one in found] == [
        (f"ns-{number}", usage(number * 1000, number * 1000, "app")) for number in (2, 1, 3)
    ]


async def test_node_has_the_older_timestamp() -> None:
    for cpu, memory in ((NOW - 30, NOW), (NOW, NOW - 30)):
        prometheus = Prometheus([sample(1.0, node="a", at=cpu)], [sample(1.0, node="a", at=memory)])
        [found] = await usages(metrics(prometheus, ObjectMetadata("", "a", {})), "nodes")
        assert found.timestamp == NOW - 30


async def test_missing_object_is_not_found() -> None:
    with pytest.raises(StatusError, match='pods "ghost" not found') as error:
        await usages(metrics(Prometheus([], [])), "pods", namespace="shop", name="ghost")
    assert error.value.code == 404


async def test_outage_is_an_error() -> None:
    prometheus = Prometheus([], [], error=PrometheusUnavailable("refused"))
    with pytest.raises(StatusError) as error:
        await usages(metrics(prometheus, pod("a", "one"), pod("b", "two")), "pods")
    assert error.value.code == 503


async def test_rule_without_a_node_label_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    text = (RULES / "resource.yaml").read_text().replace("node: {resource: node}", "other: {resource: service}")
    served = metrics(
        Prometheus([], []), ObjectMetadata("", "n", {}), rules=parse_rules(text, source="rules.yaml").resource
    )
    for _ in range(2):
        with pytest.raises(StatusError) as error:
            await usages(served, "nodes")
        assert error.value.code == 500
    [record] = [record for record in caplog.records if "resourceRules.cpu" in record.message]
    assert "no label maps to nodes; add one to resources.overrides" in record.message


POD = ObjectUsage(
    namespace="shop",
    name="web-0",
    labels={"app": "web"},
    timestamp=NOW + 0.9,
    window_seconds=90.0,
    containers=(usage(250, 65536 * 1000, "app"),),
)


def test_json_is_that_of_metrics_server() -> None:
    assert Representation().encode(UsageDocument("PodMetrics", [POD])).body.decode() == (
        '{"metadata":{"name":"web-0","creationTimestamp":"2023-11-14T22:13:20Z","namespace":"shop",'
        '"labels":{"app":"web"}},"timestamp":"2023-11-14T22:13:20Z","window":"1m30s",'
        '"containers":[{"name":"app","usage":{"cpu":"250m","memory":"64Ki"}}],'
        '"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1beta1"}\n'
    )


def test_protobuf_is_k8s_io_metrics() -> None:
    time = bytes([0x08]) + bytes([0x80, 0xE2, 0xCF, 0xAA, 0x06]) + b"\x10\x00"
    usages = b"\x12\x0d\x0a\x03cpu\x12\x06\x0a\x04250m" + b"\x12\x10\x0a\x06memory\x12\x06\x0a\x0464Ki"
    container = b"\x0a\x03app" + usages
    meta = b"\x0a\x05web-0\x12\x00\x1a\x04shop\x22\x00\x2a\x00\x32\x00\x38\x00" + b"\x42" + bytes([len(time)]) + time
    meta += b"\x5a\x0a\x0a\x03app\x12\x03web"
    window = b"\x08\x80\x88\xac\xa3\xcf\x02"  # ninety seconds in nanoseconds
    assert protobuf.encode(UsageDocument("PodMetricsList", [POD])).count(container) == 1
    encoded = protobuf.encode(UsageDocument("PodMetrics", [POD]))
    for part in (meta, b"\x12" + bytes([len(time)]) + time, b"\x1a" + bytes([len(window)]) + window, container):
        assert part in encoded
    node = ObjectUsage(
        name="n",
        labels={},
        timestamp=NOW,
        window_seconds=90.0,
        containers=(usage(250, 65536 * 1000),),
    )
    assert b"\x22\x0d\x0a\x03cpu\x12\x06\x0a\x04250m" in protobuf.encode(UsageDocument("NodeMetrics", [node]))


async def test_discovery_names_nodes_and_pods() -> None:
    discovery = Discovery(cast("Any", CannedNames()), custom=False, external=False, resource=True, port=1)
    assert discovery.versions == {"metrics.k8s.io": ("v1beta1",)}
    document = await discovery.resources("metrics.k8s.io", "v1beta1", Representation())
    body = document.body.decode()
    assert '"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]' in body
    discovery = Discovery(cast("Any", CannedNames()), custom=True, external=False, port=1)
    assert "metrics.k8s.io" not in discovery.versions


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("metadata.name=web", True),
        ("metadata.name==web,metadata.namespace=shop", True),
        ("metadata.name!=web", False),
        ("metadata.namespace=other", False),
        ("metadata.namespace!=other", True),
        ("metadata.name= web", False),
        (r"metadata.name!=a\,metadata.name\=b\\", True),
        (",", True),
        ("!=,=", True),
    ],
)
def test_field_selectors(text: str, selected: bool) -> None:
    assert FieldSelector.parse(text).matches(name="web", namespace="shop") is selected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("x in (b,a)", "invalid selector: 'x in (b,a)'; can't understand 'a)'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"metadata.name=a\-b", r"invalid field selector: invalid escape sequence: \-"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        (
            "status.phase=Running",
            '"status.phase" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "metadata.name =a",
            '"metadata.name " is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("=a", '"" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ],
)
def test_wrong_field_selectors(text: str, message: str) -> None:
    with pytest.raises(FieldSelectorError) as raised:
        FieldSelector.parse(text)
    assert str(raised.value) == message


async def test_cpu_and_memory_can_come_from_different_servers() -> None:
    text = (RULES / "resource.yaml").read_text()
    text = text.replace("  cpu:\n", "  cpu:\n    prometheus: other\n    headers: {X-Scope-OrgID: team}\n", 1)
    file = parse_rules(f"prometheusServers: {{other: {{url: 'http://other'}}}}\n{text}", source="rules.yaml")
    assert file.resource is not None
    prometheus = Prometheus([], [])
    await usages(metrics(prometheus, pod("web-1"), rules=file.resource), "pods", namespace="shop")
    of_cpu = file.resource.cpu.destination
    assert of_cpu.server is not None
    assert (of_cpu.server.url, of_cpu.headers) == ("http://other", (("X-Scope-OrgID", "team"),))
    assert [*file.prometheus_servers.values()] == [of_cpu.server]
    assert {("cpu" in query, at) for query, at in zip(prometheus.queries, prometheus.destinations, strict=True)} == {
        (True, of_cpu),
        (False, DEFAULT_DESTINATION),
    }


async def test_freshness_is_observed() -> None:
    registry = CollectorRegistry()
    samples = [sample(1.0, pod="web"), sample(1.0, node="node-a")]
    queries = RuleQueries(Prometheus(samples, samples), telemetry=RuleTelemetry(registry))
    cluster = Objects([pod("web"), ObjectMetadata("", "node-a", {})])
    served = ResourceMetrics(resource_rules(), queries, cluster, clock=lambda: NOW + 3)
    for resource in ("pods", "nodes"):
        assert len(await usages(served, resource)) == 1
    ages = "metrics_apiserver_metric_freshness_seconds_sum"
    assert registry.get_sample_value(ages, {"group": "metrics.k8s.io"}) == pytest.approx(6.0)


class OtherIndexes(MetricsQueryCoalescer):
    """Has a result that is not indexed by pods."""

    result: IndexedVector

    async def cached(self, query: MetricQuery, deadline: float = math.inf) -> IndexedVector | None:
        return self.result


async def test_result_that_is_not_indexed_by_the_objects_serves_no_request() -> None:
    samples = [sample(1.0, pod="web", container="app")]
    prometheus = Prometheus(samples, samples)
    async with VectorCache(prometheus, ttl=60.0) as cache:
        coalescer = OtherIndexes(cache)
        coalescer.result = await indexed(Vector(()), [("a",)])
        queries = RuleQueries(prometheus, telemetry=RuleTelemetry(), coalescer=coalescer)
        [found] = await usages(ResourceMetrics(resource_rules(), queries, Objects([pod("web")])), "pods")
    assert [container.container for container in found.containers] == ["app"]
