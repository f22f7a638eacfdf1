"""/debug: the findings of `check` and `explain` on a running adapter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from adapter.diagnosis.report import Report
from adapter.forecasts.registry import ForecastKey, Forecasts
from adapter.planning.coalescer import Pause
from adapter.serving.debug_pages import DebugPages
from kube.api.status import StatusError
from kube.process.config_page import ConfigPage
from kube.security.request_info import Query
from kube.web.explanation import Explanation
from tests.adapter.diagnosis_env import (
    ALL_FOUND,
    POD,
    PODS,
    env,
    probe_of,
)
from tests.adapter.forecasts.daily_load import Served
from tests.adapter.metrics_env import MetricsEnv, vector
from tests.adapter.serving import served_adapter


def pages_of(opened: MetricsEnv, forecasts: Forecasts | None = None, **others: Any) -> DebugPages:
    probe, objects = probe_of(opened), opened.rule_objects
    return DebugPages(opened.catalog, opened.mapper, probe, objects, forecasts or Forecasts(), **others)


async def test_debug_pages_return_reports_and_explanations(tmp_path: Path) -> None:
    async with env(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 2.0))
        pages = pages_of(opened)

        async def page(*segments: str, **query: str) -> Report | Explanation | ConfigPage:
            return await pages.respond(segments, Query(tuple(query.items())))

        report = await page("rules", examples="0")
        assert isinstance(report, Report)
        assert [one.rule for one in report.rules] == ["rules[0]", "rules[1]", "externalRules[0]"]
        explanation = await page("metrics", "pods", "hits_per_second", namespace="shop", name="web-0")
        assert isinstance(explanation, Explanation)
        assert explanation.has_value
        for segments, query, code in [
            (("nothing",), {}, 404),
            (("metrics", "pods"), {}, 404),
            (("rules",), {"examples": "-1"}, 400),
            (("metrics", "pods", "x"), {"labelSelector": "a in"}, 400),
        ]:
            with pytest.raises(StatusError) as error:
                await page(*segments, **query)
            assert error.value.code == code


async def test_debug_pages_require_the_right_to_get_the_path(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, env(tmp_path, PODS) as opened:
        pages = pages_of(opened)
        adapter.debug.pages = pages
        bob, eve = (adapter.authorities.clients.issue(name, client=True) for name in ("bob", "eve"))
        reply = await adapter.request("/debug/rules?examples=0", certificate=bob)
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.json["rules"][0]["series"][0]["name"] == "hits_total"
        refused = await adapter.request("/debug/rules", certificate=eve)
        assert refused.status == 403
        review_specs = [review["spec"] for review in adapter.api.reviews if review["kind"] == "SubjectAccessReview"]
        assert review_specs[-1]["nonResourceAttributes"] == {"path": "/debug/rules", "verb": "get"}
        assert (await adapter.request("/debug/rules", certificate=bob, method="POST")).status == 405


async def test_a_metric_is_explained_through_the_api_server_with_the_same_right(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, env(tmp_path, PODS) as opened:
        opened.prometheus.result = vector((POD, 2.0))
        adapter.debug.pages = pages_of(opened)
        bob, eve = (adapter.authorities.clients.issue(name, client=True) for name in ("bob", "eve"))
        api = "/apis/custom.metrics.k8s.io/v1beta2"
        path = f"{api}/debug/metrics/pods/hits_per_second?namespace=shop&name=web-0"
        reply = await adapter.request(path, certificate=bob)
        assert (reply.status, reply.json["rule"], reply.json["example"]["of"]) == (200, "rules[0]", "shop/web-0")
        adapter.api.reviews.clear()
        assert (await adapter.request(path, certificate=eve)).status == 403
        (review,) = adapter.api.reviews
        right = {"path": "/debug/metrics/pods/hits_per_second", "verb": "get"}
        assert (review["spec"]["user"], review["spec"]["nonResourceAttributes"]) == ("eve", right)
        assert (await adapter.request(f"{api}/debug/config", certificate=bob)).status == 404
        external = "/apis/external.metrics.k8s.io/v1beta1/debug/metrics/external/queue"
        assert (await adapter.request(external, certificate=bob)).json["target"] == "external/queue"


@pytest.mark.parametrize(
    ("local_paths", "host", "path", "status"),
    [
        (["/debug/config"], "localhost:1", "/debug/config", 200),
        (["/debug/config"], "evil.example", "/debug/config", 403),
        (["/debug/config"], "localhost:1", "/debug/rules", 403),
        (["/debug/config"], "localhost:1", "/debug/config/", 403),
        ([], "localhost:1", "/debug/config", 403),
    ],
)
async def test_local_clients_read_the_configuration_only_without_credentials(
    local_paths: list[str], host: str, path: str, status: int, tmp_path: Path
) -> None:
    async def config() -> ConfigPage:
        return ConfigPage(flags={"prometheus-url": "http://p"})

    async with served_adapter(tmp_path, local_paths=local_paths) as adapter, env(tmp_path, PODS) as opened:
        pages = pages_of(opened, config=config)
        adapter.debug.pages = pages
        reply = await adapter.request(path, headers={"Host": host})
        assert reply.status == status
        if status == 200:
            assert reply.json["flags"] == {"prometheus-url": "http://p"}
            assert adapter.api.reviews == []
            assert (await adapter.request(path, headers={"Host": host}, method="POST")).status == 405


async def test_paused_merging_is_a_finding_on_the_debug_page_unless_it_is_for_its_cost(tmp_path: Path) -> None:
    async with env(tmp_path, ALL_FOUND) as opened:
        paused = [("rules[0]", Pause.FAILURE), ("rules[0]", Pause.FAILURE), ("rules[1]", Pause.COST)]
        pages = pages_of(opened, paused=lambda: paused)
        report = await pages.respond(("rules",), Query.parse("examples=0"))
    assert isinstance(report, Report)
    [finding] = report.findings
    assert (finding.code, finding.where) == ("merging-paused", "rules[0]")
    assert finding.message == "requests are sent alone for a while: the coalesced query fails"


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_explanation_has_the_running_forecasts_of_the_rule(tmp_path: Path, namespace: str) -> None:
    """Also for a namespace, where all have the same one."""
    rules = "externalRules: [{name: orders, query: sum(orders), forecast: {horizon: 5m, gate: off}}]"
    served, key = Served(), ForecastKey("externalRules[0]", "orders", namespace, "")
    async with env(tmp_path, {}, rules) as opened:
        pages = pages_of(opened, served.forecasts)
        found = []
        for requested in (False, True):
            if requested:
                served.value(key=key)
                await served.refresh()
                served.value(key=key)
            explanation = await pages.respond(("metrics", "external", "orders"), Query.parse("namespace=shop"))
            assert isinstance(explanation, Explanation)
            found.append(explanation.forecasts)
    before, [after] = found
    assert before == ("not requested: forecasts begin with a request",)
    assert re.match(rf"{re.escape(str(key))}: expects [23]\d\d within 5 minutes", after)
    assert after.endswith("; served")
