"""The page about one metric: what the adapter says, with the rights of its viewers, and what any server may send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from autoscaler.core.model import LabelSelectorRequirement, LabelSelectorSpec
from autoscaler.records.metric_lookup import adapter_explanation, metric_parameters
from autoscaler.records.record import Measure, MetricRecord
from autoscaler.ui.access import NamespaceAccess
from kube.api.status import StatusError, forbidden
from kube.security.authentication import User
from kube.security.authorization import Authorizer
from kube.security.request_info import RequestInfo
from kube.web.explanation import Example, Explanation, Value
from tests.autoscaler.ui.pages import Controller
from tests.kube.scripted import connected, raw, scripted_server

QUERY = "sum(rate(packets_total[1m])) by (pod)"
EXAMPLE = Example(of="default/web-0", queries=(QUERY,), values=(Value(of="default/web-0", value="1500m"),))
GRAPH = "https://prometheus.example.com/graph?g0.expr=up"
EXPLANATION = Explanation(target="pods/packets", rule="rules[0]", example=EXAMPLE, graphs=(GRAPH,))
PODS: dict[str, Any] = {"metric": "pods/packets", "namespace": "default", "labelSelector": "app=web"}


async def test_page_shows_the_promql_its_graph_and_the_values() -> None:
    explain = AsyncMock(return_value=EXPLANATION)
    page = await Controller(explain_metric=explain, adapter_ui_url="https://adapter.example.com").html("metric", **PODS)
    explain.assert_awaited_once_with(PODS)
    assert page.find("pre").text == QUERY
    assert page.find("section", class_="card").find("a").attributes["href"] == GRAPH
    assert "default/web-0 1.5" in page.find("table").text
    on_adapter = "https://adapter.example.com/metric?metric=pods%2Fpackets&namespace=default&labelSelector=app%3Dweb"
    assert page.find_all("a", href=on_adapter) != []


def test_series_are_selected_by_the_expressions_of_the_metric_too() -> None:
    verbs = LabelSelectorRequirement(key="verb", operator="In", values=["PUT", "GET"])
    selector = LabelSelectorSpec(match_labels={"code": "200"}, match_expressions=[verbs])
    metric = MetricRecord(type="External", name="requests", selector=selector, target=Measure())
    expected = {"metric": "external/requests", "namespace": "shop", "metricLabelSelector": "code=200,verb in (GET,PUT)"}
    assert metric_parameters(metric, "shop") == expected


async def test_metric_with_a_typo_has_a_link_to_the_one_that_exists() -> None:
    typo = Explanation(target="pods/packetz", reasons=("no rule makes it",), suggestions=("pods/packets",))
    page = await Controller(explain_metric=AsyncMock(return_value=typo)).html("metric", **PODS)
    assert page.find("ul", class_="reasons").text == "no rule makes it"
    assert page.find_all("a", href="/metric?metric=pods%2Fpackets&namespace=default") != []


async def test_viewer_without_the_right_at_the_adapter_sees_nothing_of_it() -> None:
    authorizer = AsyncMock(spec=Authorizer)
    authorizer.authorize.side_effect = forbidden("no")
    explain, jane = AsyncMock(return_value=EXPLANATION), User("jane")
    controller = Controller(explain_metric=explain, access=NamespaceAccess(authorizer))
    with pytest.raises(StatusError, match="no"):
        await controller.get("metric", user=jane, **PODS)
    authorizer.authorize.assert_awaited_once_with(jane, RequestInfo(verb="get", path="/debug/metrics/pods/packets"))
    explain.assert_not_awaited()


async def test_page_says_which_right_this_process_lacks() -> None:
    refused = forbidden('User "autoscaler" cannot get path "/debug/metrics/pods/packets"')
    page = await Controller(explain_metric=AsyncMock(side_effect=refused)).html("metric", **PODS)
    assert page.find("p", class_="notice").text == f"the adapter's explanation cannot be read: {refused.message}"


@pytest.mark.parametrize("metric", ["", "packets", "pods/", "/packets", "pods/a/b", "pods/..", "../packets", "a/%2e"])
async def test_name_that_would_leave_the_path_is_refused(metric: str) -> None:
    with pytest.raises(StatusError, match="names no metric") as raised:
        await Controller().get("metric", metric=metric)
    assert raised.value.code == 400


@pytest.mark.parametrize(
    ("status", "response", "code"),
    [
        (200, {"kind": "APIResourceList", "resources": []}, 404),
        (200, {"target": "pods/packets", "graphs": ["javascript:alert(1)"]}, 404),
        (200, b'{"target": "\xff"}', 404),
        (200, b'{"unknown": ' + b"[" * 100_000, 404),
        (404, {"kind": "Status", "code": 404, "message": "no such resource"}, 404),
        (403, {"kind": "Status", "code": 403, "message": "forbidden"}, 403),
    ],
    ids=["other", "script", "not-utf8", "deep", "not-found", "forbidden"],
)
async def test_only_explanations_are_read(
    status: int, response: dict[str, Any] | bytes, code: int, tmp_path: Path
) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        path = "/apis/external.metrics.k8s.io/v1beta1/debug/metrics/external/a b"
        body = response if isinstance(response, bytes) else json.dumps(response).encode()
        server.handlers[path] = raw(body, status=status)
        with pytest.raises(StatusError) as raised:
            await adapter_explanation(client, {"metric": "external/a b", "namespace": "x"})
    assert raised.value.code == code
