"""Findings about a rules file alone."""

from __future__ import annotations

import json
import threading

import pytest

from adapter.commands.builtin_resources import FixedResources, builtin_resources
from adapter.diagnosis.lint import SeriesNames, lint
from adapter.diagnosis.report import Severity
from adapter.rules import Rule, parse_rules
from tests.adapter.metrics_env import RULES

GOOD = """
rules:
- seriesQuery: 'packets_total{pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$, as: '${1}_per_second'}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
"""


PODS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"


def rule(**changes: str) -> str:
    """Return a good rule with some keys replaced, as YAML."""
    keys = {
        "seriesQuery": "packets_now",
        "resources": "{template: <<.Resource>>}",
        "metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'",
        **changes,
    }
    return "- " + "\n  ".join(f"{key}: {value}" for key, value in keys.items()) + "\n"


async def found(text: str, *, knows_cluster: bool = False) -> list[tuple[str, str, str]]:
    rules = parse_rules(text, source="rules.yaml")
    findings = await lint(rules, builtin_resources(), knows_cluster=knows_cluster)
    return [(one.severity.value, one.code, one.where) for one in findings]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum(up)", ("error", "bad-query")),
        ("1", ("error", "bad-query")),
        ("conn_open{namespace!=", ("error", "unbalanced")),
        ('up{pod="a}', ("error", "unbalanced")),
        ("up{pod}", ("warning", "not-promql")),
        ('{__name__=~".*"}', ("warning", "not-promql")),
        ("{}", ("warning", "not-promql")),
        ('up{a="b" or c="d"}', ("warning", "not-promql")),
        ("up{a=~'(['}", ("warning", "not-promql")),
        ("(" * 10_000, ("warning", "not-promql")),
        ('{__name__=~"^up.*",pod!=""}', None),
        ('{"dots.in.name",pod!="}"}', None),
        ('{pod!=""}', None),
        ("up{}", None),
    ],
)
async def test_findings_about_series_queries(query: str, expected: tuple[str, str] | None) -> None:
    findings = await found(f"rules:\n{rule(seriesQuery=json.dumps(query))}")
    assert findings == ([(*expected, "rules[0].seriesQuery")] if expected else [])


@pytest.mark.parametrize("file", sorted(file.name for file in RULES.glob("*.yaml")))
async def test_good_rules_have_no_errors(file: str) -> None:
    rules = parse_rules((RULES / file).read_text(), source=file)
    findings = await lint(rules, builtin_resources(), knows_cluster=True)
    errors = [(one.code, one.about) for one in findings if one.severity is Severity.ERROR]
    # One of the recorded queries has a result without the pod's label.
    assert errors == [("no-object-label", 'nolabel{namespace!="",pod!=""}')] * (file == "packets.yaml")
    assert await found(GOOD) == []


OTHER_LABELS = "'sum(<<.Series>>{<<.LabelMatchers>>}) %s'"
BROKEN = {
    "a selector that ends early": ({"seriesQuery": "'conn_open{namespace!='"}, "error unbalanced seriesQuery"),
    "a bracket too few": (
        {"metricsQuery": "'sum(<<.Series>>{<<.LabelMatchers>>} by (<<.GroupBy>>)'"},
        "error unbalanced metricsQuery",
    ),
    "objects in namespaces without their label, and others": (
        {"resources": "{overrides: {node: {resource: node}, pod: {resource: pod}}}"},
        "warning no-namespace-label",
    ),
    "nothing but objects in namespaces without their label": (
        {"resources": "{overrides: {pod: {resource: pod}}}"},
        "error no-namespace-label",
    ),
    "is does not match the name": ({"seriesFilters": "[{is: ^bytes_}]"}, "error dead-filter seriesFilters[0].is"),
    "isNot leaves out the name": ({"seriesFilters": "[{isNot: packets}]"}, "error dead-filter seriesFilters[0].isNot"),
    "isNot leaves out nothing": ({"seriesFilters": "[{isNot: bytes}]"}, "warning idle-filter seriesFilters[0].isNot"),
    "matches": ({"name": "{matches: ^(.*)_count$}"}, "error dead-filter name.matches"),
    "conditions that exclude each other": (
        {"seriesQuery": '\'{__name__=~"^(a|b)_total$",__name__!~"[ab].*"}\''},
        "error dead-query seriesQuery",
    ),
    "no LabelMatchers": (
        {"metricsQuery": "sum(<<.Series>>) by (<<.GroupBy>>)"},
        "warning no-label-matchers metricsQuery",
    ),
    "no label": ({"metricsQuery": OTHER_LABELS % ""}, "error no-object-label metricsQuery"),
    "a number": (
        {"metricsQuery": "'scalar(sum(<<.Series>>{<<.LabelMatchers>>}))'"},
        "error no-object-label metricsQuery",
    ),
    "by another label": (
        {"metricsQuery": OTHER_LABELS % "by (path)", "resources": PODS},
        "error no-object-label metricsQuery",
    ),
    "without the label": (
        {"metricsQuery": OTHER_LABELS % "without (pod, namespace)", "resources": PODS},
        "error no-object-label metricsQuery",
    ),
    "by the namespace alone": (
        {"metricsQuery": OTHER_LABELS % "by (namespace)", "resources": PODS},
        "warning only-namespaces metricsQuery",
    ),
    "by one label more": (
        {"metricsQuery": OTHER_LABELS % "by (<<.GroupBy>>, path)", "resources": PODS},
        "warning several-values metricsQuery",
    ),
    "delimiters that are not the template's": (
        {"metricsQuery": "'sum(<<.Series>>{{{.LabelMatchers}}}) by ({{.GroupBy}})'"},
        "error wrong-delimiters metricsQuery",
    ),
    "MetricsQL": (
        {"metricsQuery": "'sum(rollup_rate(<<.Series>>{<<.LabelMatchers>>})) by (<<.GroupBy>>)'"},
        "warning not-promql metricsQuery",
    ),
    "a division": (
        {"metricsQuery": OTHER_LABELS % "by (<<.GroupBy>>) / sum(b) by (<<.GroupBy>>)"},
        "warning may-be-nan metricsQuery",
    ),
    "a group with letters after it": (
        {"name": "{matches: ^(.*)_now$, as: $1_per_second}"},
        "error unknown-group name.as",
    ),
    "no labels at all": ({"resources": "{}"}, "error no-resource"),
    "no resource of Kubernetes": (
        {"resources": "{overrides: {pod: {resource: pdo}}}"},
        "warning unchecked-resource resources.overrides.pod",
    ),
}
"""Keys that replace those of a good rule, and the only finding."""


@pytest.mark.parametrize(("keys", "finding"), BROKEN.values(), ids=BROKEN)
async def test_broken_rule_has_one_finding(keys: dict[str, str], finding: str) -> None:
    severity, code, *path = finding.split()
    assert await found(f"rules:\n{rule(**keys)}") == [(severity, code, ".".join(["rules[0]", *path]))]


@pytest.mark.parametrize(
    ("keys", "finding"),
    [
        ("query: sum(up, resources: {namespace: namespace}", ("error", "unbalanced", "rules[0].query")),
        ("query: up, resources: {pod: pod}", ("error", "no-namespace-label", "rules[0].resources")),
        (
            "query: 'sum(lag) by (topic)', resources: {namespace: namespace, deployment: deployments}",
            ("error", "no-object-label", "rules[0].query"),
        ),
    ],
)
async def test_broken_short_rule_has_one_finding(keys: str, finding: tuple[str, str, str]) -> None:
    assert await found(f"rules: [{{name: up, {keys}}}]") == [finding]


@pytest.mark.parametrize(("labels", "count"), [("path", 1), ("kube_node, kube_service", 0)])
async def test_labels_that_the_template_maps_to_resources_do_not_make_several_values(labels: str, count: int) -> None:
    query = f"'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>, {labels})'"
    text = f"rules:\n{rule(resources='{template: kube_<<.Resource>>}', metricsQuery=query)}"
    assert await found(text) == [("warning", "several-values", "rules[0].metricsQuery")] * count


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param("{overrides: {ns: {resource: namespaces}, pod: {resource: pod}}}", id="namespaces in the plural"),
        pytest.param("{overrides: {pod: {resource: pod}}, template: kube_<<.Resource>>}", id="a template has a label"),
        pytest.param("{overrides: {node: {resource: node}}}", id="nodes are in no namespace"),
        pytest.param("{overrides: {class: {group: storage.k8s.io, resource: storageclass}}}", id="of the cluster"),
    ],
)
async def test_namespace_label_is_not_always_required(resources: str) -> None:
    assert await found(f"rules:\n{rule(resources=resources)}") == []


@pytest.mark.parametrize(
    ("resources", "findings"),
    [
        ("{overrides: {queue: {resource: pod}}}", [("error", "no-namespace-label", "externalRules[0]")]),
        ("{}", [("error", "no-namespace-label", "externalRules[0]")]),
        ("{namespaced: false}", []),
        ("{overrides: {ns: {resource: namespace}}}", []),
        ("{template: <<.Resource>>}", []),
    ],
)
async def test_external_rules_require_a_namespace_label(resources: str, findings: list[tuple[str, str, str]]) -> None:
    assert await found(f"externalRules:\n{rule(resources=resources)}") == findings


async def test_findings_are_in_the_order_of_the_file() -> None:
    last = rule(seriesQuery="bytes_now", metricsQuery="avg_over_time(<<.Series>>[1m])")
    assert await found(f"rules:\n{rule()}{rule()}{last}") == [
        ("warning", "overlap", "rules[1]"),
        ("warning", "no-label-matchers", "rules[2].metricsQuery"),
    ]


async def test_unknown_resource_is_an_error_if_the_cluster_is_known() -> None:
    text = f"rules:\n{rule(resources='{overrides: {pod: {resource: pdo}}}')}"
    assert await found(text, knows_cluster=True) == [("error", "unknown-resource", "rules[0].resources.overrides.pod")]
    rules = parse_rules(GOOD, source="rules.yaml")
    assert await lint(rules, FixedResources([]), knows_cluster=True) == ()


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (rule(), "overlap"),
        (rule(seriesQuery="'packets_now{pod!=\"\"}'"), "may-overlap"),
        (rule(seriesQuery="'{__name__=~\"packets_.*\"}'"), "may-overlap"),
        (rule(resources="{overrides: {ns: {resource: namespace}, pod: {resource: pod}}}"), "overlap"),
        (rule(name="{as: other}"), None),
        (rule(seriesQuery="bytes_now"), None),
        (rule(seriesQuery="'{__name__=~\"packets_.*\"}'", seriesFilters="[{isNot: _now$}]"), None),
        ("- {name: packets_now, query: up, resources: {namespace: namespace, pod: pod}}\n", "overlap"),
    ],
)
async def test_overlaps(second: str, code: str | None) -> None:
    expected = [] if code is None else [("warning", code, "rules[1]")]
    assert await found(f"rules:\n{rule()}{second}") == expected


async def test_rules_of_different_resources_do_not_overlap() -> None:
    spaces, nodes = (rule(resources=f"{{overrides: {{{one}: {{resource: {one}}}}}}}") for one in ("namespace", "node"))
    assert await found(f"rules:\n{spaces}{nodes}") == []


async def test_same_series_query_and_naming_overlap_even_if_names_are_unknown() -> None:
    unknown, others = rule(seriesQuery="'{job=\"web\"}'"), rule(seriesQuery="'{job=\"db\"}'")
    findings = await lint(
        parse_rules(f"rules:\n{unknown}{others}{unknown}", source="rules.yaml"),
        builtin_resources(),
        knows_cluster=False,
    )
    assert [(one.code, one.where, one.message) for one in findings] == [
        ("overlap", "rules[2]", "rules[0] also makes the same metrics; the later one wins")
    ]


async def test_every_overlapping_pair_is_reported() -> None:
    text = f"rules:\n{rule()}{rule(seriesQuery='bytes_now')}{rule()}{rule()}"
    findings = await lint(parse_rules(text, source="rules.yaml"), builtin_resources(), knows_cluster=False)
    assert [(one.where, one.message) for one in findings] == [
        (second, f"{first} also makes packets_now; the later one wins")
        for first, second in (("rules[0]", "rules[2]"), ("rules[0]", "rules[3]"), ("rules[2]", "rules[3]"))
    ]


async def test_overlaps_take_linear_time_in_a_worker_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    threads: set[int] = set()
    metric_for, can_be = Rule.metric_for, SeriesNames.can_be

    def note_name(self: Rule, series: str) -> str | None:
        threads.add(threading.get_ident())
        asked.append(series)
        return metric_for(self, series)

    def note_match(self: SeriesNames, name: str) -> bool:
        asked.append(name)
        return can_be(self, name)

    monkeypatch.setattr(Rule, "metric_for", note_name)
    monkeypatch.setattr(SeriesNames, "can_be", note_match)
    steps = []
    for count in (50, 100):
        asked.clear()
        assert await found("rules:\n" + "".join(rule(seriesQuery=f"packets_{n}_now") for n in range(count))) == []
        steps.append(len(asked))
    assert steps[1] == 2 * steps[0]
    assert threading.get_ident() not in threads, "a running adapter serves requests meanwhile"


async def test_resource_rules_require_labels_of_pods_nodes_and_namespaces() -> None:
    text = (RULES / "resource.yaml").read_text().replace("node: {resource: node}", "node: {resource: service}")
    assert await found(text) == [
        ("error", "no-resource", "resourceRules.cpu.resources"),
        ("error", "no-resource", "resourceRules.memory.resources"),
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("up", ("up",)),
        ('up{job="x"}', ("up",)),
        ('{__name__="up",job=~"a,b|}"}', ("up",)),
        ("{__name__='up'}", ("up",)),
        ('{"up"}', ("up",)),
        ('{__name__=~"a|b"}', ("a", "b")),
        ('{__name__=~"^http_(a|b)_total$"}', ("http_a_total", "http_b_total")),
        ('{__name__=~"http_.*"}', None),
        ('{job="x"}', None),
        ("up{", None),
        ('{__name__=~"(["}', None),
    ],
)
def test_names_that_a_selector_lists(query: str, names: tuple[str, ...] | None) -> None:
    assert SeriesNames.of(query).names == names
