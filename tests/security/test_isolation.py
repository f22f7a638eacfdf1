"""A user who chooses names and selectors gets the series of the authorized namespace, and no other PromQL."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from promql_parser import MatchOp

from adapter import promql
from adapter.catalog.inventory import ExternalSource
from adapter.planning.metric_queries import SelectorNotSupported, external_query
from kube.values.selectors import LabelSelector, SelectorError
from tests.adapter.test_query import RULE, pods, template

QUERY = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
# The last: Prometheus refuses the query, such as one that names the metric twice.
REFUSED = (SelectorError, SelectorNotSupported, promql.PromqlError)
NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3)
VALUES = st.sampled_from(["a", "shop", "", "other"]) | st.text("ab-_.", max_size=6)
SELECTORS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["namespace", "pod", "a", "__name__", "le"]), VALUES).map("=".join),
        VALUES.map(lambda value: f"namespace in ({value},other)"),
        VALUES.map(lambda value: f"namespace notin ({value})"),
        st.sampled_from(["!namespace", "namespace", "namespace!=shop", 'a="}) or up{b="', "a=b} or {c=d"]),
    ),
    max_size=3,
).map(",".join)


def namespaces(query: str) -> list[set[str]]:
    """The values of the matchers `namespace="..."` of each selector in a query."""
    found = promql.selectors(promql.parse(query))
    matched = [[m for m in promql.matchers(one) if m.name == "namespace" and m.op == MatchOp.Equal] for one in found]
    return [{one.value for one in each} for each in matched]


@settings(max_examples=40)
@given(names=NAMES, selector=SELECTORS)
def test_query_for_objects_selects_in_their_namespace_only(names: list[str], selector: str) -> None:
    try:
        found = namespaces(pods(QUERY, *names, namespace="shop", selector=selector))
    except REFUSED:
        return
    assert len(found) == 1
    assert "shop" in found[0]


@settings(max_examples=40)
@given(selector=SELECTORS)
def test_query_for_an_external_metric_selects_in_the_namespace_of_the_path(selector: str) -> None:
    source = ExternalSource("s", RULE, "queue_depth", "namespace")
    try:
        selected = LabelSelector.parse(selector)
        found = namespaces(external_query(template(QUERY), source, namespace="shop", selector=selected))
    except REFUSED:
        return
    assert len(found) == 1
    assert "shop" in found[0]
