"""The data path with a real Prometheus: series, values and errors."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.objects import ListedObjects
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import (
    PrometheusClient,
    PrometheusOptions,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusServers,
    PrometheusUnavailable,
)
from adapter.rules import parse_rules
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import RestMapper
from kube.values.selectors import LabelSelector
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import RESOURCES, custom_request, objects
from tests.kube.scripted import connected, scripted_server

pytestmark = pytest.mark.e2e

RULES = """
rules:
- seriesQuery: 'packets_total{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)'
- seriesQuery: 'packets_total{namespace!=""'
  metricsQuery: '<<.Series>>'
"""
EVERYTHING = LabelSelector.parse("")


def packets(pod: str, port: str, per_second: float) -> Series:
    """A counter with an exact rate, from ten minutes ago to ten minutes ahead, however long the test takes."""
    start = time.time() - 600
    points = [(start + step, per_second * step) for step in range(0, 1201, 10)]
    return Series("packets_total", {"namespace": "shop", "pod": pod, "port": port}, points)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PrometheusServer]:
    samples = openmetrics(
        [
            packets("web.0", "80", 10),
            packets("web.0", "443", 5),
            packets("web.1", "80", 20),
            packets("web-0", "80", 40),  # what an unescaped "web.0" would find as well
        ]
    )
    async with PrometheusServer(tmp_path / "prometheus", samples=samples) as running:
        yield running


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_from_series_to_values(server: PrometheusServer, tmp_path: Path, verb: str) -> None:
    async with (
        scripted_server() as api,
        connected(api, tmp_path) as kube,
        PrometheusServers(PrometheusOptions(url=server.url, verb=verb)) as prometheus,
    ):
        api.handlers.update(RESOURCES)
        api.handlers["/api/v1/namespaces/shop/pods"] = objects("web.0", "web.1", "silent")
        mapper = RestMapper(kube)
        catalog = Catalog(parse_rules(RULES, source="rules.yaml"), Listings(prometheus, mapper, max_age=1200), mapper)
        await catalog.relist()
        assert [str(info) for info in catalog.snapshot.custom] == [
            "namespaces/packets_per_second",
            "pods/packets_per_second",
        ]
        assert catalog.readiness() is None  # though the second rule's selector is wrong

        metrics = CustomMetrics(
            catalog, RuleQueries(prometheus, telemetry=RuleTelemetry()), ListedObjects(kube), mapper
        )
        before = time.time()
        values = await metrics.values(
            custom_request(
                name="*",
                resource="pods",
                group="",
                namespace="shop",
                selector=EVERYTHING,
                metric="packets_per_second",
                metric_selector=EVERYTHING,
                seconds=10,
            )
        )
        assert [value.described_object.name for value in values] == ["web.0", "web.1"]
        assert [value.milli for value in values] == pytest.approx([15000, 20000], rel=0.01)
        assert before - 1 <= values[0].timestamp <= time.time() + 1

        [value] = await metrics.values(
            custom_request(
                resource="pods",
                group="",
                namespace="shop",
                name="web.0",
                metric="packets_per_second",
                metric_selector=LabelSelector.parse("port in (443)"),
                seconds=10,
            )
        )
        assert value.milli == pytest.approx(5000, rel=0.01)


async def test_errors_are_distinguished(server: PrometheusServer) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as prometheus:
        assert (await prometheus.instant("1")).is_scalar
        with pytest.raises(PrometheusQueryError, match="parse error"):
            await prometheus.instant("sum(")
        with pytest.raises(PrometheusQueryError, match="many-to-many"):
            await prometheus.instant("packets_total * on() packets_total")
        with pytest.raises(PrometheusResultError):
            await prometheus.instant("packets_total[5m]")
        with pytest.raises(PrometheusQueryError, match="parse error"):
            await prometheus.series("{", start=0, end=time.time())
        await server.stop()
        with pytest.raises(PrometheusUnavailable):
            await prometheus.instant("1")
        with pytest.raises(PrometheusUnavailable):
            await prometheus.series("packets_total", start=0, end=time.time())
        await server.start()
        assert (await prometheus.instant("1")).is_scalar
        assert len(await prometheus.series("packets_total", start=0, end=time.time())) == 1
