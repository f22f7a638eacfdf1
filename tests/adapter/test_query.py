"""The PromQL that rules make for requests: what tests.golden has no recording of."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource
from adapter.gotemplate import Template
from adapter.planning.metric_queries import QueryError, SelectorNotSupported, custom_query, external_query
from adapter.promql import alternation
from adapter.rules import parse_rules
from adapter.rules.field_types import QUERY_FIELDS
from adapter.rules.goregex import GoRegex
from kube.api.mapping import GroupResource
from kube.values.selectors import LabelSelector, SelectorError

[RULE] = parse_rules("rules: [{seriesQuery: a, metricsQuery: a}]", source="rules.yaml").custom


def template(source: str) -> Template:
    return Template(source, fields=QUERY_FIELDS)


def pods(source: str, *names: str, namespace: str = "shop", selector: str = "") -> str:
    info = CustomMetricInfo(GroupResource("", "pods"), "packets", namespaced=True)
    made_of = CustomSource(info, RULE, "packets", "pod", "namespace")
    return custom_query(
        template(source), made_of, names=names, namespace=namespace, selector=LabelSelector.parse(selector)
    )


def test_several_objects_are_a_regex_of_their_names() -> None:
    assert pods("<<.LabelMatchers>>", "a", "b-1") == 'namespace="shop",pod=~"a|b-1"'


def test_dot_in_a_name_matches_itself() -> None:
    assert pods("<<.LabelMatchers>>", "a.b", "c") == r'namespace="shop",pod=~"a\\.b|c"'
    assert pods("<<.LabelMatchers>>", "a.b") == 'namespace="shop",pod="a.b"'


@pytest.mark.parametrize(
    ("selector", "matchers"),
    [
        ("b=1,a==2", 'a="2",b="1"'),
        ("a!=b", 'a!="b"'),
        ("a in (x)", 'a=~"x"'),
        ("a in (y,x)", 'a=~"x|y"'),
        ("a notin (y,x)", 'a!~"x|y"'),
        ("a", 'a!=""'),
        ("!a", 'a=""'),
        ("a=", 'a=""'),
    ],
)
def test_selector_operators_become_matchers(selector: str, matchers: str) -> None:
    source = ExternalSource("s", RULE, "s", "")
    query = external_query(
        template("<<.LabelMatchers>>."), source, namespace="", selector=LabelSelector.parse(selector)
    )
    assert query == f"{matchers}."


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a>5", '">" in the metric selector is not supported'),
        ("a<5", '"<" in the metric selector is not supported'),
        ("app.kubernetes.io/name=x", '"app.kubernetes.io/name" in the metric selector is not supported'),
        ("9a", '"9a" in the metric selector is not supported'),
    ],
)
def test_selector_that_promql_cannot_express_is_refused(selector: str, message: str) -> None:
    with pytest.raises(SelectorNotSupported) as refused:
        pods("<<.LabelMatchers>>", "a", selector=selector)
    assert message in str(refused.value)


def test_label_values_by_name() -> None:
    source = (
        '<<index .LabelValuesByName "pod">> <<index .LabelValuesByName "namespace">> <<.GroupBySlice>> <<.GroupBy>>'
    )
    assert pods(source, "a", "b") == "a|b shop [pod] pod"


def test_names_are_escaped_for_the_quotes_of_a_template() -> None:
    hostile = "a\"'`\\b\n"
    assert pods("<<.LabelMatchers>>", hostile, namespace="") == 'pod="a\\"\'`\\\\b\\n"'
    assert pods('<<index .LabelValuesByName "pod">>', hostile) == r"a\x22\x27\x60\\b\n"


@pytest.mark.parametrize("source", ["<<if .GroupBy>> \n<<end>>", "<<index .GroupBySlice 3>>"])
def test_template_without_a_query_raises_query_error(source: str) -> None:
    with pytest.raises(QueryError, match="metricsQuery"):
        pods(source, "a")


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=3), st.text(max_size=12))
def test_any_request_gives_a_query_or_is_refused(namespace: str, names: list[str], selector: str) -> None:
    try:
        query = pods("<<.LabelMatchers>>", *names, namespace=namespace, selector=selector)
    except (SelectorError, SelectorNotSupported):
        return
    assert "\n" not in query


NAMES = st.lists(st.text("ab.-|(\\", min_size=1, max_size=6), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["web-0"], "web-0"),
        (["web-0", "web-1"], "web-(0|1)"),
        (["web-1", "web-0", "web-1"], "web-(0|1)"),
        (["web-0", "db-0"], "db-0|web-0"),
        (["web", "web-0"], "web(|-0)"),
        (["ax", "ay"], "ax|ay"),  # a group would save nothing
        (["web-a-0", "web-a-1", "web-b-0", "web-b-1"], "web-(a-0|a-1|b-0|b-1)"),
        (["a.b.c.0", "a.b.c.1"], r"a\.b\.c\.(0|1)"),
    ],
)
def test_common_prefixes_are_factored_out(names: list[str], expression: str) -> None:
    assert alternation(names) == expression


@given(NAMES, NAMES)
def test_alternation_matches_exactly_the_names(names: list[str], others: list[str]) -> None:
    expression = re.compile(alternation(names))
    for name in {*names, *others, *(name[:-1] for name in names), *(f"{name}a" for name in names)}:
        assert (expression.fullmatch(name) is not None) == (name in names)


@given(NAMES)
def test_alternation_compiles_in_go(names: list[str]) -> None:
    GoRegex(alternation(names))


def test_alternation_of_a_large_deployment_is_short() -> None:
    names = [f"checkout-service-7d9f8b6c5d-{number:05x}" for number in range(3000)]
    assert len(alternation(names)) < len("|".join(names)) / 6


def test_alternation_of_the_longest_names_compiles() -> None:
    names = ["abcd" * n for n in range(1, 64)]
    expression = re.compile(alternation(names))
    assert all(expression.fullmatch(name) for name in names)
