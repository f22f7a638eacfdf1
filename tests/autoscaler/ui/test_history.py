"""The history of an HPA on its page: the charts by kube-state-metrics in a real Prometheus, and why there are none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autoscaler.core.model import MILLISCALE, HPAKey
from autoscaler.ui.history import PrometheusHistory
from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.autoscaler.simulated_cluster import SimulatedCluster, hpa, pods_metric
from tests.autoscaler.ui.pages import Controller, Document
from tests.web_servers import served

START = 1_767_571_200  # 2026-01-05T00:00:00Z
HOUR = 3600
NOW = START + 2 * HOUR
WEB = ("hpas", "default", "web")
LABELS = {"namespace": "default", "horizontalpodautoscaler": "web"}
PREFIX = "kube_horizontalpodautoscaler_"


def recorded() -> list[Series]:
    """Two hours of two HPAs: one is scaled from 2 to 6 by its metric at half past one."""
    series = []

    def add(name: str, value: Callable[[int], float], **labels: str) -> None:
        points = [(float(START + at), value(at)) for at in range(0, 2 * HOUR + 1, 15)]
        series.append(Series(PREFIX + name, {**LABELS, **labels}, points))

    def is_late(at: int) -> bool:
        return at >= 1.5 * HOUR

    average = {"metric_name": "packets", "metric_target_type": "average"}
    add("spec_max_replicas", lambda _: 10)
    add("spec_min_replicas", lambda _: 2)
    add("spec_target_metric", lambda _: 100, **average)
    add("status_current_replicas", lambda at: 6 if is_late(at) else 2)
    add("status_current_replicas", lambda _: 99, horizontalpodautoscaler="other")
    add("status_desired_replicas", lambda at: 6 if is_late(at) else 2)
    add("status_target_metric", lambda at: 300 if is_late(at) else 80, **average)
    for pod in ("a", "b"):
        labels = {"namespace": "default", "metric": "packets", "pod": pod}
        points = [(float(START + at), 1.5 if is_late(at) else 1.0) for at in range(0, 2 * HOUR + 1, 15)]
        series.append(Series("milliscale_adapter_forecast_growth", labels, points))
    return series


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[PrometheusServer]:
    async with PrometheusServer(tmp_path, samples=openmetrics(recorded())) as server:
        yield server


def traces(page: Document) -> dict[str, dict[int, Any]]:
    """Return {name of a line: {seconds since START: value}}."""
    [script] = [each for each in page.find_all("script") if each.attributes.get("id") == "figure"]
    data = json.loads("".join(each for each in script.children if isinstance(each, str)))["data"]
    return {
        one["name"]: dict(zip([at // 1000 - START for at in one["x"]], one["y"], strict=True))
        for one in data
        if one.get("mode") != "markers"
    }


def ranges(page: Document) -> dict[str, bool]:
    """Return {label of a time: whether it is shown}."""
    [nav] = [each for each in page.find_all("nav") if each.attributes.get("aria-label") == "Time of the charts"]
    return {each.text: each.attributes.get("aria-current") == "page" for each in nav.find_all("a")}


async def test_charts_are_those_of_the_chosen_time_in_prometheus(prometheus: PrometheusServer) -> None:
    controller = Controller(history=PrometheusHistory(prometheus.url, clock=lambda: NOW + 7.0))
    controller.add(hpa(pods_metric(100)))
    hour = await controller.html(*WEB, range="1h")
    assert ranges(hour) == {"Kept decisions": False, "1 h": True, "6 h": False, "1 d": False, "1 w": False}
    lines = traces(hour)
    assert (min(lines["current"]), max(lines["current"])) == (HOUR, 2 * HOUR)
    assert [lines["current"][at] for at in (HOUR, 5385, 5400, 2 * HOUR)] == [2, 2, 6, 6]
    assert [lines["value"][at] for at in (HOUR, 5400)] == [80, 300]
    assert [lines["value now"][at] for at in (HOUR, 5400)] == [80, 200]  # the rest is a forecast
    assert [lines["forecast"][at] for at in (HOUR, 5400)] == [80, 300]
    assert (set(lines["min, max"].values()), set(lines["target"].values())) == ({10}, {100})
    week = traces(await controller.html(*WEB, range="1w"))["current"]
    assert len(week) == 241
    assert [each for each in week.values() if each is not None] != []


async def test_history_stands_in_for_decisions_that_a_new_process_does_not_have(prometheus: PrometheusServer) -> None:
    controller = Controller(history=PrometheusHistory(prometheus.url, clock=lambda: NOW))
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=3)
    controller.add(simulated.hpa)
    assert ranges(await controller.html(*WEB))["1 h"]
    controller.reconcile(simulated, 50)
    after = await controller.html(*WEB)
    assert ranges(after)["Kept decisions"]
    assert list(traces(after)["current"].values()) == [3]


async def test_page_without_an_address_of_prometheus_has_no_ranges() -> None:
    controller = Controller()
    controller.add(hpa())
    page = await controller.html(*WEB, range="1d")
    assert [each for each in page.find_all("nav") if each.attributes.get("aria-label") == "Time of the charts"] == []


def notice(page: Document) -> str:
    return next(each.text for each in page.find_all("p", class_="warn") if "no charts" in each.text)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (web.json_response({"status": "success", "data": {"result": []}}), "has no series of kube-state-metrics about"),
        (web.json_response({"error": "too many samples"}, status=422), "answered with status 422: too many samples."),
        (
            web.json_response({"data": {"result": [{"metric": {}, "values": [[NOW, "many"]]}]}}),
            "the response has a value that is no number: could not convert string to float: 'many'.",
        ),
        (web.Response(text="<html>", status=404), "the response, status 404, is not Prometheus'; check --prometheus-"),
    ],
)
async def test_page_says_why_there_is_no_history_and_requests_it_once(response: web.Response, why: str) -> None:
    requests = []

    async def respond(request: web.Request) -> web.StreamResponse:
        requests.append(await request.post())
        return web.Response(status=response.status, body=response.body, headers=response.headers)

    async with served(respond) as url:
        controller = Controller(history=PrometheusHistory(url, clock=lambda: NOW))
        controller.add(hpa())
        assert why in notice(await controller.html(*WEB, range="1d"))
        await controller.html(*WEB, range="1d")
    assert len(requests) == 1
    assert 'namespace="default",horizontalpodautoscaler="web"}' in str(requests[0]["query"])


async def test_prometheus_that_is_away_leaves_the_rest_of_the_page() -> None:
    controller = Controller(history=PrometheusHistory("http://ann:secret@127.0.0.1:1", clock=lambda: NOW))
    controller.reconcile(SimulatedCluster(hpa(pods_metric(100)), replicas=3), 50)
    page = await controller.html(*WEB, range="6h")
    reached = (
        "There are no charts of this time: Prometheus cannot be reached: Connection refused; check --prometheus-url."
    )
    assert notice(page) == reached
    assert "secret" not in page.text
    assert len(page.find("ol", id="decisions").find_all("li")) == 1


async def test_hpa_of_the_own_kind_is_not_in_kube_state_metrics() -> None:
    controller = Controller(history=PrometheusHistory("http://127.0.0.1:1", clock=lambda: NOW))
    key = HPAKey("default", "web", MILLISCALE.group)
    controller.hpas[key] = hpa()
    page = await controller.html(*WEB, group=MILLISCALE.group, range="1h")
    assert "kube-state-metrics has no series of HPAs of milliscale.io" in notice(page)
