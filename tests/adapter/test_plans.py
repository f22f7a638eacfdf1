"""The queries for long lists of objects."""

from __future__ import annotations

import re

import pytest

from adapter.catalog.inventory import CustomMetricInfo, CustomSource
from adapter.planning.metric_queries import ObjectsQuery, Plan
from adapter.promql import separable_labels
from adapter.rules import Rule, parse_rules
from kube.api.mapping import GroupResource
from kube.values.selectors import EVERYTHING
from tests.adapter.metrics_env import series_rule

GROUPED = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"
SHARE = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / scalar(sum(<<.Series>>{<<.LabelMatchers>>}))"
PODS = [f"web-{number}" for number in range(1000)]
RANDOM = [f"web-{number * 2654435761 % 2**32:08x}-{number * 40503 % 2**16:04x}" for number in range(4000)]


def rule(query: str, *, limit: int | None = None) -> Rule:
    server = f"prometheusServers: {{big: {{url: 'http://x', maxQueryBytes: {limit}}}}}\n" if limit else ""
    text = f"{server}rules: [{{seriesQuery: a, metricsQuery: '{query}'{', prometheus: big' if limit else ''}}}]"
    return series_rule(parse_rules(text, source="rules.yaml"))


def plan(made_by: Rule, names: list[str], *, all_objects: bool = False) -> Plan:
    info = CustomMetricInfo(GroupResource("", "pods"), "a", True)
    source = CustomSource(info, made_by, "a_total", "pod", "namespace")
    return ObjectsQuery(source, "shop", names, all_objects, EVERYTHING).plan()


def matched(query: str, names: list[str]) -> set[str]:
    """The names that the query's matcher of pods finds, as Prometheus would."""
    found = re.search(r'pod=~?"((?:[^"\\]|\\.)*)"', query)
    assert found is not None
    expression = re.compile(found[1].replace("\\\\", "\\"))
    return {name for name in names if expression.fullmatch(name)}


def test_thousand_pods_are_the_query_of_prometheus_adapter() -> None:
    [query] = plan(rule(GROUPED), PODS).queries
    assert query == f'sum(rate(a_total{{namespace="shop",pod=~"{"|".join(PODS)}"}}[1m])) by (pod)'


def test_longer_list_is_written_shorter() -> None:
    names = [f"a-rather-long-name-for-a-workload-{number}" for number in range(1000)]
    [query] = plan(rule(GROUPED), names).queries
    assert len(query) < 8 * 1024
    others = [f"a-rather-long-name-for-a-workload-{number}" for number in range(1000, 1200)]
    assert matched(query, [*names, *others]) == set(names)


def test_query_that_is_still_too_long_is_split() -> None:
    names = RANDOM[::2]
    made = plan(rule(GROUPED), names)
    assert 2 <= len(made.queries) <= 4
    assert all(len(query) <= 16 * 1024 for query in made.queries)
    parts = [matched(query, RANDOM) for query in made.queries]
    assert set().union(*parts) == set(names)
    assert sum(map(len, parts)) == len(names)


def test_limit_is_that_of_the_server() -> None:
    assert len(plan(rule(GROUPED, limit=1_000_000), RANDOM).queries) == 1
    assert all(len(query) <= 4096 for query in plan(rule(GROUPED, limit=4096), RANDOM).queries)


def test_server_with_a_lower_limit_gets_shorter_queries() -> None:
    made = plan(rule(GROUPED, limit=2048), RANDOM[:300])  # some 5 KiB
    assert len(made.queries) > 1
    assert all(len(query) <= 2048 for query in made.queries)


def test_all_objects_are_queried_without_their_names() -> None:
    made = plan(rule(GROUPED), RANDOM, all_objects=True)
    assert made.queries == ('sum(rate(a_total{namespace="shop",pod=~".+"}[1m])) by (pod)',)


def test_query_across_objects_is_not_split() -> None:
    made = plan(rule(SHARE), RANDOM, all_objects=True)
    assert made.too_long
    assert len(made.queries) == 1
    assert matched(made.queries[0], RANDOM) == set(RANDOM)


def test_query_with_the_names_elsewhere_is_not_split() -> None:
    source = 'sum(a{pod=~"<<index .LabelValuesByName "pod">>"}) by (<<.GroupBy>>)'
    assert plan(rule(source), RANDOM).too_long


def test_query_that_transforms_the_matchers_is_not_split() -> None:
    source = GROUPED + " * <<if eq .LabelMatchers `a`>>1<<else>>2<<end>>"
    assert plan(rule(source), RANDOM).too_long


@pytest.mark.parametrize(
    "query",
    [
        'x{pod="x"}',
        'sum(x{pod="x"}) by (pod)',
        'sum by (pod) (rate(x{a="}",pod="x"}[5m] offset 1m))',
        'histogram_quantile(0.9, sum(rate(x{pod="x"}[5m])) by (pod, le))',
        'max(avg_over_time(x{pod="x"}[1h:1m])) by (pod) / max(y{pod="x"}) by (pod) * 100',
        'clamp_min(x{pod="x"} - y{pod="x"}, 0) # sum(',
        'x{pod="x"} > bool 1 or y{pod="x"}',
    ],
)
def test_separable_queries(query: str) -> None:
    assert separable_labels(query, label="pod", value="x").can_have("pod")


@pytest.mark.parametrize(
    "query",
    [
        'sum(x{pod="x"})',
        'sum(x{pod="x"}) by (namespace)',
        'sum(x{pod="x"}) without (port)',
        'sum(sum(x{pod="x"})) by (pod)',
        'max(sum(x{pod="x"}) by (le)) by (pod)',
        'topk(3, x{pod="x"})',
        'x{pod="x"} / scalar(sum(x{pod="x"}))',
        'x{pod="x"} / on() y{pod="x"}',
        'x{pod="x"} / ignoring(pod) y{pod="x"}',
        'x{pod="x"} * on(pod) group_left y{pod="x"}',
        'absent(x{pod="x"})',
        'x{pod="x"} or vector(0)',
        'label_replace(x{pod="x"}, "pod", "y", "a", "b")',
        'count_values("pod", x{pod="x"})',
        'x{pod="x"} / y',
        'x{pod="x"} / y{a="b"}',
        "x{a='pod=\"x\"'}",
        "1",
        "sum(",
        "sum",
        "x{",
        "sum by",
        "",
    ],
)
def test_inseparable_queries(query: str) -> None:
    assert not separable_labels(query, label="pod", value="x").can_have("pod")
