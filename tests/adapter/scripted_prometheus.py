"""A fake Prometheus that sends scripted responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from tests.web_servers import served

ONE = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [9, "1"]}]}}
"""The response to a query."""


@dataclass
class ScriptedPrometheus:
    """Sends `reply` to every request, and records the requests."""

    url: str = ""
    reply: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reached(self, requests: int) -> None:
        """Wait until this many requests have arrived."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parameters = {**request.query, **{name: str(value) for name, value in (await request.post()).items()}}
        self.requests.append((request.method, request.raw_path.partition("?")[0], parameters))
        self.headers.append(dict(request.headers))
        async with self.arrived:
            self.arrived.notify_all()
        assert self.reply is not None
        return await self.reply(request)


def responds(body: object, *, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=status)

    return reply


@contextlib.asynccontextmanager
async def scripted(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedPrometheus]:
    server = ScriptedPrometheus(reply=responds(ONE))
    async with served(server.handle, tls=tls, max_line_size=64 * 1024) as server.url:
        yield server


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError
