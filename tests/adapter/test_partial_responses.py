"""Responses that lack what could not be read: no value, no zero and no shorter list is made of them."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.prometheus import (
    PrometheusClient,
    PrometheusOptions,
    PrometheusPartialResponse,
    PrometheusServers,
    Series,
    Vector,
)
from adapter.rules import RulesError, parse_rules
from kube.api.status import StatusError
from tests.adapter.metrics_env import external_request, metrics_env
from tests.adapter.scripted_prometheus import ScriptedPrometheus, responds

SAMPLES = [{"metric": {"__name__": "up", "cluster": "a"}, "value": [1_700_000_000, "1"]}]
STORE = (
    'receive series from Addr: 10.1.2.3:10901 MinTime: 1 MaxTime: 2 LabelSets: {cluster="b"}: rpc error: code = '
    "Unavailable desc = connection error"
)
PARTIAL: list[dict[str, Any]] = [
    {"warnings": [STORE]},
    {"warnings": ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)", STORE]},
    {"warnings": ["No StoreAPIs matched for this query"]},
    {"warnings": ["results truncated due to limit"]},
    {"isPartial": True},
]
COMPLETE: list[dict[str, Any]] = [
    {},
    {"warnings": [], "isPartial": False},
    {"warnings": None},
    {
        "infos": [
            'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "x" (1:6)'
        ]
    },
    {"warnings": ['PromQL warning: encountered a mix of histograms and floats for metric name "x" (1:5)']},
    {
        "warnings": ["PromQL warning: a", "12 more warning annotations omitted"],
        "infos": ["2 more info annotations omitted"],
    },
]


def vector(samples: list[Any], more: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", **more, "data": {"resultType": "vector", "result": samples}}


def listing(names: list[str], more: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", **more, "data": [{"__name__": name, "pod": "a"} for name in names]}


@pytest.mark.parametrize("more", PARTIAL)
@pytest.mark.parametrize("count", [0, 1, 2_000])  # the last one is decoded while it arrives
async def test_partial_response_is_a_failure(server: ScriptedPrometheus, more: dict[str, Any], count: int) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        server.reply = responds(vector(SAMPLES * count, more))
        with pytest.raises(PrometheusPartialResponse, match=r"response is partial: (receive|No|results|isP)"):
            await client.instant("up")
        server.reply = responds(listing(["up"] * count, more))
        with pytest.raises(PrometheusPartialResponse):
            await client.series("up", start=0, end=1)


@pytest.mark.parametrize(
    ("labels", "is_partial"),
    [
        ({"status": "success", "data": ["pod"], "warnings": [STORE]}, True),
        ({"status": "success", "data": ["pod"]}, False),
        ({"status": "error", "error": "there are no labels here"}, False),
        (b"404 page not found", False),
    ],
)
async def test_list_of_series_is_partial_if_that_of_their_labels_is(
    server: ScriptedPrometheus, labels: object, is_partial: bool
) -> None:
    """Thanos 0.41 has no warning in a list of series, but in that of their labels."""
    of_labels, of_series = responds(labels), responds(listing(["up"], {}))

    async def reply(request: web.Request) -> web.StreamResponse:
        return await (of_labels if request.path.endswith("/labels") else of_series)(request)

    server.reply = reply
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(PrometheusPartialResponse) if is_partial else contextlib.nullcontext():
            await client.series("up", start=0, end=1)
    async with PrometheusClient(PrometheusOptions(url=server.url, partial_responses="allow")) as client:
        assert len(await client.series("up", start=0, end=1)) == 1


@pytest.mark.parametrize("more", COMPLETE)
async def test_notices_of_the_engine_fail_no_query(server: ScriptedPrometheus, more: dict[str, Any]) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        server.reply = responds(vector(SAMPLES, more))
        assert isinstance(await client.instant("up"), Vector)
        server.reply = responds(listing(["up"], more))
        assert await client.series("up", start=0, end=1) == (Series("up", frozenset({"pod"})),)


@pytest.mark.parametrize("more", PARTIAL)
async def test_allowed_partial_response_is_used_and_logged_once(
    server: ScriptedPrometheus, more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    options = PrometheusOptions(url=server.url, partial_responses="allow")
    with caplog.at_level(logging.WARNING):
        async with PrometheusClient(options) as client:
            for _ in range(2):
                server.reply = responds(vector(SAMPLES, more))
                assert isinstance(await client.instant("up"), Vector)
                server.reply = responds(listing(["up"], more))
                assert await client.series("up", start=0, end=1)
    assert len(caplog.messages) == len(more.get("warnings", ["isPartial"]))


RULES = """
externalRules:
- seriesQuery: '{__name__=~"queue_.*"}'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>)'
  empty: zero
"""


async def test_partial_response_is_no_zero_and_no_shorter_list(server: ScriptedPrometheus, tmp_path: Path) -> None:
    rules = parse_rules(RULES, source="rules.yaml")
    async with (
        PrometheusServers(PrometheusOptions(url=server.url)) as servers,
        metrics_env(tmp_path, rules, servers) as env,  # type: ignore[arg-type]
    ):
        server.reply = responds(listing(["queue_a", "queue_b"], {}))
        await env.catalog.relist()
        for names in (["queue_a"], []):
            server.reply = responds(listing(names, {"warnings": [STORE]}))
            await env.catalog.relist()
            assert env.catalog.snapshot.external == ("queue_a", "queue_b")
            assert "10.1.2.3" in env.catalog.state(rules.external[0]).failure
        server.reply = responds(vector([], {"isPartial": True}))
        with pytest.raises(StatusError) as failed:
            await env.external.values(external_request(metric="queue_a"))
    assert failed.value.code == 503
    assert failed.value.message.startswith("Prometheus could read only a part of the series for externalRules[0]")
    assert "10.1.2.3" not in failed.value.message


def test_each_server_may_allow_partial_responses() -> None:
    text = """
prometheusServers:
  a: {url: "http://a"}
  b: {url: "http://b", partialResponses: allow}
rules: []
"""
    servers = parse_rules(text, source="rules.yaml").prometheus_servers
    assert [one.partial_responses for one in servers.values()] == ["fail", "allow"]
    with pytest.raises(RulesError, match=r"prometheusServers\.b\.partialResponses"):
        parse_rules(text.replace("allow", "maybe"), source="rules.yaml")
