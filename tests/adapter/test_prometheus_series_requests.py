"""Requests for series, and their responses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from adapter.prometheus import (
    Destination,
    PrometheusAccessError,
    PrometheusBadResponse,
    PrometheusClient,
    PrometheusError,
    PrometheusOptions,
    PrometheusPartialResponse,
    PrometheusQueryError,
    PrometheusTimeout,
    PrometheusUnavailable,
    Series,
    Tenant,
)
from adapter.prometheus.series import SeriesReader
from adapter.settings import PrometheusSettings
from tests.adapter.scripted_prometheus import ScriptedPrometheus, never, responds


async def test_series_are_merged_in_a_thread(server: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def put_together(reader: SeriesReader) -> tuple[Series, ...]:
        threads.append(threading.current_thread().name)
        return original(reader)

    original = SeriesReader.finish
    monkeypatch.setattr(SeriesReader, "finish", put_together)
    server.reply = responds({"status": "success", "data": [{"__name__": "a", "pod": "x"}]})
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        assert await client.series("a", start=0, end=1) == (Series("a", frozenset({"pod"})),)
    assert threads
    assert threading.main_thread().name not in threads


TOO_MANY = {
    "status": "error",
    "errorType": "422",
    "error": 'cannot fetch time series for "filters=[{a=}]": the number of matching timeseries exceeds 30000; '
    "either narrow down the search or increase -search.max* command-line flag values at vmselect",
}


class TooManySeries:
    """A server that refuses to list its series for their number; `names` has the series with each label."""

    names: dict[str, list[str]]

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = names

    async def reply(self, request: web.Request) -> web.StreamResponse:
        match request.path.rpartition("/api/v1/")[2]:
            case "series":
                return web.json_response(TOO_MANY, status=422)
            case "labels":
                return web.json_response({"status": "success", "data": list(self.names)})
        [label] = [name for name in self.names if request.query["match[]"] == f'{{a="}}",{name}!=""}}']
        return web.json_response({"status": "success", "isPartial": label == "partial", "data": self.names[label]})


async def test_names_are_listed_by_label_where_there_are_too_many_series(server: ScriptedPrometheus) -> None:
    names = {"__name__": ["a", "b", "c"], "pod": ["a", "b"], "node": ["b"]}
    of_tenant = Destination(tenant=Tenant(namespace="a", max_samples=10_000))
    server.reply = TooManySeries(names).reply
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        series = await client.series('{a="}",}', start=100.5, end=200)
        assert [(one.name, set(one.labels)) for one in series] == [("a", {"pod"}), ("b", {"pod", "node"}), ("c", set())]
        times = {(parameters["start"], parameters["end"]) for _, _, parameters in server.requests}
        assert times == {("100.5", "200.0")}
        with pytest.raises(PrometheusQueryError, match=r"exceeds 30000; either narrow .* at vmselect$"):
            await client.series('{a="}"}', start=0, end=1, destination=of_tenant)
        server.reply = TooManySeries(names | {"partial": ["a"]}).reply
        with pytest.raises(PrometheusPartialResponse):
            await client.series('{a="}"}', start=0, end=1)
        server.reply = TooManySeries({f"label{number}": [] for number in range(201)}).reply
        with pytest.raises(PrometheusQueryError, match="exceeds 30000"):
            await client.series('{a="}"}', start=0, end=1)


async def test_series_of_one_name_have_all_labels(server: ScriptedPrometheus) -> None:
    found = [
        {"__name__": "b", "pod": "x"},
        {"__name__": "a", "pod": "x"},
        {"__name__": "a", "node": "y"},
        {"pod": "nameless"},
    ]
    server.reply = responds({"status": "success", "data": found})
    async with PrometheusClient(PrometheusOptions(url=f"{server.url}/prom")) as client:
        series = await client.series('{pod!=""}', start=100.5, end=200)
    assert series == (Series("a", frozenset({"pod", "node"})), Series("b", frozenset({"pod"})))
    parameters = {"match[]": '{pod!=""}', "start": "100.5", "end": "200.0"}
    assert server.requests == [("GET", f"/prom/api/v1/{path}", parameters) for path in ("series", "labels")]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (responds([]), PrometheusBadResponse),  # others in test_prometheus_series
        (responds({"status": "error", "errorType": "bad_data", "error": "x"}, status=400), PrometheusQueryError),
        (responds({"status": "error", "errorType": "timeout", "error": "x"}, status=503), PrometheusTimeout),
        (responds(b"no", status=502), PrometheusUnavailable),
        (responds(b"no", status=401), PrometheusAccessError),
    ],
)
async def test_bad_series_responses_have_distinct_errors(
    server: ScriptedPrometheus,
    reply: Callable[[web.Request], Awaitable[web.StreamResponse]],
    error: type[PrometheusError],
) -> None:
    server.reply = reply
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(error) as refused:
            await client.series("a", start=0, end=1)
    assert type(refused.value) is error
    assert len(server.requests) == 1  # no retries of the library's own


async def test_response_size_is_limited(server: ScriptedPrometheus) -> None:
    settings = PrometheusSettings(response_bytes=1000, list_bytes=1000)
    server.reply = responds(b" " * 200_000)
    async with PrometheusClient(PrometheusOptions(url=server.url), settings=settings) as client:
        with pytest.raises(PrometheusBadResponse, match="longer than 1000 bytes"):
            await client.instant("a")
        with pytest.raises(PrometheusBadResponse, match="longer than 1000 bytes"):
            await client.series("a", start=0, end=1)


async def test_cancelled_series_request_frees_its_slot(server: ScriptedPrometheus) -> None:
    server.reply = never
    options, settings = PrometheusOptions(url=server.url), PrometheusSettings(list_seconds=2.0)
    async with PrometheusClient(options, settings=settings) as client:
        tasks = [asyncio.create_task(client.series("a", start=0, end=1)) for _ in range(8)]
        await server.reached(4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.reply = responds({"status": "success", "data": []})
        assert await client.series("b", start=0, end=1) == ()
