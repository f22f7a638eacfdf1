"""Objects become rules, or the reason why not: MetricRules, ClusterMetricRules and ConfigMaps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from adapter.prometheus import PrometheusOptions
from adapter.prometheus.options import Tenant
from adapter.rules import Policy, QueryRule, Rule
from adapter.rules.model import Merge
from adapter.rules.objects import ObjectName, RuleObject, Tenancy, read_object
from kube.api.mapping import GroupResource

TENANCY = Tenancy(label="namespace", query_seconds=3.0, max_samples=50, own_namespace="milliscale")
TENANT = Tenant(namespace="shop", label="namespace", query_seconds=3.0, max_samples=50)
SERVERS = {
    "ours": PrometheusOptions(name="ours", url="http://ours", tenants=True),
    "theirs": PrometheusOptions(name="theirs", url="http://theirs"),
}
QUEUE = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}
LONG = {"type": "Pods", "seriesQuery": "up", "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"}


def read(spec: object, *, namespace: str = "shop", kind: str = "MetricRule") -> RuleObject:
    """Read the object that has a spec; a ClusterMetricRule if the namespace is ""."""
    metadata = {"name": "queue", "uid": "1-2", "creationTimestamp": "2026-11-20T08:37:41Z", "generation": 3}
    if namespace:
        metadata["namespace"] = namespace
    obj = {"kind": kind if namespace else "ClusterMetricRule", "metadata": metadata, "spec": spec}
    return read_object(obj, servers=SERVERS, tenancy=TENANCY)


def config_map(text: Any, *, namespace: str = "shop") -> RuleObject:
    obj = {"kind": "ConfigMap", "metadata": {"name": "rules", "namespace": namespace}, "data": {"rules.yaml": text}}
    return read_object(obj, servers=SERVERS, tenancy=TENANCY)


def the_rule(found: RuleObject) -> Any:
    assert found.error == ""
    [rule] = found.rules
    return rule


def test_object_has_its_name_and_metadata() -> None:
    found = read(QUEUE)
    assert (found.name, str(found.name)) == (ObjectName("MetricRule", "shop", "queue"), "MetricRule shop/queue")
    assert (found.uid, found.created, found.generation) == ("1-2", "2026-11-20T08:37:41Z", 3)
    assert str(read(QUEUE, namespace="").name) == "ClusterMetricRule queue"


def test_short_rule_of_a_namespace_is_restricted_to_it() -> None:
    rule = the_rule(read({**QUEUE, "empty": "zero", "prometheus": "ours"}))
    assert isinstance(rule, QueryRule)
    assert (rule.key, rule.metric, rule.query) == ("MetricRule shop/queue", "queue_length", "sum(queue)")
    assert (rule.external, rule.namespace, rule.empty) == (True, "shop", Policy.ZERO)
    assert (rule.destination.server, rule.destination.tenant) == (SERVERS["ours"], TENANT)


def test_cluster_metric_rule_is_not_restricted() -> None:
    rule = the_rule(read({**QUEUE, "headers": {"X-Scope-OrgID": "a"}, "prometheus": "theirs"}, namespace=""))
    assert (rule.namespace, rule.destination.tenant.namespace) == ("", "")
    assert rule.destination.headers == (("X-Scope-OrgID", "a"),)


def test_metric_of_pods_has_the_label_pod_by_default() -> None:
    rule = the_rule(read({**QUEUE, "type": "Pods"}))
    assert (rule.external, rule.resource, rule.resource_label) == (False, GroupResource("", "pod"), "pod")


def test_long_rule_of_a_namespace_is_never_coalesced() -> None:
    rule = the_rule(read(LONG))
    assert isinstance(rule, Rule)
    assert (rule.merge, rule.namespace, rule.destination.tenant) == (Merge.NEVER, "shop", TENANT)


def test_long_external_rule_of_a_namespace_needs_no_label_for_it() -> None:
    labelled = {"resources": {"overrides": {"ns": {"resource": "namespace"}}}}
    assert not the_rule(read({**LONG, "type": "External"})).resources.namespaced
    assert the_rule(read({**LONG, "type": "External", **labelled})).resources.namespaced
    assert the_rule(read({**LONG, "type": "External"}, namespace="")).resources.namespaced


FORMS = "spec: give one of query, seriesQuery (with metricsQuery) and schedule"


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (None, "spec: this key is required"),
        ([], "spec: expected a mapping"),
        ({}, FORMS),
        ({**QUEUE, "seriesQuery": "up"}, f"{FORMS}, not query and seriesQuery together"),
        ({**QUEUE, "type": None}, "spec.type: this key is required"),
        ({**QUEUE, "type": "Resource"}, "spec.type: expected External, Pods or Object, got 'Resource'"),
        ({**QUEUE, "metric": None}, "spec.metric: this key is required"),
        ({**QUEUE, "metric": "a/b"}, "spec.metric: 'a/b' cannot stand in the path of a request"),
        ({**QUEUE, "query": ""}, "spec.query: this key is required"),
        ({**QUEUE, "name": {"as": "x"}}, "spec.name: this key does not go with query"),
        ({**QUEUE, "metricsQuery": "up"}, "spec.metricsQuery: this key does not go with query"),
        ({"type": "External", "metric": "queue", "querry": "up"}, "spec: unknown key `querry`; did you mean `query`?"),
        ({**QUEUE, "emty": "zero"}, "spec: unknown key `emty`; did you mean `empty`?"),
        ({**QUEUE, "<key>": "rules[0]"}, "spec: unknown key `<key>`"),
        ({**QUEUE, "empty": "null"}, "spec.empty: expected zero, missing or error, got 'null'"),
        ({**QUEUE, "prometheus": "none"}, "spec.prometheus: there is no server 'none' in prometheusServers"),
        ({**QUEUE, "prometheus": "theirs"}, "spec.prometheus: there is no server 'theirs' in prometheusServers"),
        ({**QUEUE, "headers": {"a": "b"}}, "spec.headers: only a ClusterMetricRule can set this key"),
        ({**LONG, "merge": "always"}, "spec.merge: only a ClusterMetricRule can set this key"),
        ({**QUEUE, "labels": {"pod": "pod"}}, "spec.labels.pod: an external metric is about no object"),
        ({**QUEUE, "type": "Object"}, "spec.labels: say which label names which resource"),
        ({**QUEUE, "type": "Pods", "labels": {"a": "node"}}, "spec.labels: say which label names the pods"),
        ({**LONG, "metricsQuery": "<<.Sries>>"}, "spec.metricsQuery: "),
        ({**LONG, "name": {"matches": "("}}, "spec.name.matches: "),
        ({**LONG, "maxAge": "-5m"}, "spec.maxAge: must be more than 0, got -5m"),
        ({**QUEUE, "query": ["sum"]}, "spec.query: expected text, got a list"),
        ({**QUEUE, "labels": {str(number): "x" for number in range(60_000)}}, "spec: it has too many values"),
    ],
)
def test_invalid_object_has_the_reason_and_the_field(spec: Any, error: str) -> None:
    found = read(spec)
    assert (found.rules, found.reason) == ((), "Invalid")
    assert error in found.error
    assert "MetricRule" not in found.error.removesuffix("only a ClusterMetricRule can set this key")


def test_json_types_are_read_like_yaml() -> None:
    spec = {**LONG, "resources": {"namespaced": False, "overrides": {"p": {"resource": "pod"}}}, "maxAge": "90s"}
    rule = the_rule(read({**spec, "type": "External", "prometheus": None}))
    assert (bool(rule.resources.namespaced), rule.max_age) == (False, 90.0)


RULES_TEXT = """
rules: [{name: a, query: up, resources: {pod: pod}}]
externalRules: [{name: b, query: up}]
"""


def test_rules_of_a_config_map_have_their_places_as_keys() -> None:
    found = config_map(RULES_TEXT)
    assert found.error == ""
    assert [rule.key for rule in found.rules] == [
        "ConfigMap shop/rules rules.yaml rules[0]",
        "ConfigMap shop/rules rules.yaml externalRules[0]",
    ]
    assert {rule.destination.tenant for rule in found.rules} == {TENANT}
    assert {rule.namespace for rule in found.rules} == {"shop"}


def test_a_config_map_with_too_many_keys_or_rules_is_not_read_to_its_end() -> None:
    """Reading a MiB of them takes seconds."""
    tenancy = structs.replace(TENANCY, max_rules=3)

    def read_keys(*texts: str, namespace: str = "shop") -> RuleObject:
        data = {f"{number}.yaml": text for number, text in enumerate(texts)}
        obj = {"kind": "ConfigMap", "metadata": {"name": "rules", "namespace": namespace}, "data": data}
        return read_object(obj, servers=SERVERS, tenancy=tenancy)

    assert read_keys(RULES_TEXT, "{}", "rules: [").error.startswith("data.2.yaml: line 2")
    one = "externalRules:\n- {name: queue, query: sum(queue)}\n"
    assert len(read_keys(RULES_TEXT, one).rules) == 3
    assert read_keys(RULES_TEXT, one, "rules: [").error.startswith("data.2.yaml: line 2"), "as many as there can be"
    assert len(read_keys(RULES_TEXT, RULES_TEXT, "rules: [").rules) == 4  # one too many: none is used
    assert read_keys(*["{}"] * 4).error == "data: there can be 3 keys, and these are 4"
    assert read_keys(*["{}"] * 4, namespace="milliscale").error == ""


def test_rules_of_a_config_map_in_the_namespace_of_the_adapter_are_not_restricted() -> None:
    found = config_map(RULES_TEXT, namespace="milliscale")
    assert {(rule.namespace, rule.destination.tenant.namespace) for rule in found.rules} == {("", "")}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rules: [", "data.rules.yaml: line 2, column 1: while parsing a flow node"),
        ("rules: [{}]", "data.rules.yaml: rules[0].seriesQuery: this key is required"),
        ("prometheusServers: {a: {url: 'http://evil'}}", "only rules and externalRules can be here"),
        ("forwardExternal: {url: 'https://evil'}", "only rules and externalRules can be here"),
        ("resourceRules: {}", "only rules and externalRules can be here"),
        ("externalRules: [{name: b, query: up, headers: {a: b}}]", "only rules for all namespaces can set headers"),
        (
            "externalRules: [{name: b, query: up, prometheus: theirs}]",
            "there is no server 'theirs' in prometheusServers",
        ),
        ("externalRules: [{name: b, query: up, <namespace>: bank}]", "unknown key `<namespace>`"),
    ],
)
def test_invalid_config_map_has_the_reason(text: str, error: str) -> None:
    found = config_map(text)
    assert (found.rules, found.reason) == ((), "Invalid")
    assert error in found.error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
KEYS = ("metric", "query", "labels", "seriesQuery", "metricsQuery", "seriesFilters", "name", "resources", "schedule")
SPECS = st.dictionaries(
    st.sampled_from((*KEYS, "type", "prometheus", "headers", "nan", "empty", "maxAge", "merge", "activation", "x")),
    JSON | st.sampled_from(["External", "Pods", "up", "zero", "5m", "theirs"]),
    max_size=6,
)


@given(SPECS | JSON, st.sampled_from(["", "shop"]))
def test_no_spec_raises_an_error_or_escapes_its_namespace(spec: object, namespace: str) -> None:
    found = read(spec, namespace=namespace)
    assert bool(found.rules) != bool(found.error)
    for rule in found.rules:
        assert rule.namespace == namespace
        assert (rule.destination.tenant == TENANT) == bool(namespace)
