"""The page about one metric."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from yarl import URL

from adapter.diagnosis.probe import Probe
from adapter.forecasts.options import ForecastOptions
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import PrometheusError, Series
from adapter.ui.formatting import rule_title
from kube.web.explanation import Value
from tests.adapter.diagnosis_env import ALL_FOUND, POD, RULES, SELECTORS
from tests.adapter.forecasts.daily_load import Served
from tests.adapter.metrics_env import CannedPrometheus, objects, vector
from tests.adapter.ui.env import element, pages_env, text_of

FOUND: dict[str, tuple[Series, ...] | PrometheusError] = {SELECTORS[name]: found for name, found in ALL_FOUND.items()}
PAGE = "/metric?metric=pods/hits_per_second"


def canned() -> CannedPrometheus:
    return CannedPrometheus(found={**FOUND}, result=vector((POD, 2.5)))


async def test_explanation_has_the_words_of_explain(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        text = text_of(element(await env.get(f"{PAGE}&namespace=shop&name=web-0"), "explanation"))
        assert "pods/hits_per_second is made by rules[0] of series hits_total." in text
        assert 'sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)' in text
        assert "shop/web-0 2.5" in text
        text = text_of(element(await env.get("/metric?metric=pods/hits_per_secund"), "explanation"))
        assert "not found" in text
        assert "no rule makes a metric called hits_per_secund" in text
        assert "Did you mean pods/hits_per_second" in text


async def test_query_links_to_its_graph_in_the_prometheus_that_users_open(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        assert "Graph in Prometheus" not in await env.get(PAGE)
        external_url = "https://prometheus.example.com/p"
        objects, mapper = ListedObjects(env.metrics.client), env.metrics.mapper
        probe = Probe(env.metrics.catalog, env.prometheus, objects, mapper, external_url=external_url)
        env.sources.rule_sets.current = replace(env.active, debug=replace(env.active.debug, probe=probe))
        env.monotonic += 60
        page = await env.get(f"{PAGE}&namespace=shop&name=web-0")
    (link,) = re.findall('<a href="([^"]*)">Graph in Prometheus', page)
    url = URL(html.unescape(link))
    assert str(url.with_query(None)) == "https://prometheus.example.com/p/graph"
    assert url.query["g0.expr"] == 'sum(rate(hits_total{namespace="shop",pod="web-0"}[2m])) by (pod)'


async def test_page_without_a_metric_is_a_form_that_offers_metrics(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        page = await env.get("/metric")
    assert "data-events" not in page
    assert "aria-invalid" not in page
    assert 'list="metric-offered"' in element(page, "metric").partition(">")[0]
    offered = re.findall('<option value="([^"]*)">', page)
    assert "pods/hits_per_second" in offered
    assert [one for one in offered if one.startswith("external/")]
    assert offered == sorted(offered)


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("585708m", "585.7"),
        ("--5m", "--5m"),  # an adapter that the autoscaler reads may send anything
        ("\u00b2m", "\u00b2m"),
        pytest.param(f"{10**400}m", f"{10**400}m", id="long"),
        ("2500m", "2.5"),
        ("1m", "0.001"),
        ("-1500m", "-1.5"),
        ("12345678m", "12346"),
        ("1500", "1500"),
    ]
    + [(other, other) for other in ("2k", "1Gi", "", "m", "1e3")],
)
def test_values_are_written_for_people(quantity: str, text: str) -> None:
    assert Value(of="", value=quantity).text == text


def test_rule_is_called_by_its_metrics() -> None:
    assert rule_title("rules[0]", []) == "rules[0]"
    assert rule_title("rules[0]", ["hits", "hits"]) == "hits"
    assert rule_title("rules[0]", ["hits", "errors", "hits"]) == "hits, errors"
    assert rule_title("rules[0]", ["hits", "errors", "bytes"]) == "hits, errors and more"


async def test_objects_can_be_selected(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        env.metrics.api.handlers["/api/v1/namespaces/shop/pods"] = objects("web-0", "web-1")
        text = await env.text(f"{PAGE}&namespace=shop&labelSelector=app%3Dweb&metricLabelSelector=tier%3Dgold")
    assert 'sum(rate(hits_total{tier="gold",namespace="shop",pod=~"web-0|web-1"}[2m])) by (pod)' in text


async def test_invalid_fields_are_marked_with_the_reason(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        for query, field, why in [
            ("metric=hits", "metric", "names no metric; write RESOURCE/METRIC or external/METRIC"),
            ("metric=pods/x&labelSelector=a+in", "labelSelector", ""),
            ("metric=pods/x&metricLabelSelector=%3C", "metricLabelSelector", ""),
            ("metric=pods/x&name=a&labelSelector=b", "labelSelector", "give a name or a label selector, not both"),
        ]:
            page = await env.get(f"/metric?{query}")
            assert 'aria-invalid="true"' in element(page, field).partition(">")[0]
            assert why in text_of(element(page, f"{field}-error").partition("</p>")[0])
            assert "data-events" not in page
        assert env.prometheus.queries == []


async def test_events_have_the_value_of_now(tmp_path: Path) -> None:
    prometheus = canned()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        assert 'data-events="/metric/events?metric=pods%2Fhits_per_second"' in await env.get(PAGE)
        queries = len(prometheus.queries)
        await env.get(PAGE)
        assert len(prometheus.queries) == queries, "pages of one metric share its queries"
        events = await env.events("/metric/events?metric=pods/hits_per_second")
        assert "shop/web-0 2.5" in text_of((await anext(events)).data)
        prometheus.result = vector((POD, 7.0))
        env.monotonic += 60
        assert "shop/web-0 7" in text_of((await anext(events)).data)


async def test_forecast_has_its_sentence_a_picture_and_the_next_day(tmp_path: Path) -> None:
    rules = "externalRules: [{name: orders, query: sum(orders), forecast: {horizon: 5m, gate: off}}]"
    prometheus = CannedPrometheus(result=vector(({}, 101.0)))
    served = Served(options=ForecastOptions(horizon=300, gate=0, timezone="Asia/Tokyo"))
    async with pages_env(tmp_path, rules, prometheus, forecasts=served.forecasts) as env:
        env.now = served.now
        before = await env.text("/metric?metric=external/orders")
        await served.ready()
        served.value()
        env.monotonic += 60
        page = await env.get("/metric?metric=external/orders")
    assert "forecast: not requested: forecasts begin with a request" in before
    text = text_of(page)
    assert re.search(r"Forecast of orders in shop expects (2[89]|30)\d within", text)
    assert "within 5 minutes (now 99): between 16:56 and 17:01 it grew 3 times on 7 of 7 days" in text
    assert "; served. Forecast of the last 7 days: 100% of 10,075 minutes within 10 %, 0% above, 0% below." in text
    assert page.count("<path") == 4
    # It is 16:56 in Tokyo, in the middle of two days.
    ticks = re.findall(r'<text x="([\d.]+)" y="173" text-anchor="middle">([\d:]+)</text>', page)
    assert [time for _, time in ticks] == ["18:00", "00:00", "06:00", "12:00"] * 2
    assert [float(x) for x, _ in ticks] == pytest.approx([16 + 90 * number for number in range(8)], abs=0.3)
    rows = {hour: values.split() for hour, values in re.findall(r"\w{3} (\d\d:00) ((?:\d+ ){4}\d+)", text)}
    assert len(rows) == 24
    assert rows["16:00"][:4] == ["101"] * 4
    assert 280 <= int(rows["16:00"][4]) <= 331
    assert rows["21:00"][:4] == ["301"] * 4
