"""Queries of one Prometheus: the request, its time limit, and failures of the connection."""

from __future__ import annotations

import logging

import pytest
from aiohttp import web

from adapter.prometheus import (
    PrometheusClient,
    PrometheusOptions,
    PrometheusTimeout,
    PrometheusUnavailable,
    Sample,
    Vector,
    results,
)
from adapter.prometheus import client as client_module
from adapter.settings import PrometheusSettings
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, never, responds, scripted
from tests.deadlines import after


async def test_get_sends_the_query_in_the_url(server: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=f"{server.url}/prom/")) as client:
        assert await client.instant("sum(a{b='c d'})") == Vector((Sample({"a": "b"}, 9.0, 1.0),))
    method, path, parameters = server.requests[0]
    assert (method, path) == ("GET", "/prom/api/v1/query")
    assert parameters == {"query": "sum(a{b='c d'})", "timeout": "20.000"}


async def test_post_sends_the_query_in_the_body(server: ScriptedPrometheus) -> None:
    query = "sum(a) or " * 20_000
    async with PrometheusClient(PrometheusOptions(url=server.url, verb="POST")) as client:
        await client.instant(query, deadline=after(2.5))
    assert server.requests == [("POST", "/api/v1/query", {"query": query, "timeout": "2.500"})]


async def test_only_queries_with_long_responses_are_compressed(server: ScriptedPrometheus) -> None:
    """To compress a short response takes Prometheus longer than to evaluate the query."""
    sample = {"metric": {"pod": "web-6c5d8f7b9c-00000"}, "value": [9, "1"]}
    many = {"status": "success", "data": {"resultType": "vector", "result": [sample] * 1_500}}
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        for query in ("short", "long", "short", "long", "long"):
            server.reply = responds(many if query == "long" else ONE)
            assert isinstance(await client.instant(query), Vector)
    codings = [headers["Accept-Encoding"] for headers in server.headers]
    assert [coding == "identity" for coding in codings] == [True, True, True, False, False]
    assert all("gzip" in coding for coding in codings[3:])


async def test_slow_server_is_a_timeout(server: ScriptedPrometheus) -> None:
    server.reply = never
    settings = PrometheusSettings(list_seconds=0.2)
    async with PrometheusClient(PrometheusOptions(url=server.url), settings=settings) as client:
        with pytest.raises(PrometheusTimeout):
            await client.instant("a", deadline=after(0.2))
        with pytest.raises(PrometheusTimeout):
            await client.series("a", start=0, end=1)


async def test_redirect_is_not_followed(server: ScriptedPrometheus) -> None:
    async with scripted() as other:

        async def elsewhere(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": f"{other.url}{request.path_qs}"})

        server.reply = elsewhere
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            for call in (client.instant("a"), client.series("a", start=0, end=1)):
                with pytest.raises(PrometheusUnavailable, match="answered with a redirect, status 302"):
                    await call
        assert other.requests == []


async def test_expired_deadline_sends_nothing(server: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(PrometheusTimeout, match="no time was left"):
            await client.instant("a", deadline=after(0))
    assert server.requests == []


@pytest.mark.parametrize("always", [False, True])
async def test_broken_connection_is_retried_once(server: ScriptedPrometheus, always: bool) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        if not always:
            server.reply = responds(ONE)
        return web.Response()

    server.reply = broken
    async with PrometheusClient(PrometheusOptions(url=server.url, verb="POST")) as client:
        if not always:
            assert isinstance(await client.instant("a"), Vector)
        else:
            for call in (client.instant("a"), client.series("a", start=0, end=1)):
                with pytest.raises(PrometheusUnavailable):
                    await call
    assert len(server.requests) == (4 if always else 2)


async def test_refused_connection_is_not_retried_and_an_error_without_the_address(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="adapter.prometheus")
    async with PrometheusClient(PrometheusOptions(url=f"http://127.0.0.1:{unused_tcp_port}")) as client:
        for call in (client.instant("a"), client.series("a", start=0, end=1)):
            with pytest.raises(PrometheusUnavailable) as refused:
                await call
            assert str(refused.value) == "Prometheus cannot be reached: Connection refused"
    assert "sending again" not in caplog.text


async def test_warnings_are_logged_once(server: ScriptedPrometheus, caplog: pytest.LogCaptureFixture) -> None:
    server.reply = responds({**ONE, "warnings": ["PromQL warning: a"]})
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with caplog.at_level(logging.WARNING):
            await client.instant("a")
            await client.instant("b")
    assert caplog.text.count("Prometheus warns: PromQL warning: a") == 1


async def test_long_queries_go_into_the_body_and_short_ones_do_not(server: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        await client.instant("a" * 11_000)
        await client.instant("a" * 13_000)
    assert [(method, len(parameters["query"])) for method, _, parameters in server.requests] == [
        ("GET", 11_000),
        ("POST", 13_000),
    ]


@pytest.mark.parametrize("status", [414, 431])
async def test_url_that_a_proxy_refused_goes_by_post_from_then_on(server: ScriptedPrometheus, status: int) -> None:
    async def proxy(request: web.Request) -> web.StreamResponse:
        return (
            await responds(b"too long", status=status)(request)
            if len(request.raw_path) > 500
            else await responds(ONE)(request)
        )

    server.reply = proxy
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        for length in (10, 600, 600, 10):
            assert isinstance(await client.instant("a" * length), Vector)
    assert [method for method, _, _ in server.requests] == ["GET", "GET", "POST", "POST", "GET"]


async def test_truncated_response_is_not_retried(server: ScriptedPrometheus) -> None:
    async def torn(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return response

    server.reply = torn
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        with pytest.raises(PrometheusUnavailable):
            await client.instant("a")
    assert len(server.requests) == 1


async def test_only_short_responses_are_decoded_at_once(
    server: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one is decoded in pieces and within the memory budget, also where it has arrived whole."""
    monkeypatch.setattr(client_module, "read_up_to", lambda response, _: response.read())
    at_once: list[int] = []
    from_results = results.decode

    def note(body: bytes, *, max_samples: float) -> object:
        at_once.append(len(body))
        return from_results(body, max_samples=max_samples)

    monkeypatch.setattr(client_module, "decode", note)
    async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
        for count in (10, 10_000):
            result = [{"metric": {"pod": f"web-{n:05}"}, "value": [1, str(n)]} for n in range(count)]
            server.reply = responds({"status": "success", "data": {"resultType": "vector", "result": result}})
            found = await client.instant("a")
            assert isinstance(found, Vector)
            assert [sample.value for sample in found.samples] == list(range(count))
    assert len(at_once) == 1
    assert at_once[0] < 64 * 1024
