"""From a request to values, with our options of rules: short rules, policies, servers, long lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from adapter.content.values import ExternalMetricValue, MetricValue
from adapter.prometheus import Sample, Vector, scalar
from adapter.rules import RulesFile, parse_rules
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import (
    NOW,
    CannedPrometheus,
    MetricsEnv,
    custom_request,
    external_request,
    metrics_env,
    objects,
    series,
    vector,
)

SHORT = """
rules:
- {name: lag, query: 'max(lag) by (ns, pod, topic)', resources: {ns: namespace, pod: pod}}
- {name: cost, query: 'sum(cost) by (ns)', resources: {ns: namespace}}
- {name: heat, query: 'max(heat) by (node)', resources: {node: node}}
- {name: nowhere, query: 'max(x) by (thing)', resources: {thing: nosuchthing}}
externalRules:
- {name: backlog, query: 'sum(backlog) by (queue, ns)'}
- {name: own_backlog, query: 'sum(backlog) by (queue, ns)', resources: {ns: namespace}}
"""


def parse(text: str) -> RulesFile:
    return parse_rules(text, source="rules.yaml")


async def one(env: MetricsEnv, metric: str, name: str = "web-0", selector: str = "", **where: str) -> list[MetricValue]:
    request = custom_request(name=name, metric=metric, metric_selector=LabelSelector.parse(selector))
    return await env.custom.values(msgspec.structs.replace(request, **where))


async def many(env: MetricsEnv, metric: str, selector: str = "") -> list[MetricValue]:
    return await env.custom.values(custom_request(selector=LabelSelector.parse(selector), metric=metric))


async def external(env: MetricsEnv, metric: str, selector: str = "") -> list[ExternalMetricValue]:
    return await env.external.values(
        external_request(namespace="shop", metric=metric, selector=LabelSelector.parse(selector), seconds=5)
    )


async def test_short_rules_are_listed_without_a_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with metrics_env(tmp_path, parse(SHORT), CannedPrometheus()) as env:
        await env.catalog.relist()
        assert {str(info): info.namespaced for info in env.catalog.snapshot.custom} == {
            "namespaces/cost": False,
            "nodes/heat": False,
            "pods/lag": True,
        }
        assert env.catalog.snapshot.external == ("backlog", "own_backlog")
        assert env.catalog.readiness() is None
        assert env.prometheus.listed == []
    assert "rules[3] (nowhere): the cluster has no resource nosuchthing" in caplog.text


async def test_short_rule_query_is_sent_unchanged_and_its_result_filtered(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, parse(SHORT), CannedPrometheus()) as env:
        await env.catalog.relist()
        env.api.handlers["/api/v1/namespaces/shop/pods"] = objects("web-0", "web-1", "web-2")
        env.prometheus.result = vector(
            ({"ns": "shop", "pod": "web-0", "topic": "a"}, 1),
            ({"ns": "shop", "pod": "web-1", "topic": "b"}, 2),
            ({"ns": "other", "pod": "web-2", "topic": "a"}, 3),
            ({"ns": "shop", "topic": "a"}, 4),
        )
        assert [(value.described_object.name, value.milli) for value in await many(env, "lag")] == [
            ("web-0", 1000),
            ("web-1", 2000),
        ]
        [value] = await one(env, "lag", "web-1", selector="topic=b")
        assert value.milli == 2000
        with pytest.raises(StatusError, match="could not find the metric lag for pods web-1"):
            await one(env, "lag", "web-1", selector="topic!=b")
        assert set(env.prometheus.queries) == {"max(lag) by (ns, pod, topic)"}


async def test_short_rule_takes_label_names_with_dots(tmp_path: Path) -> None:
    rules = """
    rules: [{name: active, query: q, resources: {k8s.namespace.name: namespace, k8s.pod.name: pod}}]
    externalRules: [{name: lag, query: r}]
    """
    async with metrics_env(tmp_path, parse(rules), CannedPrometheus()) as env:
        await env.catalog.relist()
        env.prometheus.result = vector(
            ({"k8s.namespace.name": "shop", "k8s.pod.name": "web-0", "service.name": "a"}, 1),
            ({"k8s.namespace.name": "shop", "k8s.pod.name": "web-1", "service.name": "b"}, 2),
            ({"k8s.namespace.name": "other", "k8s.pod.name": "web-0", "service.name": "a"}, 4),
        )
        [value] = await one(env, "active", "web-0", selector="service.name=a")
        assert value.milli == 1000
        assert [each.milli for each in await external(env, "lag", "service.name=b,k8s.namespace.name=shop")] == [2000]


async def test_short_rule_for_namespaces_and_cluster_scoped_objects(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, parse(SHORT), CannedPrometheus()) as env:
        await env.catalog.relist()
        env.prometheus.result = vector(({"ns": "shop"}, 7), ({"ns": "other"}, 8))
        [value] = await one(env, "cost", "other", resource="namespaces", namespace="")
        assert (value.described_object.name, value.milli) == ("other", 8000)
        env.prometheus.result = vector(({"node": "n1"}, 40))
        [value] = await one(env, "heat", "n1", resource="nodes", namespace="")
        assert value.milli == 40000


async def test_external_short_rule_returns_the_labels_of_its_result(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, parse(SHORT), CannedPrometheus()) as env:
        await env.catalog.relist()
        env.prometheus.result = vector(
            ({"ns": "shop", "queue": "a"}, 1), ({"ns": "shop", "queue": "b"}, 2), ({"ns": "other", "queue": "a"}, 3)
        )
        everywhere = await external(env, "backlog", "queue in (a)")
        assert [(value.labels, value.milli) for value in everywhere] == [
            ({"ns": "shop", "queue": "a"}, 1000),
            ({"ns": "other", "queue": "a"}, 3000),
        ]
        assert [value.milli for value in await external(env, "own_backlog", "queue")] == [1000, 2000]
        assert await external(env, "backlog", "app.io/x=y") == []
        env.prometheus.result = scalar(NOW, 5.0)
        assert [value.milli for value in await external(env, "backlog")] == [5000]


async def test_short_rule_wins_over_series_rule_for_the_same_metric(tmp_path: Path) -> None:
    rules = parse(
        """
        rules:
        - {name: a, query: short, resources: {namespace: namespace, pod: pod}}
        - {seriesQuery: a, metricsQuery: long, resources: {template: <<.Resource>>}}
        """
    )
    prometheus = CannedPrometheus(found={"a": (series("a", "pod", "namespace"),)})
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        prometheus.result = vector(({"namespace": "shop", "pod": "web-0"}, 1))
        await one(env, "a")
    assert prometheus.queries == ["short"]


def policies(text: str) -> tuple[RulesFile, CannedPrometheus]:
    """A custom and an external rule with these policies."""
    rule = f"seriesQuery: a, metricsQuery: 'x{{<<.LabelMatchers>>}}', resources: {{template: <<.Resource>>}}, {text}"
    return (
        parse(f"rules: [{{{rule}}}]\nexternalRules: [{{{rule}}}]"),
        CannedPrometheus(found={"a": (series("a", "namespace", "pod"),)}),
    )


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("nan: zero", math.nan, [0]),
        ("nan: missing", math.nan, []),
        ("inf: zero", math.inf, [0]),
        ("inf: zero", 1e300, [0]),
        ("inf: missing", -math.inf, []),
        ("nan: error", 1.0, [1000]),
    ],
)
async def test_policy_for_nan_and_inf(tmp_path: Path, text: str, value: float, milli: list[int]) -> None:
    async with metrics_env(tmp_path, *policies(text)) as env:
        await env.catalog.relist()
        env.api.handlers["/api/v1/namespaces/shop/pods"] = objects("web-0")
        env.prometheus.result = vector(({"pod": "web-0"}, value))
        assert [one.milli for one in await many(env, "a")] == milli
        assert [one.milli for one in await external(env, "a")] == milli


@pytest.mark.parametrize(
    ("text", "result", "message"),
    [
        ("nan: error", vector(({"pod": "web-0"}, math.nan)), "a value is not a number, which rules[0] (a) makes an"),
        ("inf: error", vector(({"pod": "web-0"}, math.inf)), "a value is infinite or too large, which rules[0] (a) ma"),
        ("empty: error", Vector(()), "the metric a has no value for pods web-0, which rules[0] (a) makes an error"),
    ],
)
async def test_policy_error(tmp_path: Path, text: str, result: Vector, message: str) -> None:
    async with metrics_env(tmp_path, *policies(text)) as env:
        await env.catalog.relist()
        env.prometheus.result = result
        with pytest.raises(StatusError) as refused:
            await one(env, "a")
        assert (refused.value.code, refused.value.message.startswith(message)) == (503, True)
        with pytest.raises(StatusError, match="makes an error"):
            await external(env, "a")


async def test_empty_zero_gives_0_with_the_current_time(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, *policies("empty: zero")) as env:
        await env.catalog.relist()
        env.api.handlers["/api/v1/namespaces/shop/pods"] = objects("web-0", "web-1")
        env.prometheus.result = vector(({"pod": "web-1"}, 5))
        found = await many(env, "a")
        assert [(value.described_object.name, value.milli) for value in found] == [("web-0", 0), ("web-1", 5000)]
        assert found[0].timestamp == NOW
        env.prometheus.result = Vector(())
        [value] = await external(env, "a")
        assert (value.labels, value.milli) == (None, 0)


async def test_rule_queries_go_to_its_server_with_its_headers_and_max_age(tmp_path: Path) -> None:
    rules = parse(
        """
        prometheusServers: {mimir: {url: http://mimir}}
        rules:
        - &rule
          seriesQuery: a
          metricsQuery: x
          resources: {template: <<.Resource>>}
        - {<<: *rule, prometheus: mimir, headers: {X-Scope-OrgID: team}, maxAge: 10s, name: {as: b}}
        """
    )
    prometheus = CannedPrometheus(found={"a": (series("a", "namespace", "pod"),)})
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        assert prometheus.listed == [("a", NOW - 120, NOW), ("a", NOW - 10, NOW)]
        prometheus.result = vector(({"pod": "web-0"}, 1))
        await one(env, "b")
        assert prometheus.destinations == [rule.destination for rule in (*rules.custom, rules.custom[1])]


class Matching(CannedPrometheus):
    """Has a value of 1 for each of some pods, and returns those that a query matches."""

    def __init__(self, pods: list[str], matches: Callable[[str, str], bool]) -> None:
        super().__init__(found={"a": (series("a", "namespace", "pod"),)})
        self.pods = pods
        self.matches = matches

    async def instant(self, query: str, **arguments: object) -> Vector:
        self.queries.append(query)
        return Vector(tuple(Sample({"pod": pod}, NOW, 1.0) for pod in self.pods if self.matches(query, pod)))


async def test_results_of_a_split_query_are_concatenated(tmp_path: Path) -> None:
    rules = parse(
        """
        prometheusServers: {small: {url: http://small, maxQueryBytes: 8192}}
        rules:
        - seriesQuery: a
          metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
          resources: {template: <<.Resource>>}
          prometheus: small
        """
    )
    pods = sorted(f"web-{number * 2654435761 % 2**32:08x}-{number:08x}" for number in range(1200))
    # The ends of the names are all different, and so stand in a query as they are.
    prometheus = Matching(pods, lambda query, pod: ".+" in query or pod[-8:] in query)
    async with metrics_env(tmp_path, rules, prometheus) as env:
        await env.catalog.relist()
        env.api.handlers["/api/v1/namespaces/shop/pods"] = objects(*pods)
        # If only some of the objects are requested, the list cannot be left out.
        assert len(await many(env, "a", selector="app=web")) == 1200
        assert len(prometheus.queries) > 1
        prometheus.queries.clear()
        assert len(await many(env, "a")) == 1200
        assert prometheus.queries == ['sum(a{namespace="shop",pod=~".+"}) by (pod)']


async def test_metrics_per_rule(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, *policies("inf: missing")) as env:
        await env.catalog.relist()
        env.prometheus.result = vector(({"pod": "web-0"}, 1))
        await one(env, "a")

        def seen(name: str, **labels: str) -> float | None:
            return env.registry.get_sample_value(name, labels)

        assert seen("milliscale_adapter_rule_series", rule="rules[0]") == 1
        assert seen("milliscale_adapter_rule_metrics", rule="rules[0]") == 2
        assert seen("milliscale_adapter_rule_last_relist_timestamp_seconds", rule="rules[0]") == NOW
        assert seen("metrics_apiserver_metric_freshness_seconds_count", group="custom.metrics.k8s.io") == 1
