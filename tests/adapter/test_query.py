"""The PromQL that rules make for requests."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.gotemplate import Template
from adapter.rules.query import QUERY_FIELDS, QueryError, SelectorNotSupported, custom_query, external_query
from kube.selectors import LabelSelector, SelectorError
from kube.status import StatusError
from tests.adapter.metrics_bed import DATA, custom_request, external_request, metrics_bed, packets

RECORDED = [json.loads(line) for line in (DATA / "queries.jsonl").read_text().splitlines()]
EVERYTHING = LabelSelector.parse("")


def template(source: str) -> Template:
    return Template(source, fields=QUERY_FIELDS)


def pods(source: str, *names: str, namespace: str = "shop", selector: str = "") -> str:
    return custom_query(
        template(source),
        series="packets",
        resource_label="pod",
        names=names,
        namespace_label="namespace",
        namespace=namespace,
        metric_selector=LabelSelector.parse(selector),
    )


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["title"])
async def test_queries_are_those_that_prometheus_adapter_was_recorded_to_send(
    case: dict[str, str], tmp_path: Path
) -> None:
    rules, prometheus = packets()
    async with metrics_bed(tmp_path, rules, prometheus) as bed:
        await bed.catalog.relist()
        selector = LabelSelector.parse(case["selector"])
        parts = case["path"].split("/")
        with contextlib.suppress(StatusError):  # 404: the canned Prometheus has no value for anybody
            if case["api"] == "external":
                await bed.external.values(
                    external_request(namespace=parts[1], metric=parts[2], selector=selector, seconds=5)
                )
            else:
                namespace, resource, name = ("", *parts[:2]) if len(parts) == 3 else (parts[1], *parts[2:4])
                if parts[2] == "metrics":
                    namespace, resource, name = "", "namespaces", parts[1]
                resource, _, group = resource.partition(".")
                await bed.custom.values(
                    custom_request(
                        resource=resource,
                        group=group,
                        namespace=namespace,
                        name=name,
                        metric=parts[-1],
                        metric_selector=selector,
                        seconds=5,
                    )
                )
        assert prometheus.queries == [case["promql"]]


def test_several_objects_are_a_regex_of_their_names() -> None:
    assert pods("<<.LabelMatchers>>", "a", "b-1") == 'namespace="shop",pod=~"a|b-1"'


def test_a_dot_in_a_name_is_a_dot() -> None:
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
def test_every_operator_of_a_selector_is_a_matcher(selector: str, matchers: str) -> None:
    query = external_query(template("<<.LabelMatchers>>."), series="s", metric_selector=LabelSelector.parse(selector))
    assert query == f"{matchers}."


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        ("a>5", '">" in the metric selector is not supported'),
        ("a<5", '"<" in the metric selector is not supported'),
        ("app.kubernetes.io/name=x", '"app.kubernetes.io/name" in the metric selector is not a Prometheus label name'),
        ("9a", '"9a" in the metric selector is not a Prometheus label name'),
    ],
)
def test_what_prometheus_has_no_word_for_is_the_clients_mistake(selector: str, says: str) -> None:
    with pytest.raises(SelectorNotSupported) as refused:
        pods("<<.LabelMatchers>>", "a", selector=selector)
    assert says in str(refused.value)


def test_values_are_there_by_name_too() -> None:
    source = (
        '<<index .LabelValuesByName "pod">> <<index .LabelValuesByName "namespace">> <<.GroupBySlice>> <<.GroupBy>>'
    )
    assert pods(source, "a", "b") == "a|b shop [pod] pod"


def test_no_name_can_end_the_quotes_that_a_template_puts_around_it() -> None:
    hostile = "a\"'`\\b\n"
    assert pods("<<.LabelMatchers>>", hostile, namespace="") == 'pod="a\\"\'`\\\\b\\n"'
    assert pods('<<index .LabelValuesByName "pod">>', hostile) == r"a\x22\x27\x60\\b\n"


@pytest.mark.parametrize("source", ["<<if .GroupBy>> \n<<end>>", "<<index .GroupBySlice 3>>"])
def test_a_template_that_makes_no_query_is_the_rules_mistake(source: str) -> None:
    with pytest.raises(QueryError, match="metricsQuery"):
        pods(source, "a")


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=3), st.text(max_size=12))
def test_no_request_does_worse_than_being_refused(namespace: str, names: list[str], selector: str) -> None:
    try:
        query = pods("<<.LabelMatchers>>", *names, namespace=namespace, selector=selector)
    except (SelectorError, SelectorNotSupported):
        return
    assert "\n" not in query
