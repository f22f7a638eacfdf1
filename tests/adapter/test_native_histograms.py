"""Native histograms, which have no single value: the responses of Prometheus 3.12, and what `check` says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.diagnosis.check import check_rule
from adapter.diagnosis.probe import Probe
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import PrometheusOptions, PrometheusServers
from adapter.rules import parse_rules
from tests.adapter.metrics_env import metrics_env
from tests.adapter.scripted_prometheus import scripted

POD = {"namespace": "shop", "pod": "web-1"}
BUCKETS = [[3, "-Inf", "0.1", "15114"], [0, "0.1", "1", "15114"]]
HISTOGRAM = {
    "metric": {"__name__": "lat", **POD},
    "histogram": [1795415115.232, {"count": "30228", "buckets": BUCKETS}],
}
COUNT = {"metric": POD, "value": [1795415115.232, "30228"]}
P90 = {"metric": {"pod": "web-1"}, "value": [1795415115.232, "0.82"]}
RULES = """
rules:
- seriesQuery: 'lat{pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'QUERY'
"""


def vector(result: list[Any], **more: object) -> web.StreamResponse:
    return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


async def reply(request: web.Request) -> web.StreamResponse:
    """Respond as Prometheus 3.12 does."""
    if request.path.endswith("/series"):
        return web.json_response({"status": "success", "data": [HISTOGRAM["metric"]]})
    query = request.query["query"]
    if query.startswith("topk(1,histogram_count("):
        return vector([COUNT])
    for name in ("topk", "max"):
        if query.startswith(name):
            return vector([], infos=[f"PromQL info: ignored histogram in {name} aggregation (1:1)"])
    return vector([P90] if query.startswith("histogram_quantile") else [HISTOGRAM])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("histogram_quantile(0.9, sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>))", ""),
        ("<<.Series>>{<<.LabelMatchers>>}", "Prometheus' result has native histograms"),
        (
            "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            "ignored histogram in max aggregation (1:1); there are",
        ),
    ],
)
async def test_check_says_what_to_write_for_a_native_histogram(tmp_path: Path, query: str, expected: str) -> None:
    rules = parse_rules(RULES.replace("QUERY", query), source="rules.yaml")
    async with scripted() as server, PrometheusServers(PrometheusOptions(url=server.url)) as prometheus:
        server.reply = reply
        async with metrics_env(tmp_path, rules, prometheus) as env:  # type: ignore[arg-type]
            await env.catalog.relist()
            probe = Probe(env.catalog, prometheus, ListedObjects(env.client), env.mapper)
            report, findings = await check_rule(env.catalog, rules.custom[0], probe, examples=2)
    example = {metric.metric: metric.example for metric in report.metrics}["pods/lat"]
    assert example is not None
    assert [value.value for value in example.values] == ([] if expected else ["820m"])
    assert expected in example.problem
    assert ("histogram_quantile(0.9, ...)" in example.problem) == bool(expected)
    assert [one.severity.value for one in findings if one.code == "no-value"] == ["error"] * bool(expected)
