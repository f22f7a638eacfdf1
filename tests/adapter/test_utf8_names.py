"""Names of series and labels with any characters, as Prometheus takes them since version 3."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from adapter.commands.rule_object_flags import RuleObjectOptions, rule_object_flags
from adapter.diagnosis.check import rule_results
from adapter.prometheus import Sample, Series, Vector
from adapter.promql import parse
from adapter.rules import parse_rules
from tests.adapter.metrics_env import CannedPrometheus, custom_request, external_request, metrics_env

RULES = """
rules:
- seriesQuery: '{__name__=~"http.*"}'
  resources: {overrides: {k8s.namespace.name: {resource: namespace}, k8s.pod.name: {resource: pod}}}
  metricsQuery: 'sum(rate(QUERY[2m])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{__name__=~"http.*"}'
  resources: {namespaced: false}
  metricsQuery: 'sum(QUERY)'
"""
QUOTED = '{"<<.Series>>",<<.LabelMatchers>>}'
UNQUOTED = "<<.Series>>{<<.LabelMatchers>>}"
LABELS = frozenset({"k8s.namespace.name", "k8s.pod.name"})
HOSTILE = ('http"} or {"a', "http'a", "http`a", "http\\", "http\na", "http\x1b[2J")


def prometheus(*names: str) -> CannedPrometheus:
    return CannedPrometheus(found={'{__name__=~"http.*"}': tuple(Series(name, LABELS) for name in names)})


@pytest.mark.parametrize("quoted", [QUOTED, '{__name__="<<.Series>>",<<.LabelMatchers>>}', "{`<< .Series >>`}"])
async def test_series_that_the_template_quotes_makes_metrics(tmp_path: Path, quoted: str) -> None:
    rules = parse_rules(RULES.replace("QUERY", quoted), source="rules.yaml")
    server = prometheus("http.requests", "http_requests", *HOSTILE)
    async with metrics_env(tmp_path, rules, server) as env:
        await env.catalog.relist()
        assert env.catalog.snapshot.external == ("http.requests", "http_requests")
        assert {info.metric for info in env.catalog.snapshot.custom} == {"http.requests", "http_requests"}
        server.result = Vector((Sample({"k8s.pod.name": "web-1", "k8s.namespace.name": "shop"}, 9.0, 5.0),))
        [value] = await env.custom.values(custom_request(metric="http.requests", name="web-1"))
        assert (value.described_object.name, value.milli) == ("web-1", 5000)
        await env.external.values(external_request(metric="http.requests"))
    for query in server.queries:
        parse(query)
        assert "http.requests" in query
    if quoted == QUOTED:
        matchers = '"http.requests","k8s.namespace.name"="shop","k8s.pod.name"="web-1"'
        assert server.queries[0] == f'sum(rate({{{matchers}}}[2m])) by ("k8s.pod.name")'


async def test_series_that_the_template_does_not_quote_says_what_to_write(tmp_path: Path) -> None:
    rules = parse_rules(RULES.replace("QUERY", UNQUOTED), source="rules.yaml")
    async with metrics_env(tmp_path, rules, prometheus("http.requests")) as env:
        await env.catalog.relist()
        assert env.catalog.snapshot.external == ()
        messages = [one.message for result in rule_results(env.catalog) for one in result.findings]
    assert len(messages) == 2
    assert all(
        'metricsQuery, which does not have {"<<.Series>>",<<.LabelMatchers>>}, leaves' in one for one in messages
    )


@pytest.mark.parametrize(("label", "status"), [("k8s.namespace.name", 0), ("__name", 2), ("or", 2), ("namespace", 0)])
def test_tenant_label_has_any_name_that_a_label_can_have(label: str, status: int) -> None:
    @click.command()
    @rule_object_flags
    def command(rule_objects: RuleObjectOptions) -> None:
        assert rule_objects.tenancy.label == label

    result = CliRunner().invoke(command, ["--tenant-label", label])
    assert result.exit_code == status, result.output
