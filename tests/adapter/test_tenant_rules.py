"""Hostile rules of a namespace, from the API server through the adapter to a real Prometheus with two namespaces."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.rules.objects import Tenancy
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.rule_objects_env import rule_objects_cluster

pytestmark = pytest.mark.e2e

OWN = {
    "own": "sum(queue)",
    "name": 'sum({__name__=~"que.*"})',
    "or_other": 'sum(queue or queue{namespace="bank"})',
    "subquery": 'max_over_time(sum({namespace=~".+"})[5m:])',
    "comment": "sum(queue # })\n)",
    "operator": "sum(queue) + 0 * count by () (queue) or sum(queue{pod!='web'})",
}
"""Queries by metric; restricted, they find the one series of the namespace."""
NOTHING = {
    "other": 'queue{namespace="bank"}',
    "renamed": 'label_replace(queue{namespace="bank"}, "namespace", "shop", "", "")',
    "not_own": 'queue{namespace!="shop"}',
}
"""Restricted, they find nothing."""
ERRORS = {
    "two_samples": "queue or vector(1)",
    "info": "info(queue)",
    "metricsql": 'queue{namespace="shop" or namespace="bank"}',
}
"""They have more samples than allowed, or cannot be restricted."""


LONG = {"seriesQuery": '{__name__=~".+"}', "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>} or {pod='vault'})"}
"""Makes a metric of each series that it finds: here `queue`. More than one series is an error."""


@pytest.mark.parametrize("kind", ["MetricRule", "ConfigMap"])
async def test_rules_of_a_namespace_read_its_own_series_only(tmp_path: Path, kind: str) -> None:
    now = math.floor(time.time())
    samples = openmetrics(
        Series("queue", {"namespace": namespace, "pod": pod}, [(now + step * 30, value) for step in range(-20, 20)])
        for namespace, pod, value in (("shop", "web", 42.0), ("bank", "vault", 1_000_003.0))
    )
    options = RuleObjectOptions(metric_rules=True, config_maps=True, tenancy=Tenancy(label="namespace", max_samples=1))
    queries = OWN | NOTHING | ERRORS
    async with (
        PrometheusServer(tmp_path / "prometheus", samples=samples) as server,
        rule_objects_cluster(tmp_path, options=options, prometheus_url=server.url) as cluster,
    ):
        if kind == "ConfigMap":
            rules: list[dict[str, Any]] = [{"name": metric, "query": query} for metric, query in queries.items()]
            rules.append({**LONG, "resources": {"namespaced": "false"}})
            await cluster.create_config_map("rules", {"rules.yaml": json.dumps({"externalRules": rules})})
        else:
            await cluster.create_rule("long", {"type": "External", **LONG})
        for metric, query in queries.items() if kind == "MetricRule" else ():
            spec = {"type": "External", "metric": metric, "query": query}
            await cluster.create_rule(metric.replace("_", "-"), spec)
        for metric in ("queue", *OWN):
            await cluster.has_external(metric, "42")
        assert [await cluster.external(metric) for metric in NOTHING] == [[]] * len(NOTHING)
        assert [await cluster.external(metric) for metric in ERRORS] == [500] * len(ERRORS)
        explained = await cluster.adapter.request_as_master("/debug/metrics/external/own?namespace=shop")
        assert 'sum(queue{namespace="shop"})' in json.dumps(explained.json).replace('\\"', '"')
