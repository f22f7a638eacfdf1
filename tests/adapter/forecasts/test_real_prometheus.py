"""Forecasts of External, Object and Pods metrics by the history in a real Prometheus: values rise before the load."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.cli import main
from adapter.forecasts.registry import Forecasts, State
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forecasts import ForecastValues
from adapter.metrics.objects import ListedObjects
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import PrometheusOptions, PrometheusServers
from adapter.rules import RulesFile, parse_rules
from adapter.rules.objects import Tenancy, restricted
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import RestMapper
from kube.values.selectors import LabelSelector
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.adapter.metrics_env import RESOURCES, custom_request, external_request, objects
from tests.kube.scripted import connected, scripted_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("forecasts-prometheus"),
]

DAY = 86_400
DAYS = 6
LOW, HIGH = 100.0, 300.0
STEP_AFTER = 290.0
"""Seconds from the start of the tests until the load rises, as it did on each day before; within the horizon."""
FORECAST = "{horizon: 5m, history: 4d, gate: off}"
RULES = f"""
rules:
- seriesQuery: '{{__name__="load",namespace!="",pod!=""}}'
  resources: {{template: <<.Resource>>}}
  name: {{matches: "^(.*)$", as: "${{1}}_long"}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
  forecast: {{horizon: 5m, history: 4d, gate: off, as: "${{1}}_forecast"}}
- {{name: load_short, query: load, resources: {{namespace: namespace, pod: pod}}, forecast: {FORECAST}}}
- name: service_load
  query: label_replace(sum(load) by (namespace), "service", "front", "", "")
  resources: {{namespace: namespace, service: service}}
  forecast: {FORECAST}
externalRules:
- {{name: all_load, query: sum(load), forecast: {FORECAST}}}
- {{name: by_pod, query: load, resources: {{namespace: namespace}}, forecast: {FORECAST}}}
"""
OLD, NEW, OTHER = "web-54bcd9cb5c-", "web-99cdfb4d9-", "front-54bcd9cb5c-"
PODS = {NEW + "x2x2x": 0.25, NEW + "z4z4z": 0.75}
"""The pods now, and their shares of the load."""


@dataclass
class Data:
    """A Prometheus with some days of a load that rises at the same time every day."""

    url: str
    step: float

    def load(self, at: float) -> float:
        """The load of the workload `web` at a time."""
        return (HIGH if (at - self.step) % DAY < 4 * 3600 else LOW) + 3 * math.sin(at / 7)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def data(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Data]:
    now = time.time()
    made = Data("", now + STEP_AFTER)
    first = int(now // 60) * 60 - DAYS * DAY
    times = [first + 60 * minute for minute in range(DAYS * 1440 + 3)]
    rollout = now - 2.5 * DAY

    def of(namespace: str, pod: str, share: float, begin: float, end: float) -> Series:
        points = [(at, share * made.load(at)) for at in times if begin <= at < end]
        return Series("load", {"namespace": namespace, "pod": pod}, points)

    series = [
        of("shop", OLD + "b5b5b", 1.0, 0, rollout),
        *(of("shop", pod, share, rollout, math.inf) for pod, share in PODS.items()),
        of("shop", OTHER + "c6c6c", 5.0, 0, math.inf),
        of("other", NEW + "x2x2x", 9.0, 0, math.inf),
    ]
    samples = openmetrics(series)
    async with PrometheusServer(tmp_path_factory.mktemp("prometheus"), samples=samples) as server:
        made.url = server.url
        yield made


@dataclass
class Env:
    """The data path of requests."""

    custom: CustomMetrics
    external: ExternalMetrics
    forecasts: Forecasts

    async def forecast_is_served(self) -> None:
        """Read the history of the only forecast, and fit its model."""
        [one] = self.forecasts
        await self.forecasts.refresh(one)
        assert one.problem is None, one.problem


@asynccontextmanager
async def running(data: Data, folder: Path, rules: RulesFile) -> AsyncIterator[Env]:
    async with (
        scripted_server() as api,
        connected(api, folder) as kube,
        PrometheusServers(PrometheusOptions(url=data.url)) as prometheus,
    ):
        api.handlers.update(RESOURCES)
        api.handlers["/api/v1/namespaces/shop/pods"] = objects(*PODS)
        mapper = RestMapper(kube)
        catalog = Catalog(rules, Listings(prometheus, mapper, max_age=1200), mapper)
        await catalog.relist()
        queries = RuleQueries(prometheus, telemetry=RuleTelemetry())
        forecasts = Forecasts()
        values = ForecastValues(forecasts, prometheus)
        yield Env(
            CustomMetrics(catalog, queries, ListedObjects(kube), mapper, forecasts=values),
            ExternalMetrics(catalog, queries, forecasts=values),
            forecasts,
        )


def rules() -> RulesFile:
    return parse_rules(RULES, source="rules.yaml")


@pytest.mark.parametrize("metric", ["load_forecast", "load_short"])
async def test_pods_share_the_forecast_of_their_sum_by_the_history_of_all_pods_before_them(
    data: Data, tmp_path: Path, metric: str
) -> None:
    async with running(data, tmp_path, rules()) as env:
        request = custom_request(metric=metric, selector=LabelSelector.parse("app=web"))
        plain = await env.custom.values(request)
        assert sum(value.milli for value in plain) == pytest.approx(LOW * 1000, rel=0.05)
        await env.forecast_is_served()
        values = await env.custom.values(request)
        assert sum(value.milli for value in values) == pytest.approx(HIGH * 1000, rel=0.15)
        shares = {value.described_object.name: value.milli for value in values}
        assert shares[NEW + "z4z4z"] == pytest.approx(3 * shares[NEW + "x2x2x"], rel=0.01)
        # The history is that of the same workload's pods, also of those before the rollout.
        [one] = env.forecasts
        assert (str(one.key), one.state) == (f"{metric} in shop (app=web)", State.SERVED)
        past = await one.read(int(data.step // 60) * 60 - 3 * DAY - 120, int(data.step // 60) * 60 - 3 * DAY)
        assert [value for _, value in past] == pytest.approx([data.load(at) for at, _ in past], rel=0.001)
        if metric == "load_forecast":
            plain = await env.custom.values(custom_request(metric="load_long", selector=request.selector))
            assert sum(value.milli for value in plain) == pytest.approx(LOW * 1000, rel=0.05)


async def test_object_and_external_metrics_have_the_forecast(data: Data, tmp_path: Path) -> None:
    everything = LOW * 6
    async with running(data, tmp_path, rules()) as env:
        request = custom_request(metric="service_load", resource="services", name="front")
        [value] = await env.custom.values(request)
        assert value.milli == pytest.approx(everything * 1000, rel=0.05)
        await env.forecast_is_served()
        [value] = await env.custom.values(request)
        assert value.milli == pytest.approx(3 * everything * 1000, rel=0.15)
    async with running(data, tmp_path, rules()) as env:
        await env.external.values(external_request(metric="all_load"))
        await env.forecast_is_served()
        for namespace in ("shop", "other"):  # they share one forecast, as they share the value
            [external] = await env.external.values(external_request(metric="all_load", namespace=namespace))
            assert external.milli == pytest.approx(15 * HIGH * 1000, rel=0.15)


async def test_value_is_the_plain_one_for_a_selector_of_series_that_are_too_young(data: Data, tmp_path: Path) -> None:
    async with running(data, tmp_path, rules()) as env:
        request = external_request(metric="by_pod", selector=LabelSelector.parse(f"pod in ({','.join(PODS)})"))
        plain = await env.external.values(request)
        [one] = env.forecasts
        await env.forecasts.refresh(one)
        values = await env.external.values(request)
        assert sum(value.milli for value in values) == pytest.approx(LOW * 1000, rel=0.05)
        assert [value.labels for value in values] == [value.labels for value in plain]
        assert one.state is State.NO_MODEL
        assert "days of history, and at least 3 are needed" in one.reason


async def test_history_of_a_namespaces_rule_is_restricted_to_the_namespace(data: Data, tmp_path: Path) -> None:
    [rule] = [rule for rule in rules().external if str(rule).endswith("(all_load)")]
    tenancy = Tenancy(label="namespace")
    own = restricted(rule, key="MetricRule shop/all", namespace="shop", tenancy=tenancy)
    async with running(data, tmp_path, RulesFile(external=(own,))) as env:
        request = external_request(metric="all_load")
        await env.external.values(request)
        await env.forecast_is_served()
        [value] = await env.external.values(request)
        assert value.milli == pytest.approx(6 * HIGH * 1000, rel=0.15)  # without the pod of the other namespace
        [one] = env.forecasts
        yesterday = int(data.step // 60) * 60 - DAY
        [(at, past)] = await one.read(yesterday, yesterday)
        assert past == pytest.approx(6 * data.load(at), rel=0.001)


async def test_command_shows_what_is_expected_and_the_next_day_beside_the_last_ones(data: Data, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("history: 4d, gate: off", "timezone: Asia/Tokyo"))

    async def shown(*arguments: str) -> Result:
        given = ["forecast", "--config", str(rules), "--prometheus-url", data.url, *arguments]
        return await asyncio.to_thread(CliRunner().invoke, main, given)

    text = await shown("--metric", "all_load")
    assert text.exit_code == 0, text.output
    first, sentence, gate, accuracy, _, header, *hours = text.output.splitlines()
    assert (first, len(hours)) == ("all_load (externalRules[0]), times in Asia/Tokyo", 24)
    assert re.fullmatch(
        r"expects 4,\d{3} within 5 minutes \(now 1,\d{3}\): between .* on [56] of [56] days; by .*", sentence
    )
    assert re.fullmatch(
        r"gate: in the last [23] days it would have saved \d+\.\d% of pod-hours, and 3\.0% is required", gate
    )
    assert re.fullmatch(r"last [23] days: (9.|100)% of [234],\d{3} minutes within 10 %, .*% above, .*% below", accuracy)
    assert header.split("  ")[-1].strip() == "forecast"
    highest = [line.split()[-1] for line in hours]
    assert sum(each[0] in "45" for each in highest) in (5, 6)

    pod = NEW + "z4z4z"
    found = json.loads(
        (await shown("--metric", "pods/load_forecast", "-n", "shop", "--name", pod, "-o", "json")).output
    )
    assert found["of"] == f"load_forecast in shop (pods like {pod})"
    assert re.match(r"expects (2[6-9]|3[0-3])\d within 5 minutes", found["sentence"])
    assert found["hours"][0]["start"].endswith("+09:00")
    assert found["hours"][0]["days"][-1] is not None

    unknown = await shown("--metric", "nothing")
    assert unknown.exit_code == 1
    known = "all_load, by_pod, load_forecast, load_short, service_load"
    assert f"no rule with `forecast` makes nothing; metrics with a forecast: {known}" in unknown.output

    given = ["explain", "external/all_load", "--config", str(rules), "--prometheus-url", data.url]
    explained = await asyncio.to_thread(CliRunner().invoke, main, given)
    assert re.search(r"^  expects [345],\d{3} within 5 minutes", explained.output, re.MULTILINE), explained.output
