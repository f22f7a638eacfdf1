"""The servers that rules name, each with its own client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from adapter.prometheus import (
    Destination,
    PrometheusClient,
    PrometheusOptions,
    PrometheusServers,
    PrometheusUnavailable,
    Vector,
)
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, responds, scripted


async def test_headers_of_a_rule_replace_those_of_the_server(server: ScriptedPrometheus) -> None:
    options = PrometheusOptions(url=server.url, headers=(("x-scope-orgid", "all"), ("X-Other", "kept")))
    async with PrometheusClient(options) as client:
        destination = Destination(headers=(("X-Scope-OrgID", "team"),))
        await client.instant("a", destination=destination)
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1, destination=destination)
    assert [(headers["X-Scope-OrgID"], headers["X-Other"]) for headers in server.headers] == [("team", "kept")] * 3


async def test_requests_are_timed_by_path_and_server(server: ScriptedPrometheus) -> None:
    seen: list[tuple[str, str]] = []
    default, other = PrometheusOptions(url=server.url), PrometheusOptions(url=server.url, name="other")
    async with PrometheusServers(default, observe=lambda name, path, seconds: seen.append((name, path))) as servers:
        await servers.instant("a")
        server.reply = responds({"status": "success", "data": []})
        await servers.series("a", start=0, end=1, destination=Destination(other))
    assert seen == [("default", "/api/v1/query"), ("other", "/api/v1/series")]


async def test_removed_server_is_closed_after_its_last_request() -> None:
    async with scripted() as first, scripted() as second:
        old = Destination(PrometheusOptions(url=second.url, name="old"))
        answered = asyncio.Event()

        async def slow(request: web.Request) -> web.StreamResponse:
            await answered.wait()
            return await responds(ONE)(request)

        second.reply = slow
        async with PrometheusServers(PrometheusOptions(url=first.url)) as servers:
            asking = asyncio.create_task(servers.instant("a", destination=old))
            await second.reached(1)
            await servers.close_others([])
            answered.set()
            assert isinstance(await asking, Vector)
            # If a rule names it again, it is queried as before.
            assert isinstance(await servers.instant("a", destination=old), Vector)


async def test_server_with_a_bad_file_is_unavailable_alone(server: ScriptedPrometheus, tmp_path: Path) -> None:
    bad = Destination(PrometheusOptions(url="https://x", name="bad", ca_file=tmp_path / "none"))
    async with PrometheusServers(PrometheusOptions(url=server.url)) as servers:
        for _ in range(2):
            with pytest.raises(PrometheusUnavailable, match="CA file for Prometheus"):
                await servers.instant("a", destination=bad)
        assert isinstance(await servers.instant("a"), Vector)
