"""The page about one rule."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
import yaml

from adapter.diagnosis.report import MetricReport, RuleReport, SeriesReport
from adapter.prometheus import PrometheusError, Series
from adapter.ui.formatting import rule_yaml
from adapter.ui.rule_page import series_view
from kube.api.status import StatusError
from kube.security.request_info import Target
from tests.adapter.diagnosis_env import ALL_FOUND, POD, RULES, SELECTORS
from tests.adapter.metrics_env import CannedPrometheus, series, vector
from tests.adapter.ui.env import element, pages_env, text_of

FOUND: dict[str, tuple[Series, ...] | PrometheusError] = {SELECTORS[name]: found for name, found in ALL_FOUND.items()}
RULE = "/rules/rules[0]"


def canned() -> CannedPrometheus:
    found = FOUND | {SELECTORS["first"]: (series("hits_total", "namespace", "pod", "tier"), series("secret_total"))}
    return CannedPrometheus(found=dict(found), result=vector((POD, 2.5)))


async def test_series_are_shown_with_labels_and_metrics_or_what_leaves_them_out(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        table = text_of(element(await env.get(RULE), "series").partition("</table>")[0])
    assert "hits_total namespace → namespaces pod → pods 1 other label tier : the cluster has no resource tier" in table
    assert "namespaces/hits_per_second pods/hits_per_second" in table
    assert "secret_total left out by seriesFilters[0].isNot" in table


async def test_examples_are_shown_with_promql_and_value(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        examples = text_of(element(await env.get(RULE), "examples").partition("<h2")[0])
    query = 'sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)'
    assert f"pods/hits_per_second of shop/web-0 2.5 shop/web-0 {query}" in examples


async def test_rule_that_hides_a_metric_is_named(tmp_path: Path) -> None:
    rule = (
        "- {seriesQuery: %s, resources: {template: <<.Resource>>}, name: {as: errors}, metricsQuery: '<<.Series>>'}\n"
    )
    rules = f"rules:\n{rule % 'errors_a'}{rule % 'errors_b'}"
    found = {name: (series(name, "namespace", "pod"),) for name in ("errors_a", "errors_b")}
    async with pages_env(tmp_path, rules, CannedPrometheus(found=dict(found))) as env:
        page = await env.get(RULE)
    assert "pods/errors hidden by rules[1]" in text_of(element(page, "series"))
    assert "also made by rules[1], which wins [overlap]" in text_of(element(page, "findings"))


async def test_findings_are_those_of_check_once_each(tmp_path: Path) -> None:
    prometheus = canned()
    prometheus.found[SELECTORS["first"]] = ()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        findings = text_of(element(await env.get(RULE), "findings").partition("<h2")[0])
    assert findings.count("its seriesQuery finds no series with a sample in the last 2m0s [no-series]") == 1


async def test_rule_is_shown_as_written_without_its_headers(tmp_path: Path) -> None:
    rules = RULES.replace("  name: {m", "  headers: {X-Token: hunter2}\n  name: {m")
    async with pages_env(tmp_path, rules, canned()) as env:
        page = await env.get(RULE)
    assert "metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)" in text_of(page)
    assert "hunter2" not in page
    assert "Its headers are not shown." in text_of(page)
    link = element(page, "main").partition('class="button" href="')[2].partition('"')[0]
    target = Target.parse(html.unescape(link))
    assert target.query.get("section") == "rules"
    [tried] = yaml.safe_load(target.query.get("rule"))
    assert tried["seriesQuery"] == '{job="first"}'
    assert "headers" not in tried


async def test_rule_as_yaml_is_the_same_rule(tmp_path: Path) -> None:
    entry = {"seriesQuery": "up", "as": "404", "on": "yes", "metricsQuery": "# a\nsum(x)\nby (y)\n", "list": ["a", "é"]}
    text = rule_yaml(entry)
    assert yaml.safe_load(text) == [entry]
    assert "  metricsQuery: |\n    # a\n    sum(x)\n" in text


async def test_unknown_rule_is_not_found(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        for path in ("/rules/rules[9]", "/rules/resourceRules", "/rules/x", "/rules"):
            with pytest.raises(StatusError) as error:
                await env.get(path)
            assert error.value.code == 404


async def test_page_of_resource_rules_has_an_example_of_each_query(tmp_path: Path) -> None:
    rule = (
        "{containerLabel: container, containerQuery: '%s(<<.LabelMatchers>>)', nodeQuery: '%s(<<.LabelMatchers>>)',"
        " resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}}"
    )
    rules = f"resourceRules:\n  cpu: {rule % ('a', 'b')}\n  memory: {rule % ('c', 'd')}\n  window: 1m\n"
    async with pages_env(tmp_path, rules, CannedPrometheus(result=vector((POD | {"node": "n1"}, 2.0)))) as env:
        assert "resourceRules : CPU and memory of pods and nodes" in await env.text("/")
        text = await env.text("/rules/resourceRules")
    assert 'resourceRules.memory.containerQuery pods of shop/web-0 2 shop/web-0 c(namespace="shop",pod="web-0")' in text
    assert 'resourceRules.cpu.nodeQuery nodes of n1 2 n1 b(node="n1")' in text


async def test_events_have_the_examples_of_now(tmp_path: Path) -> None:
    prometheus = canned()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        events = await env.events(f"{RULE}/events")
        first = await anext(events)
        assert all(f'id="{name}"' in first.data for name in ("facts", "findings", "examples", "series"))
        prometheus.result = vector((POD, 7.0))
        env.monotonic += 60
        second = await anext(events)
    assert "7 shop/web-0" in text_of(second.data)
    assert 'id="series"' not in second.data


def report(count: int) -> RuleReport:
    return RuleReport(
        "rules[0]",
        "x",
        series=tuple(SeriesReport(f"series_{number}") for number in range(count)),
        metrics=tuple(MetricReport(f"pods/metric_{number}", f"series_{number}") for number in range(count)),
    )


@pytest.mark.parametrize(
    ("page", "shown"), [(0, range(4)), (1, range(4)), (3, range(8, 10)), (10**6, range(8, 10)), (-1, range(4))]
)
def test_series_are_shown_in_pages(page: int, shown: range) -> None:
    view = series_view(report(10), page=page, rows=4)
    assert [row.series.name for row in view.rows if row.series] == [f"series_{number}" for number in shown]
    assert (view.pages, view.fitting, view.total) == (3, 10, 10)


def test_series_are_found_by_their_name_and_by_a_metric() -> None:
    for text in ("series_7", "METRIC_7"):
        [row] = series_view(report(10), text=text).rows
        assert row.series is not None
        assert (row.series.name, row.metrics[0].metric) == ("series_7", "pods/metric_7")
    assert series_view(report(10), text="none").rows == []
