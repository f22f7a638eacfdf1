"""`check`: findings and examples, with canned series."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from adapter.prometheus import PrometheusQueryError, Vector
from adapter.rules import parse_rules
from tests.adapter.diagnosis_env import (
    ALL_FOUND,
    POD,
    PODS,
    RULES,
    SELECTORS,
    Found,
    checked,
    codes,
    env,
    explained,
)
from tests.adapter.metrics_env import DATA, CannedPrometheus, metrics_env, series, vector

RATE = "rate(<<.Series>>{<<.LabelMatchers>>}[2m])"


async def test_report_lists_series_resources_and_metrics(tmp_path: Path) -> None:
    async with env(tmp_path, ALL_FOUND) as opened:
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
async def test_findings_about_listed_series(
    tmp_path: Path, found: Found, finding: tuple[str, str, str], words: str
) -> None:
    async with env(tmp_path, {**ALL_FOUND, **found}) as opened:
        report = await checked(opened)
    assert codes(report) == [finding]
    assert words in report.findings[0].message


async def test_query_without_series_name_does_not_overlap_with_itself(tmp_path: Path) -> None:
    named = RULES.replace("{matches: ^(.*)_total$, as: '${1}_per_second'}", "{matches: '^', as: hits}")
    both = {"first": (series("hits_total", "namespace", "pod"), series("bytes_total", "namespace", "pod"))}
    async with env(tmp_path, {**ALL_FOUND, **both}, named) as opened:
        report = await checked(opened)
    assert codes(report) == [("warning", "overlap", "rules[0]")], "one of the two is taken"
    constant = named.replace("rate(<<.Series>>{", "rate(http_requests_total{")
    async with env(tmp_path, {**ALL_FOUND, **both}, constant) as opened:
        report = await checked(opened)
    assert report.findings == (), "whichever is taken, it is the same query"


async def test_example_is_queried_as_for_an_hpa(tmp_path: Path) -> None:
    async with env(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 1.5))
        report = await checked(opened, examples=5)
    example = report.rules[0].metrics[1].example
    assert example is not None
    assert (example.of, example.problem) == ("shop/web-0", "")
    assert example.queries == ('sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)',)
    assert [(one.of, one.value) for one in example.values] == [("shop/web-0", "1500m")]
    assert 'topk(1,hits_total{pod!="",namespace!=""})' in opened.prometheus.queries


async def test_several_values_of_one_object_are_an_error_with_the_corrected_query(tmp_path: Path) -> None:
    rules = RULES.replace("sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)", RATE)
    async with env(tmp_path, PODS, rules) as opened:
        opened.prometheus.result = vector(({**POD, "code": "200"}, 60.0), ({**POD, "code": "500"}, 75.0))
        report = await checked(opened, examples=5)
        explanation = await explained(opened, "pods/hits_per_second")
    several = (
        "the query makes 2 values for shop/web-0, by `code`; the first (60) is taken, their sum is 135: aggregate them,"
        f" as in sum({RATE}) by (<<.GroupBy>>)"
    )
    findings = [one for one in report.findings if one.code == "several-values"]
    assert [(one.severity.value, one.where, one.message) for one in findings] == [
        ("error", "rules[0].metricsQuery", f"pods/hits_per_second: {several}")
    ]
    assert explanation.example is not None
    assert explanation.example.several == several


@pytest.mark.parametrize(("pods", "is_reported"), [("pod: {resource: pod}, ", False), ("", True)])
async def test_several_values_of_a_namespace_count_only_where_the_rule_makes_nothing_else(
    tmp_path: Path, pods: str, is_reported: bool
) -> None:
    resources = f"resources: {{overrides: {{{pods}namespace: {{resource: namespace}}}}}}"
    rules = f"rules: [{{seriesQuery: '{SELECTORS['first']}', {resources}, metricsQuery: '{RATE}'}}]"
    async with env(tmp_path, PODS, rules) as opened:
        opened.prometheus.result = vector((POD, 60.0), ({**POD, "pod": "web-1"}, 75.0))
        report = await checked(opened, examples=5)
    assert ("several-values" in {one.code for one in report.findings}) == is_reported


async def test_examples_are_of_other_resources_before_namespaces(tmp_path: Path) -> None:
    async with env(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 1.5))
        report = await checked(opened, examples=1)
    assert [one.metric for one in report.rules[0].metrics if one.example is not None] == ["pods/hits_per_second"]


async def test_resource_rules_have_an_example_of_one_pod(tmp_path: Path) -> None:
    rules = (DATA / "rules/resource.yaml").read_text()
    async with env(tmp_path, {}, rules) as opened:
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
    assert codes(report) == [
        ("warning", "no-value", "resourceRules.cpu.nodeQuery"),
        ("warning", "no-value", "resourceRules.memory.nodeQuery"),
    ]


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
async def test_coalesced_query_is_compared_with_the_single_one(
    tmp_path: Path, fails: bool, seconds: float, findings: list[tuple[str, str, str]]
) -> None:
    prometheus = Merging(found={SELECTORS["first"]: PODS["first"], SELECTORS["second"]: (), SELECTORS["outside"]: ()})
    prometheus.fails, prometheus.merged_seconds = fails, seconds
    async with metrics_env(tmp_path, parse_rules(RULES, source="rules.yaml"), prometheus) as opened:
        await opened.catalog.relist()
        report = await checked(opened, examples=1)
    assert [one for one in codes(report) if one[1].startswith("merge")] == findings
