"""Which templates can be coalesced, and into which query."""

from __future__ import annotations

import dataclasses

import pytest

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.metric_queries import ExternalQuery, MetricQuery, ObjectsQuery, coalesced_query
from kube.values.selectors import EVERYTHING, LabelSelector
from tests.adapter.coalescing_rules import RAW, SUM, external, source


def for_objects(made_of: CustomSource, namespace: str, selector: LabelSelector) -> str:
    return text_for(ObjectsQuery(made_of, namespace, ["web-0"], False, selector))


def for_external(made_of: ExternalSource, selector: LabelSelector) -> str:
    return text_for(ExternalQuery(made_of, "shop", selector))


def text_for(query: MetricQuery) -> str:
    """The coalesced query that can serve this request; "" if there is none."""
    found = query.coalesced()
    return found.text if found is not None and query.is_served_by(found) else ""


@pytest.mark.parametrize(
    "query",
    [
        SUM,
        "<<.Series>>{<<.LabelMatchers>>}",
        "max by (<<.GroupBy>>) (max_over_time(<<.Series>>{<<.LabelMatchers>>}[5m]))",
        "sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "histogram_quantile(0.9, sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (le, <<.GroupBy>>))",
    ],
)
def test_separable_templates_can_be_coalesced(query: str) -> None:
    assert coalesced_query(source(query))


@pytest.mark.parametrize(
    "query",
    [
        "sum(<<.Series>>{<<.LabelMatchers>>})",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (pod)",  # pods of one name in two namespaces
        'sum(<<.Series>>{pod=~"<<index .LabelValuesByName "pod">>",<<.LabelMatchers>>}) by (<<.GroupBy>>)',
        "sum(<<.Series>>) by (<<.GroupBy>>)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<index .GroupBySlice 0>>)",
        "sum(a{<<.LabelMatchers>>}) by (namespace, <<.GroupBy>>) and sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "a{<<.LabelMatchers>>} and sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "sum(a{<<.LabelMatchers>>} / sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)) by (<<.GroupBy>>)",
    ],
)
def test_other_templates_cannot_be_coalesced(query: str) -> None:
    assert not coalesced_query(source(query))


def test_external_metrics_that_keep_the_namespace_can_be_coalesced() -> None:
    assert coalesced_query(external("<<.Series>>{<<.LabelMatchers>>}"))
    assert not coalesced_query(external("max(<<.Series>>{<<.LabelMatchers>>}) by (queue)"))
    assert coalesced_query(external(RAW, namespaced=False))


def test_merge_always_coalesces_any_form() -> None:
    query = "label_join(<<.Series>>{<<.LabelMatchers>>}, 'x', 'y', 'z')"
    assert [bool(coalesced_query(source(query, merge))) for merge in ("auto", "always")] == [False, True]
    assert not coalesced_query(source(SUM, "never"))
    assert not coalesced_query(external(RAW, "never"))


@pytest.mark.parametrize(
    "query",
    [
        '<<if eq .LabelMatchers "a">>max<<else>>sum<<end>>(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)',
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * <<len .LabelMatchers>>",
        "<<if eq .GroupBy `pod`>>max<<else>>sum<<end>>(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * <<len .GroupBySlice>>",
        "<<with .LabelMatchers>>sum(a{<<.>>})<<end>> by (<<.GroupBy>>)",
    ],
)
def test_template_that_transforms_the_matchers_cannot_be_coalesced(query: str) -> None:
    assert not coalesced_query(source(query))
    assert coalesced_query(source(query, "always"))


def test_external_template_that_transforms_the_matchers_cannot_be_coalesced() -> None:
    query = "<<if eq .LabelMatchers `a`>>rate<<else>>irate<<end>>(<<.Series>>{<<.LabelMatchers>>}[5m])"
    assert not coalesced_query(external(query))
    assert not coalesced_query(external(query, namespaced=False))


def test_template_may_use_the_series() -> None:
    query = "<<if eq .Series `a`>>max<<else>>sum<<end>>(a{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    assert coalesced_query(source(query))


def test_query_for_all_objects() -> None:
    verb = LabelSelector.parse("verb=GET")
    start = "sum(rate(packets_total{"
    assert [for_objects(source(SUM), namespace, verb) for namespace in ("shop", "")] == [
        start + 'verb="GET",namespace=~".+",pod=~".+"}[5m])) by (pod,namespace)',
        start + 'verb="GET",pod=~".+"}[5m])) by (pod)',
    ]
    with_container = dataclasses.replace(source(SUM), group_by=("container",))
    assert for_objects(with_container, "shop", EVERYTHING) == (
        start + 'namespace=~".+",pod=~".+"}[5m])) by (pod,container,namespace)'
    )


def test_query_for_all_namespaces_and_selectors() -> None:
    verb = LabelSelector.parse("verb=GET")
    assert for_external(external(RAW), verb) == 'packets_total{namespace=~".+"}'
    assert for_external(external(RAW, namespaced=False), verb) == "packets_total{}"
    assert for_external(dataclasses.replace(external(RAW), namespace_label=""), verb) == ""


@pytest.mark.parametrize("namespaced", [True, False])
@pytest.mark.parametrize(
    "selector",
    [
        *("verb>3", "verb<3"),  # which Prometheus does not have
        *("verb=", "verb!=", "verb in (,a)", "verb notin (a,)"),  # where a label that is not there is an empty one
        *("verb in (a.b,c)", "verb notin (a.b)"),  # where a dot is any character
    ],
)
def test_selectors_that_prometheus_matches_otherwise_are_sent_alone(selector: str, namespaced: bool) -> None:
    assert not for_external(external(RAW, namespaced=namespaced), LabelSelector.parse(selector))


@pytest.mark.parametrize(
    "selector", ["verb=a.b", "verb!=a.b", "verb in (a,b)", "verb notin (a,b)", "verb", "!verb", ""]
)
@pytest.mark.parametrize("namespaced", [True, False])
def test_other_selectors_select_from_the_coalesced_result(selector: str, namespaced: bool) -> None:
    assert for_external(external(RAW, namespaced=namespaced), LabelSelector.parse(selector))


@pytest.mark.parametrize("namespaced", [True, False])
def test_le_of_a_quantile_cannot_be_selected_by(namespaced: bool) -> None:
    made_of = external(
        "histogram_quantile(0.9, sum(<<.Series>>{<<.LabelMatchers>>}) by (le, namespace))", namespaced=namespaced
    )
    assert for_external(made_of, LabelSelector.parse("namespace=a"))
    assert not for_external(made_of, LabelSelector.parse("le=1"))


@pytest.mark.parametrize("namespaced", [True, False])
@pytest.mark.parametrize("by", ["namespace", "namespace, queue"])
def test_labels_that_the_query_drops_cannot_be_selected_by(by: str, namespaced: bool) -> None:
    made_of = external(f"sum(<<.Series>>{{<<.LabelMatchers>>}}) by ({by})", namespaced=namespaced)
    assert for_external(made_of, EVERYTHING)
    assert bool(for_external(made_of, LabelSelector.parse("queue=a"))) == ("queue" in by)
    assert not for_external(made_of, LabelSelector.parse("queue=a,verb=b"))
