"""Long lists of pods with a real Prometheus: the values do not depend on how they are queried."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.objects import ListedObjects
from adapter.planning.rendering import alternation
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import Destination, PrometheusOptions, PrometheusServers, Vector
from adapter.rules import parse_rules
from kube.api.mapping import RestMapper
from kube.values.selectors import LabelSelector
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import RESOURCES, custom_request, external_request, objects
from tests.kube.scripted import connected, scripted_server

pytestmark = pytest.mark.e2e

PODS = sorted(f"web.{number * 2654435761 % 2**32:08x}-{number:03x}" for number in range(900))
VALUES = {pod: number for number, pod in enumerate(PODS)}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PrometheusServer]:
    now = time.time()
    gauges = [
        Series("load", {"namespace": namespace, "pod": pod}, [(now - age, value + extra) for age in (60, 30, 0)])
        for namespace, extra in (("shop", 0), ("other", 5000))
        for pod, value in VALUES.items()
    ]
    async with PrometheusServer(tmp_path / "prometheus", samples=openmetrics(gauges)) as running:
        yield running


def rules(server: PrometheusServer, *, limit: int) -> str:
    return f"""
prometheusServers:
  small: {{url: '{server.url}', maxQueryBytes: {limit}}}
rules:
- seriesQuery: 'load{{namespace!=""}}'
  prometheus: small
  resources: {{template: <<.Resource>>}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
- name: short_load
  query: 'sum(load) by (namespace, pod)'
  prometheus: small
  resources: {{namespace: namespace, pod: pod}}
externalRules:
- {{name: total, query: 'sum(load) by (namespace)', prometheus: small}}
"""


@pytest.mark.parametrize("limit", [2048, 16384])
async def test_values_of_many_pods(server: PrometheusServer, tmp_path: Path, limit: int) -> None:
    labelled = random.Random(1).sample(PODS, 700)

    async def pods(request: web.Request) -> web.StreamResponse:
        names = labelled if request.query.get("labelSelector") else PODS
        return await objects(*names)(request)  # type: ignore[no-any-return]

    async with (
        scripted_server() as api,
        connected(api, tmp_path) as kube,
        PrometheusServers(PrometheusOptions(url="http://127.0.0.1:9")) as prometheus,
    ):
        api.handlers.update(RESOURCES)
        api.handlers["/api/v1/namespaces/shop/pods"] = pods
        mapper = RestMapper(kube)
        file = parse_rules(rules(server, limit=limit), source="rules.yaml")
        catalog = Catalog(file, Listings(prometheus, mapper, max_age=600), mapper)
        await catalog.relist()
        assert catalog.readiness() is None
        queries = RuleQueries(prometheus, telemetry=RuleTelemetry(CollectorRegistry()))
        custom = CustomMetrics(catalog, queries, ListedObjects(kube), mapper)
        for metric in ("load", "short_load"):
            for selector, names in (("app=web", labelled), ("", PODS)):
                values = await custom.values(
                    custom_request(
                        name="*",
                        resource="pods",
                        group="",
                        namespace="shop",
                        selector=LabelSelector.parse(selector),
                        metric=metric,
                        metric_selector=LabelSelector(),
                        seconds=20,
                    )
                )
                assert {value.described_object.name: value.milli for value in values} == {
                    name: VALUES[name] * 1000 for name in names
                }
        external = ExternalMetrics(catalog, queries)
        [total] = await external.values(
            external_request(
                namespace="any", metric="total", selector=LabelSelector.parse("namespace=shop"), seconds=20
            )
        )
        assert total.milli == sum(VALUES.values()) * 1000


async def test_shorter_list_matches_the_same_names(server: PrometheusServer) -> None:
    choose = random.Random(2)
    destination = Destination(PrometheusOptions(url=server.url, name="real"))
    async with PrometheusServers(PrometheusOptions(url="http://127.0.0.1:9")) as prometheus:
        for size in (1, 2, 50, 400):
            names = choose.sample(PODS, size)
            # What is no pod, and would be found if a "." were anything.
            pattern = json.dumps(alternation([*names, *(name.replace(".", "-") for name in names[:5])]))
            result = await prometheus.instant(f'load{{namespace="shop",pod=~{pattern}}}', destination=destination)
            assert isinstance(result, Vector)
            assert {sample.labels["pod"] for sample in result.samples} == set(names)
