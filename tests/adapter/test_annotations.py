"""Queries in the annotations of HPAs. Upstream: kube-metrics-adapter's parser_test.go, prometheus_collector_test.go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.prometheus.options import Destination, PrometheusOptions, Tenant
from adapter.rule_objects.annotations import HPA, annotation_rules, relevant_part
from adapter.rules import Policy, QueryRule
from adapter.rules.objects import INVALID, RuleObject, Tenancy
from kube.api.mapping import GroupResource

MIMIR = PrometheusOptions(name="mimir", url="https://mimir.example.com/prometheus/", tenants=True)
PRIVATE = PrometheusOptions(name="private", url="https://private.example.com")
SAME = PrometheusOptions(name="same", url="https://mimir.example.com/prometheus/")
SERVERS = {"same": SAME, "mimir": MIMIR, "private": PRIVATE}
DEFAULT_URL = "http://prometheus:9090/"
QUERY = "sum(rate(rps[1m]))"
TENANCY = Tenancy(label="namespace", query_seconds=3.0, max_samples=7)
TENANT = Tenant(namespace="shop", label="namespace", query_seconds=3.0, max_samples=7)
TYPE = {"type": "prometheus"}
RPS = "metric-config.external.rps.prometheus"
OBJECT = "metric-config.object.rps.prometheus"


def external(name: str = "rps", labels: Mapping[str, str] | None = TYPE) -> dict[str, Any]:
    selector = {} if labels is None else {"selector": {"matchLabels": labels}}
    return {"type": "External", "external": {"metric": {"name": name, **selector}, "target": {}}}


def on_object(kind: str = "Pod", api_version: str = "v1", labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    selector = {} if labels is None else {"selector": {"matchLabels": labels}}
    described = {"apiVersion": api_version, "kind": kind, "name": "dummy-pod"}
    return {"type": "Object", "object": {"metric": {"name": "rps", **selector}, "describedObject": described}}


def read(annotations: Mapping[str, str], *metrics: Any, status: Any = None) -> list[RuleObject]:
    """Read the relevant part of an HPA of the namespace shop."""
    hpa = {
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        "spec": {"metrics": list(metrics)},
        "status": status,
    }
    part = relevant_part(hpa)
    if part is None:
        return []
    return annotation_rules(part, SERVERS, TENANCY, kind=HPA, default_url=DEFAULT_URL)


def rule_of(annotations: Mapping[str, str], metric: Any, status: Any = None) -> QueryRule:
    """Return the only rule of an HPA that has no error."""
    [found] = read(annotations, metric, status=status)
    assert found.error == ""
    [rule] = found.rules
    assert isinstance(rule, QueryRule)
    return rule


def error_of(annotations: Mapping[str, str], metric: Any, status: Any = None) -> str:
    """Return the only error of an HPA that makes no rule."""
    [found] = read(annotations, metric, status=status)
    assert (found.rules, found.reason) == ((), INVALID)
    return found.error


def test_external_metric_has_the_query_of_its_annotation_and_the_restrictions_of_the_namespace() -> None:
    rule = rule_of({f"{RPS}/query": QUERY}, external())
    assert (rule.metric, rule.query, rule.external, rule.namespace) == ("rps", QUERY, True, "shop")
    assert rule.value_labels == (("type", "prometheus"),)
    assert rule.key == "HorizontalPodAutoscaler shop/web metrics[0]"
    assert rule.destination == Destination(None, tenant=TENANT)
    assert {rule.nan, rule.inf, rule.empty} == {Policy.MISSING}  # without a value there is no zero


def test_query_name_selects_one_of_several_queries() -> None:
    annotations = {
        "metric-config.external.prometheus-query.prometheus/up": "sum(up)",
        "metric-config.external.prometheus-query.prometheus/down": "sum(1 - up)",
    }
    metrics = [external("prometheus-query", {"query-name": name}) for name in ("up", "down")]
    found = read(annotations, *metrics)
    rules = [rule for one in found for rule in one.rules if isinstance(rule, QueryRule)]
    assert [(rule.metric, rule.query, rule.value_labels) for rule in rules] == [
        ("prometheus-query", "sum(up)", (("query-name", "up"),)),
        ("prometheus-query", "sum(1 - up)", (("query-name", "down"),)),
    ]
    assert len({rule.key for rule in rules}) == len({one.name for one in found}) == 2


def test_query_takes_precedence_over_query_name() -> None:
    annotations = {f"{RPS}/query": "1", f"{RPS}/named": "2"}
    metric = external(labels={**TYPE, "query-name": "named"})
    assert rule_of(annotations, metric).query == "1"
    assert "query: this annotation is required" in error_of({**annotations, f"{RPS}/query": ""}, metric)


def test_settings_can_be_labels_of_the_selector_and_annotations_win() -> None:
    annotations = {f"{RPS}/named": "2"}
    labels = {**TYPE, "query-name": "other", "prometheus-server-alias": "mimir"}
    assert "query: this annotation is required" in error_of(annotations, external(labels=labels))
    rule = rule_of({**annotations, f"{RPS}/query-name": "named"}, external(labels=labels))
    assert (rule.query, rule.destination.server) == ("2", MIMIR)


@pytest.mark.parametrize(
    ("annotations", "metric", "labels"),
    [
        ({f"{RPS}/query": QUERY}, external(labels={"type": "prometheus-query"}), {"type": "prometheus-query"}),
        ({f"{RPS}/query": QUERY}, external(labels=None), {}),
        ({"metric-config.other.rps.prometheus/query": QUERY}, external(), TYPE),
        ({"metric-config.external.jobs.waiting.prometheus/query": QUERY}, external("jobs.waiting"), TYPE),
        ({f"{RPS}/query": QUERY, f"{RPS}/per-replica": "true"}, external(), TYPE),
        ({f"{RPS}/query": QUERY, f"{RPS}/interval": "soon", f"{RPS}/min-pod-ready-age": "1h"}, external(), TYPE),
    ],
    ids=["older type", "no type", "any type of annotation", "dots in the name", "per-replica", "interval"],
)
def test_external_metric_is_found_and_its_query_unchanged(
    annotations: Mapping[str, str], metric: dict[str, Any], labels: dict[str, str]
) -> None:
    rule = rule_of(annotations, metric)
    name = metric["external"]["metric"]["name"]
    assert (rule.metric, rule.query, dict(rule.value_labels or ())) == (name, QUERY, labels)


@pytest.mark.parametrize(
    ("annotations", "metric"),
    [
        ({f"{RPS}/query": QUERY}, external("other", None)),
        ({f"{RPS}/query": QUERY}, external(labels={"type": "zmon"})),
        ({"metric-config.external.rps.zmon/query": QUERY}, external()),
        ({"metric-config.pods.rps.json-path/json-key": "$.rps"}, {"type": "Pods", "pods": {"metric": {"name": "rps"}}}),
        ({"metric-config.pods.rps.prometheus/query": QUERY}, {"type": "Pods", "pods": {"metric": {"name": "rps"}}}),
        ({f"{RPS}/query": QUERY}, on_object()),
        ({f"{RPS}/query": QUERY}, {"type": "Resource", "resource": {"name": "cpu"}}),
        ({f"{RPS}/a/query": QUERY}, external(labels=None)),
        ({"metric-config.rps.prometheus/query": QUERY}, external(labels=None)),
    ],
)
def test_metrics_of_others_make_neither_rule_nor_error(annotations: Mapping[str, str], metric: Any) -> None:
    assert read(annotations, metric) == []


def test_missing_query_is_an_error_that_names_the_annotation() -> None:
    assert error_of({f"{RPS}/interval": "30s"}, external()) == f"{RPS}/query: this annotation is required"
    assert error_of({f"{OBJECT}/per-replica": "true"}, on_object()) == f"{OBJECT}/query: this annotation is required"


@pytest.mark.parametrize("name", ["a b", "a\n", "..", "a%2f", "\u202e"])
def test_names_that_are_none_of_metrics_are_refused(name: str) -> None:
    found = error_of({f"metric-config.external.{name}.prometheus/query": QUERY}, external(name))
    assert f"{name!r} cannot stand in the path" in found
    assert found.isprintable()


@pytest.mark.parametrize(
    ("setting", "server"),
    [
        ({"prometheus-server": "mimir"}, MIMIR),
        ({"prometheus-server": "https://mimir.example.com/prometheus"}, MIMIR),
        ({"prometheus-server": "http://prometheus:9090"}, None),
        ({"prometheus-server": "default"}, None),
        ({"prometheus-server-alias": "mimir"}, MIMIR),
        ({"prometheus-server": "http://prometheus:9090", "prometheus-server-alias": "mimir"}, None),
    ],
)
def test_server_is_one_of_the_rules_file_or_of_the_flag(
    setting: Mapping[str, str], server: PrometheusOptions | None
) -> None:
    annotations = {f"{RPS}/query": QUERY, **{f"{RPS}/{key}": value for key, value in setting.items()}}
    assert rule_of(annotations, external()).destination.server is server


@pytest.mark.parametrize("setting", ["prometheus-server", "prometheus-server-alias"])
@pytest.mark.parametrize(
    "named",
    [
        "http://169.254.169.254",
        "https://mimir.example.com/prometheus/../admin",
        "https://mimir.example.com",
        "https://mimir.example.com/prometheus?x=1",
        "https://user@mimir.example.com/prometheus",
        "https://private.example.com",
        "private",
        "",
    ],
)
def test_other_servers_and_those_that_are_not_for_namespaces_are_refused(named: str, setting: str) -> None:
    error = error_of({f"{RPS}/query": QUERY, f"{RPS}/{setting}": named}, external())
    assert f"{RPS}/{setting}: there is no server for namespaces {named!r}" in error
    assert "there are default, mimir" in error


def test_object_metric_is_of_the_described_object_whether_it_exists_or_not() -> None:
    annotations = {f"{OBJECT}/query": QUERY, f"{OBJECT}/prometheus-server": "mimir"}
    rule = rule_of(annotations, on_object(labels={"route": "a"}))
    assert (rule.external, rule.resource, rule.query) == (False, GroupResource("", "pod"), QUERY)
    assert rule.destination == Destination(None, tenant=TENANT), "always of the default server"
    assert dict(rule.value_labels or ()) == {
        "route": "a",
        rule.resource_label: "dummy-pod",
        rule.namespace_label: "shop",
    }
    ingress = rule_of({f"{OBJECT}/query": QUERY}, on_object("Ingress", "networking.k8s.io/v1"))
    assert ingress.resource == GroupResource("networking.k8s.io", "ingress")


@pytest.mark.parametrize("value", ["true", "false", ""])
def test_per_replica_divides_by_the_replicas_that_the_hpa_has_set(value: str) -> None:
    annotations = {f"{OBJECT}/query": f"{QUERY} # all", f"{OBJECT}/per-replica": value}
    for replicas in ({"currentReplicas": 2, "desiredReplicas": 3}, {"currentReplicas": 3, "desiredReplicas": 0}):
        rule = rule_of(annotations, on_object(), status=replicas)
        assert rule.query == f"({QUERY} # all\n) / 3"
    for status in (None, {}, {"currentReplicas": 0, "desiredReplicas": 0}):
        assert "has no replicas yet" in error_of(annotations, on_object(), status)


def test_metrics_of_an_hpa_are_read_one_by_one_and_each_once() -> None:
    annotations = {f"{RPS}/query": QUERY, "metric-config.external.empty.prometheus/query": " "}
    found = read(annotations, external("empty"), external(), external())
    assert [bool(one.rules) for one in found] == [False, True]


def test_only_what_matters_of_an_hpa_is_kept() -> None:
    annotations = {f"{RPS}/query": QUERY, "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    hpa = {"metadata": {"name": "web", "annotations": annotations}, "spec": {"metrics": [], "maxReplicas": 3}}
    status = {"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": []}
    kept = {"metadata": {"name": "web", "annotations": {f"{RPS}/query": QUERY}}, "spec": {"metrics": []}}
    assert relevant_part({**hpa, "status": status}) == kept
    annotations[f"{OBJECT}/per-replica"] = "true"
    part = relevant_part({**hpa, "status": status})
    assert part is not None
    assert part["status"] == {"currentReplicas": 2, "desiredReplicas": 3}
    assert relevant_part({"metadata": {"annotations": {"other": "x"}}}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["metadata", "annotations", "name", "spec"]), inner)
    ),
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON))
def test_any_json_makes_rules_or_errors(hpa: dict[str, Any]) -> None:
    relevant_part(hpa)
    annotation_rules(hpa, kind=HPA, servers={}, default_url=DEFAULT_URL, tenancy=TENANCY)


@given(st.dictionaries(st.text() | st.from_regex(r"metric-config\.[a-z.]*/[a-z-]*"), st.text()))
def test_any_annotations_make_rules_or_errors(annotations: dict[str, str]) -> None:
    assert len(read(annotations, external(), on_object())) <= 2
