"""What rules made of series, and why a metric is or is not there: with canned series, and with a real Prometheus."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import textwrap
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from adapter.cli import main
from adapter.commands.printing import print_explanation, print_report
from adapter.diagnosis.check import check
from adapter.diagnosis.explain import Target, TargetError, explain
from adapter.diagnosis.probe import Probe, Wanted
from adapter.diagnosis.report import (
    Example,
    Explanation,
    Finding,
    MetricReport,
    Report,
    RuleReport,
    SeriesReport,
    Severity,
    Value,
)
from adapter.metrics.objects import ListedObjects
from adapter.planning.coalescing_costs import Pause
from adapter.prometheus import PrometheusError, PrometheusQueryError, PrometheusUnavailable, Series, Vector
from adapter.rules import parse_rules
from adapter.security.request_info import Query
from adapter.serving.debug_pages import DebugPages
from kube.deadlines import NO_DEADLINE
from kube.selectors import LabelSelector
from kube.status import StatusError
from playground.prometheus import PrometheusServer, openmetrics
from playground.prometheus import Series as Loaded
from tests.adapter.metrics_bed import DATA, CannedPrometheus, MetricsBed, metrics_bed, objects, series, vector
from tests.adapter.serving import served_adapter

RULES = """
rules:
- seriesQuery: '{job="first"}'
  seriesFilters: [{isNot: ^secret}]
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$, as: '${1}_per_second'}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
- seriesQuery: 'errors{job="second"}'
  resources: {overrides: {pod: {resource: pod}, namespace: {resource: namespace}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: '{job="outside"}'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (queue)
"""
SELECTORS = {"first": '{job="first"}', "second": 'errors{job="second"}', "outside": '{job="outside"}'}
POD = {"namespace": "shop", "pod": "web-0"}
Found = Mapping[str, tuple[Series, ...] | PrometheusError]


@asynccontextmanager
async def bed(folder: Path, found: Found, rules: str = RULES) -> AsyncIterator[MetricsBed]:
    """The data path, listed; `found` has the series of each rule, or the error that listing them gives."""
    canned = CannedPrometheus(found={SELECTORS[rule]: listed for rule, listed in found.items()})
    async with metrics_bed(folder, parse_rules(rules, source="rules.yaml"), canned) as opened:
        await opened.catalog.relist()
        yield opened


def probe_of(opened: MetricsBed) -> Probe:
    return Probe(opened.catalog, opened.prometheus, ListedObjects(opened.client), opened.mapper)


async def checked(opened: MetricsBed, *, examples: int = 0) -> Report:
    return await check(opened.catalog, opened.mapper, probe_of(opened), knows_cluster=True, examples=examples)


async def explained(opened: MetricsBed, target: str, **wanted: Any) -> Explanation:
    return await explain(
        Target.parse(target),
        Wanted(**wanted),
        catalog=opened.catalog,
        lookup=opened.mapper,
        probe=probe_of(opened),
    )


def said(report: Report) -> list[tuple[str, str, str]]:
    return [(one.severity.value, one.code, one.where) for one in report.findings]


PODS = {"first": (series("hits_total", "namespace", "pod"),)}
ALL_FOUND = {
    **PODS,
    "second": (series("errors", "namespace", "pod"),),
    "outside": (series("queue_depth", "ns", "queue"),),
}


async def test_a_good_report_names_series_resources_and_metrics(tmp_path: Path) -> None:
    async with bed(tmp_path, ALL_FOUND) as opened:
        report = await checked(opened)
    assert report.findings == ()
    first = report.rules[0]
    assert [(one.name, one.labels) for one in first.series] == [
        ("hits_total", {"namespace": "namespaces", "pod": "pods"})
    ]
    assert [one.metric for one in first.metrics] == ["namespaces/hits_per_second", "pods/hits_per_second"]
    assert [one.metric for one in report.rules[2].metrics] == ["queue_depth"]


@pytest.mark.parametrize(
    ("found", "finding", "words"),
    [
        pytest.param(
            {"first": ()},
            ("warning", "no-series", "rules[0]"),
            "no series with a sample in the last 2m0s",
            id="nothing",
        ),
        pytest.param(
            {"first": (series("secret_total", "pod"), series("hits", "pod"))},
            ("warning", "all-left-out", "rules[0]"),
            "name.matches, seriesFilters[0].isNot leaves out all 2 series",
            id="all left out",
        ),
        pytest.param(
            {"first": (series("hits_total", "pod_name", "le"),)},
            ("error", "no-resource", "rules[0]"),
            "series hits_total: `le` means le, which the cluster does not have",
            id="labels mean no resource",
        ),
        pytest.param(
            {"second": (series("errors", "pod_name"),)},
            ("error", "no-resource", "rules[1]"),
            "none of its labels (`pod_name`) maps to a resource; add an override",
            id="labels mean nothing",
        ),
        pytest.param(
            {"first": (series("hits_total", "pod"), series("other_total", "le"))},
            ("warning", "no-resource", "rules[0]"),
            "series other_total",
            id="one series among good ones",
        ),
        pytest.param(
            {"first": (series("errors_total", "namespace", "pod"),), "second": (series("errors_per_second", "pod"),)},
            ("warning", "overlap", "rules[0]"),
            "pods/errors_per_second of errors_total: also made by rules[1], which wins",
            id="overlap",
        ),
    ],
)
async def test_what_is_wrong_with_what_was_found(
    tmp_path: Path, found: Found, finding: tuple[str, str, str], words: str
) -> None:
    async with bed(tmp_path, {**ALL_FOUND, **found}) as opened:
        report = await checked(opened)
    assert said(report) == [finding]
    assert words in report.findings[0].message


async def test_series_that_a_query_does_not_name_do_not_overlap(tmp_path: Path) -> None:
    named = RULES.replace("{matches: ^(.*)_total$, as: '${1}_per_second'}", "{matches: '^', as: hits}")
    both = {"first": (series("hits_total", "namespace", "pod"), series("bytes_total", "namespace", "pod"))}
    async with bed(tmp_path, {**ALL_FOUND, **both}, named) as opened:
        report = await checked(opened)
    assert said(report) == [("warning", "overlap", "rules[0]")], "one of the two is taken"
    constant = named.replace("rate(<<.Series>>{", "rate(http_requests_total{")
    async with bed(tmp_path, {**ALL_FOUND, **both}, constant) as opened:
        report = await checked(opened)
    assert report.findings == (), "whichever is taken, it is the same query"


async def test_rules_that_cannot_be_listed(tmp_path: Path) -> None:
    failing: Found = {**ALL_FOUND, "first": PrometheusUnavailable("refused")}
    async with bed(tmp_path, failing) as opened:
        report = await checked(opened)
        explanation = await explained(opened, "pods/hits_per_second")
    assert said(report) == [("error", "not-listed", "rules[0]")]
    assert not report.rules[0].listed
    assert "rules[0] cannot be listed: refused" in explanation.reasons


async def test_no_label_for_namespaces(tmp_path: Path) -> None:
    rules = RULES.replace(", namespace: {resource: namespace}", "").replace("{ns: {resource: namespace}}", "{}")
    async with bed(tmp_path, ALL_FOUND, rules) as opened:
        report = await checked(opened)
    assert said(report) == [
        ("error", "no-namespace-label", "rules[1]"),
        ("error", "no-namespace-label", "externalRules[0]"),
    ]


async def test_examples_ask_as_an_hpa_does(tmp_path: Path) -> None:
    async with bed(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 1.5))
        report = await checked(opened, examples=5)
    example = report.rules[0].metrics[1].example
    assert example is not None
    assert (example.of, example.problem) == ("shop/web-0", "")
    assert example.queries == ('sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)',)
    assert [(one.of, one.value) for one in example.values] == [("shop/web-0", "1500m")]
    assert 'topk(1,hits_total{pod!="",namespace!=""})' in opened.prometheus.queries


async def test_resource_rules_are_asked_for_one_of_all_objects(tmp_path: Path) -> None:
    rules = (DATA / "rules/resource.yaml").read_text()
    async with bed(tmp_path, {}, rules) as opened:
        opened.prometheus.result = vector(({"pod": "web-0", "container": "app"}, 0.25))
        report = await checked(opened, examples=1)
    assert [one.rule for one in report.rules][:2] == ["resourceRules.cpu.containerQuery", "resourceRules.cpu.nodeQuery"]
    example = report.rules[0].metrics[0].example
    assert example is not None
    assert example.queries == (
        'sum by (pod,container) (rate(container_cpu_usage_seconds_total{container!="",pod="web-0"}[5m]))',
    )
    assert opened.prometheus.queries[0] == (
        "sum by (pod,container,namespace) (rate(container_cpu_usage_seconds_total"
        '{container!="",namespace=~".+",pod=~".+"}[5m]))'
    )
    assert [(one.of, one.value) for one in example.values] == [("web-0", "250m")]
    assert said(report) == [
        ("warning", "no-value", "resourceRules.cpu.nodeQuery"),
        ("warning", "no-value", "resourceRules.memory.nodeQuery"),
    ]


async def test_a_query_that_prometheus_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    async with bed(tmp_path, ALL_FOUND) as opened:
        opened.prometheus.result = PrometheusQueryError("Prometheus answered with status 400: parse error")
        report = await checked(opened, examples=1)
    assert {one.code for one in report.findings} == {"no-value"}
    assert "parse error" in report.findings[0].message


async def test_a_metric_that_is_there(tmp_path: Path) -> None:
    async with bed(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 2.0))
        named = await explained(opened, "pods/hits_per_second", namespace="shop", name="web-0")
        assert opened.prometheus.queries == ['sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)']
        opened.api.answers["/api/v1/namespaces/shop/pods"] = objects("web-0")
        selector, port = LabelSelector.parse("app=web"), LabelSelector.parse("port=80")
        selected = await explained(
            opened, "pod/hits_per_second", namespace="shop", selector=selector, metric_selector=port
        )
    assert (named.rule, named.series, named.has_value) == ("rules[0]", "hits_total", True)
    assert selected.target == "pods/hits_per_second"
    assert selected.example is not None
    assert 'port="80"' in selected.example.queries[0]


async def test_an_external_metric(tmp_path: Path) -> None:
    async with bed(tmp_path, ALL_FOUND) as opened:
        opened.prometheus.result = vector(({"queue": "mails", "ns": "shop"}, 3.0))
        explanation = await explained(opened, "external/queue_depth")
    assert explanation.example is not None
    assert explanation.example.queries == ('max(queue_depth{ns="shop"}) by (queue)',)
    assert [(one.of, one.value) for one in explanation.example.values] == [("ns=shop,queue=mails", "3")]


async def test_who_wins_an_overlap(tmp_path: Path) -> None:
    found = {**ALL_FOUND, "second": (series("hits_per_second", "namespace", "pod"),)}
    async with bed(tmp_path, found) as opened:
        explanation = await explained(opened, "pods/hits_per_second")
    assert (explanation.rule, explanation.hidden) == ("rules[1]", ("rules[0] (of hits_total)",))


@pytest.mark.parametrize(
    ("found", "target", "reason"),
    [
        pytest.param(
            {"first": (series("hits_total", "namespace", "pod_name"),)},
            "pods/hits_per_second",
            "series hits_total is found by rules[0], but no label maps to pods: those that map to resources are"
            " `namespace` (namespaces), the others `pod_name`; add an override for the label with the object's name",
            id="no label",
        ),
        pytest.param(
            {"first": (series("secret_hits_total", "pod"),)},
            "pods/secret_hits_per_second",
            "series secret_hits_total is found by rules[0] and left out by its seriesFilters[0].isNot",
            id="left out",
        ),
        pytest.param(
            {},
            "pods/hits_total",
            "series hits_total is found by rules[0] and called hits_per_second in the API",
            id="another name",
        ),
        pytest.param(
            {"second": ()},
            "pods/errors",
            'rules[1] would make it, but finds no series with a sample in the last 2m0s: errors{job="second"}',
            id="no series",
        ),
        pytest.param({}, "unicorns/hits_per_second", "there is no resource unicorns", id="no resource"),
        pytest.param({}, "pods/nothing", "no rule makes a metric called nothing", id="nothing like it"),
    ],
)
async def test_why_a_metric_is_not_there(tmp_path: Path, found: Found, target: str, reason: str) -> None:
    async with bed(tmp_path, {**ALL_FOUND, **found}) as opened:
        explanation = await explained(opened, target)
    assert (explanation.rule, explanation.has_value) == ("", False)
    assert explanation.reasons == (reason,)


async def test_suggestions_and_series_that_no_rule_finds(tmp_path: Path) -> None:
    async with bed(tmp_path, ALL_FOUND) as opened:
        assert "pods/hits_per_second" in (await explained(opened, "pods/hit_per_second")).suggestions
        assert (await explained(opened, "services/errors")).suggestions[:2] == ("pods/errors", "namespaces/errors")
        opened.prometheus.result = vector(({"__name__": "sales_total"}, 1.0))
        explanation = await explained(opened, "pods/sales_per_second")
    assert explanation.reasons == ("Prometheus has series sales_total, but no seriesQuery finds it",)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (Vector(()), "the query finds nothing now"),
        (vector(({"job": "x"}, 1.0)), "the query's result has no value for the object: it has `job`"),
    ],
)
async def test_why_there_is_no_value(tmp_path: Path, result: Vector, problem: str) -> None:
    async with bed(tmp_path, PODS) as opened:
        opened.prometheus.result = result
        explanation = await explained(opened, "pods/hits_per_second", namespace="shop", name="web-0")
    assert explanation.reasons == (problem,)


@pytest.mark.parametrize("text", ["pods", "pods/", "/x", "a/b/c", ""])
def test_what_names_no_metric(text: str) -> None:
    with pytest.raises(TargetError, match="write RESOURCE/METRIC"):
        Target.parse(text)


async def test_debug_pages_are_the_same_findings(tmp_path: Path) -> None:
    async with bed(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 2.0))
        pages = DebugPages(opened.catalog, opened.mapper, probe_of(opened))

        async def page(*segments: str, **query: str) -> Report | Explanation:
            return await pages.answer(segments, Query(tuple(query.items())), deadline=NO_DEADLINE)

        report = await page("rules", examples="0")
        assert isinstance(report, Report)
        assert [one.rule for one in report.rules] == ["rules[0]", "rules[1]", "externalRules[0]"]
        explanation = await page("metrics", "pods", "hits_per_second", namespace="shop", name="web-0")
        assert isinstance(explanation, Explanation)
        assert explanation.has_value
        for segments, query, code in [
            (("nothing",), {}, 404),
            (("metrics", "pods"), {}, 404),
            (("rules",), {"examples": "-1"}, 400),
            (("metrics", "pods", "x"), {"labelSelector": "a in"}, 400),
        ]:
            with pytest.raises(StatusError) as error:
                await page(*segments, **query)
            assert error.value.code == code


async def test_debug_is_for_those_who_may_get_the_path(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, bed(tmp_path, PODS) as opened:
        pages = DebugPages(opened.catalog, opened.mapper, probe_of(opened))
        adapter.debug.pages = pages
        bob, eve = (adapter.authorities.clients.issue(name, client=True) for name in ("bob", "eve"))
        reply = await adapter.ask("/debug/rules?examples=0", certificate=bob)
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.json["rules"][0]["series"][0]["name"] == "hits_total"
        refused = await adapter.ask("/debug/rules", certificate=eve)
        assert refused.status == 403
        asked = [review["spec"] for review in adapter.api.reviews if review["kind"] == "SubjectAccessReview"]
        assert asked[-1]["nonResourceAttributes"] == {"path": "/debug/rules", "verb": "get"}
        assert (await adapter.ask("/debug/rules", certificate=bob, method="POST")).status == 405


CLI_RULES = """
rules:
- seriesQuery: 'hits_total{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$, as: '${1}_per_second'}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"""


LIST = CLI_RULES.partition("rules:\n")[2]


def indented(text: str, spaces: int) -> str:
    """A text further to the right, from a line of its own on."""
    return "\n" + textwrap.indent(text, " " * spaces)


@pytest.mark.e2e
async def test_both_commands_with_a_real_prometheus(tmp_path: Path) -> None:
    start = time.time() - 600
    points = [(start + step, 10.0 * step) for step in range(0, 1201, 10)]
    (tmp_path / "rules.yaml").write_text(CLI_RULES)
    async with PrometheusServer(tmp_path / "data", samples=openmetrics([Loaded("hits_total", POD, points)])) as server:

        def run(*arguments: str) -> tuple[int, str]:
            flags = [f"--config={tmp_path / 'rules.yaml'}", f"--prometheus-url={server.url}", "--metrics-max-age=1h"]
            result = CliRunner().invoke(main, [*arguments, *flags])
            assert result.exception is None or isinstance(result.exception, SystemExit), result.output
            return result.exit_code, result.output

        status, text = await asyncio.to_thread(run, "check")
        assert status == 0
        [row] = [line for line in text.splitlines() if "pods/hits_per_second" in line]
        assert 'sum(rate(hits_total{namespace="shop",pod="web-0"}[5m])) by (pod)' in row
        assert text.endswith("0 errors, 0 warnings\n")
        status, text = await asyncio.to_thread(run, "check", "-o", "json")
        assert json.loads(text)["rules"][0]["metrics"][1]["example"]["of"] == "shop/web-0"
        status, text = await asyncio.to_thread(run, "explain", "pods/hits_per_second", "-n", "shop")
        assert (status, text.splitlines()[0]) == (0, "pods/hits_per_second is made by rules[0] of series hits_total")
        status, text = await asyncio.to_thread(run, "explain", "pods/hit_per_second")
        assert status == 1
        assert "did you mean pods/hits_per_second" in text


class Merging(CannedPrometheus):
    """Says how long queries take; those for all objects can fail."""

    fails = False
    merged_seconds = 12.0

    async def instant(self, query: str, **arguments: Any) -> Vector:
        if '=~".+"' in query:
            if self.fails:
                raise PrometheusQueryError("too many samples")
            return dataclasses.replace(vector((POD, 1.0)), seconds=self.merged_seconds)
        return dataclasses.replace(vector((POD, 1.0)), seconds=0.02)


@pytest.mark.parametrize(
    ("fails", "seconds", "findings"),
    [
        (True, 0.0, [("warning", "merge-fails", "rules[0]")]),
        (False, 12.0, [("warning", "merge-costs", "rules[0]")]),
        (False, 0.9, []),
    ],
)
async def test_the_query_for_all_objects_is_tried_and_compared(
    tmp_path: Path, fails: bool, seconds: float, findings: list[tuple[str, str, str]]
) -> None:
    prometheus = Merging(found={SELECTORS["first"]: PODS["first"], SELECTORS["second"]: (), SELECTORS["outside"]: ()})
    prometheus.fails, prometheus.merged_seconds = fails, seconds
    async with metrics_bed(tmp_path, parse_rules(RULES, source="rules.yaml"), prometheus) as opened:
        await opened.catalog.relist()
        report = await checked(opened, examples=1)
    assert [one for one in said(report) if one[1].startswith("merge")] == findings


async def test_what_a_running_adapter_does_not_merge_is_on_its_page(tmp_path: Path) -> None:
    async with bed(tmp_path, ALL_FOUND) as opened:
        paused = [("rules[0]", "hits_total", Pause.COST), ("rules[0]", "hits_total", Pause.COST)]
        pages = DebugPages(opened.catalog, opened.mapper, probe_of(opened), lambda: paused)
        report = await pages.answer(("rules",), Query.parse("examples=0"), deadline=NO_DEADLINE)
    assert isinstance(report, Report)
    [finding] = report.findings
    assert (finding.code, finding.where) == ("merging-paused", "rules[0]")
    assert finding.message == "requests are sent alone for a while: the coalesced query costs more than it saves"


NARROW = Report(
    asked_prometheus=True,
    findings=(
        Finding(severity=Severity.ERROR, code="bad", where="rules[0]", message="it is wrong " * 8, about="up"),
        Finding(severity=Severity.WARNING, code="odd", where="rules[0].name.as", message="why?", about="up"),
    ),
    rules=(
        RuleReport(
            rule="rules[0]",
            about="up",
            series=(
                SeriesReport(name="up", metric="up", labels={"pod": "pods"}),
                SeriesReport(name="down", left_out_by="name.matches"),
            ),
            metrics=(
                MetricReport(
                    metric="pods/up",
                    series="up",
                    merges=True,
                    example=Example(of="shop/web-0", queries=("sum(up)",), values=(Value(of="shop/web-0", value="1"),)),
                ),
                MetricReport(metric="namespaces/up", series="up", hidden_by="rules[1]"),
            ),
        ),
        RuleReport(rule="rules[1]", about="sideways"),
    ),
)


def test_what_does_not_fit_a_terminal_is_a_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_report(NARROW, plain=False)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "rules[0]  up",
        "  up: pod=pods",
        "    pods/up (merges)",
        "      shop/web-0 = 1",
        "      sum(up)",
        "    namespaces/up (overlapped by rules[1])",
        "  down: left out by name.matches",
        "rules[1]  sideways",
        "  no series",
        "",
        "rules[0]  up",
        "  error: it is wrong it is wrong it is wrong it is wrong it",
        "  is wrong it is wrong it is wrong it is wrong  [bad]",
        "  warning: name.as: why? [odd]",
        "1 error, 1 warning",
    ]
    monkeypatch.setenv("COLUMNS", "200")
    print_report(NARROW, plain=False)
    wide = capsys.readouterr().out.splitlines()
    assert wide[0].startswith("RULE ")
    assert wide[1].split() == ["rules[0]", "up", "pod=pods", "pods/up", "yes", "shop/web-0", "1", "sum(up)"]


def invoke(folder: Path, rules: str, *arguments: str) -> tuple[int, str]:
    path = folder / "rules.yaml"
    path.write_text(rules)
    result = CliRunner().invoke(main, [*arguments, f"--config={path}"])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_exit_status_of_check(tmp_path: Path) -> None:
    warned = CLI_RULES.replace("{<<.LabelMatchers>>}", "")
    broken = CLI_RULES.replace("^(.*)_total$", "^(.*)_count$")
    assert invoke(tmp_path, CLI_RULES, "check") == (0, "0 errors, 0 warnings\n")
    assert invoke(tmp_path, warned, "check")[0] == 0
    assert invoke(tmp_path, warned, "check", "--strict")[0] == 1
    status, text = invoke(tmp_path, broken, "check")
    assert status == 1
    assert text.startswith(
        'rules[0]  hits_total{namespace!="",pod!=""}\n  error: name.matches: \'^(.*)_count$\' matches no series'
    )
    status, text = invoke(tmp_path, "rules: [{seriesQuery: a}]", "check")
    assert (status, text.count("\n")) == (1, 1)
    status, text = invoke(tmp_path, broken, "check", "-o", "json")
    [finding] = json.loads(text)["findings"]
    assert (finding["code"], finding["about"]) == ("dead-filter", 'hits_total{namespace!="",pod!=""}')


def test_queries_of_several_lines_are_printed_on_one(capsys: pytest.CaptureFixture[str]) -> None:
    query = "sum by (pod) (\n  # all of them\n  rate(hits_total[5m])\n)\n"
    example = Example(of="shop/web-0", queries=(query,), values=(Value(of="shop/web-0", value="1"),))
    metric = MetricReport(metric="pods/hits", series="hits_total", example=example)
    rule = RuleReport(rule="rules[0]", about="hits_total{\n}", metrics=(metric,))
    print_report(Report(asked_prometheus=True, findings=(), rules=(rule,)), plain=True)
    _, row, *others = capsys.readouterr().out.splitlines()
    assert row.endswith("shop/web-0  1      sum by (pod) ( rate(hits_total[5m]) )")
    assert others == ["", "0 errors, 0 warnings"]
    print_report(Report(asked_prometheus=True, findings=(), rules=(rule,)), plain=False)
    assert "hits_total{ }" in capsys.readouterr().out
    print_explanation(Explanation(target="pods/hits", rule="rules[0]", example=example), plain=True)
    assert capsys.readouterr().out.splitlines()[1] == "  query  sum by (pod) ( rate(hits_total[5m]) )"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CLI_RULES, ""),
        (CLI_RULES + "---\n", ""),
        ("", ""),
        (
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: monitoring, name: adapter-config}\n"
                f"data:\n  config.yaml: |{indented(CLI_RULES, 4)}"
            ),
            "ConfigMap monitoring/adapter-config: data.config.yaml",
        ),
        (
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"
                'data: {prometheus.yml: "groups:\\n- rules: [!x {}]"}\n---\n'
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: adapter-config}\n"
                f"data:\n  config.yaml: |{indented(CLI_RULES, 4)}"
            ),
            "ConfigMap adapter-config: data.config.yaml",
        ),
        (
            (
                "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n"
                f"  data:\n    config.yaml: |{indented(CLI_RULES, 6)}"
            ),
            "ConfigMap a: data.config.yaml",
        ),
        (
            f"prometheus: {{url: 'http://x'}}\nrules:\n  default: false\n  custom:{indented(LIST, 2)}",
            "values of a Helm chart, rules; rules[N] is custom[N], externalRules[N] external[N]",
        ),
        (
            f"prometheus-adapter:\n  rules:\n    custom:{indented(LIST, 4)}",
            (
                "values of a Helm chart, prometheus-adapter, rules; rules[N] is custom[N], externalRules[N] external[N]"
                "; the chart's default rules stand before these, and are not here"
            ),
        ),
        (
            (
                "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {namespace: m, name: pa}\n"
                f"spec:\n  values:\n    rules:\n      default: false\n      custom:{indented(LIST, 6)}"
            ),
            "HelmRelease m/pa: spec.values, rules; rules[N] is custom[N], externalRules[N] external[N]",
        ),
        (
            (
                "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: pa}\n"
                f"spec:\n  source:\n    helm:\n      values: |\n        rules:\n          custom:{indented(LIST, 10)}"
            ),
            (
                "Application pa: spec.source.helm.values, rules; rules[N] is custom[N], externalRules[N] external[N];"
                " the chart's default rules stand before these, and are not here"
            ),
        ),
    ],
)
def test_rules_are_found_in_what_people_have_at_hand(tmp_path: Path, text: str, found: str) -> None:
    status, output = invoke(tmp_path, text, "check", "-o", "json")
    report = json.loads(output)
    assert (status, report["found"]) == (0, found)
    assert [one["code"] for one in report["findings"]] == ["no-rules"] * (not text)
    broken = text.replace("^(.*)_total$", "^(.*)_count$")
    status, output = invoke(tmp_path, broken, "check")
    assert (status, "[dead-filter]" in output) == ((1, True) if text else (0, False))
    assert output.startswith(f"found in {found}\n" if found else "rules[0]  " if text else "")


def test_several_rules_files_in_one_manifest(tmp_path: Path) -> None:
    one, other = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  a: |{indented(CLI_RULES, 4)}---\n"
        for name in ("one", "two")
    )
    status, text = invoke(tmp_path, one + other.replace("^(.*)_total$", "^(.*)_count$"), "check")
    assert status == 1
    assert [line for line in text.splitlines() if line.startswith("found")] == [
        "found in ConfigMap one: data.a",
        "found in ConfigMap two: data.a",
    ]
    status, text = invoke(tmp_path, one + other, "explain", "pods/x", "--prometheus-url=http://x")
    assert status == 2
    assert "several rules files: ConfigMap one: data.a and ConfigMap two: data.a" in " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: a}\n", "there are no rules in it, but Pod a"),
        (
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {config.yaml: 'rules: {}'}\n",
            "ConfigMap a: data.config.yaml: rules: expected a list, got a mapping",
        ),
        ("prometheus: {}\nrulez: []\n", "unknown key `prometheus`"),
    ],
)
def test_files_without_rules_say_what_is_in_them(tmp_path: Path, text: str, message: str) -> None:
    status, output = invoke(tmp_path, text, "check")
    assert status == 1
    assert message in output


def test_a_maximum_age_alone_is_enough_for_check(tmp_path: Path) -> None:
    assert invoke(tmp_path, CLI_RULES, "check", "--metrics-max-age=5m")[0] == 0
    refused = invoke(tmp_path, CLI_RULES, "check", "--metrics-max-age=5m", "--metrics-relist-interval=6m")
    assert refused[0] == 2
    status, text = invoke(tmp_path, CLI_RULES, "serve", "--metrics-max-age=5m")
    assert (status, "max age must not be less than relist interval" in text) == (2, True)


def test_an_outage_is_a_finding(tmp_path: Path) -> None:
    status, text = invoke(tmp_path, CLI_RULES, "check", "--prometheus-url=http://127.0.0.1:1")
    assert status == 1
    assert "its series cannot be listed: Prometheus cannot be reached: Connection refused" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "pods/x"], "say where Prometheus is: --prometheus-url"),
        (["explain", "pods", "--prometheus-url=http://x"], "names no metric; write RESOURCE/METRIC"),
        (["explain", "pods/x", "--prometheus-url=http://x", "--name=a", "-l", "b=c"], "not both"),
        (["explain", "pods/x", "--prometheus-url=http://x", "-l", "b in"], "Invalid value for '-l'"),
    ],
)
def test_wrong_flags(tmp_path: Path, arguments: list[str], message: str) -> None:
    status, text = invoke(tmp_path, CLI_RULES, *arguments)
    assert status == 2
    assert message in text
