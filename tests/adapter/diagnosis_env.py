"""A rules file with canned series, for tests of `check` and `explain`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from adapter.cli import main
from adapter.diagnosis.check import check
from adapter.diagnosis.explain import Target, explain
from adapter.diagnosis.probe import Probe, Selection
from adapter.diagnosis.report import Report
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import PrometheusError, Series
from adapter.rules import parse_rules
from kube.web.explanation import Explanation
from tests.adapter.metrics_env import CannedPrometheus, MetricsEnv, metrics_env, series

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


CLI_RULES = """
rules:
- seriesQuery: 'hits_total{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$, as: '${1}_per_second'}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"""


SELECTORS = {"first": '{job="first"}', "second": 'errors{job="second"}', "outside": '{job="outside"}'}


POD = {"namespace": "shop", "pod": "web-0"}


Found = Mapping[str, tuple[Series, ...] | PrometheusError]


PODS = {"first": (series("hits_total", "namespace", "pod"),)}


ALL_FOUND = {
    **PODS,
    "second": (series("errors", "namespace", "pod"),),
    "outside": (series("queue_depth", "ns", "queue"),),
}


@asynccontextmanager
async def env(folder: Path, found: Found, rules: str = RULES) -> AsyncIterator[MetricsEnv]:
    """The data path, listed; `found` has the series of each rule, or the error that listing them gives."""
    canned = CannedPrometheus(found={SELECTORS[rule]: listed for rule, listed in found.items()})
    async with metrics_env(folder, parse_rules(rules, source="rules.yaml"), canned) as opened:
        await opened.catalog.relist()
        yield opened


def probe_of(opened: MetricsEnv) -> Probe:
    return Probe(opened.catalog, opened.prometheus, ListedObjects(opened.client), opened.mapper)


async def checked(opened: MetricsEnv, *, examples: int = 0) -> Report:
    return await check(opened.catalog, opened.mapper, probe_of(opened), knows_cluster=True, examples=examples)


async def explained(opened: MetricsEnv, target: str, **selection: Any) -> Explanation:
    return await explain(
        Target.parse(target),
        Selection(**selection),
        catalog=opened.catalog,
        lookup=opened.mapper,
        probe=probe_of(opened),
    )


def codes(report: Report) -> list[tuple[str, str, str]]:
    return [(one.severity.value, one.code, one.where) for one in report.findings]


def invoke(folder: Path, rules: str, *arguments: str) -> tuple[int, str]:
    path = folder / "rules.yaml"
    path.write_text(rules)
    result = CliRunner().invoke(main, [*arguments, f"--config={path}"])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output
