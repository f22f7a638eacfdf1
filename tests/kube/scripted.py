"""A scripted API server: a real HTTP server whose answers a test writes down, and which remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from kube.client import KubeClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class ScriptedServer:
    """`answers` maps a path to a handler; anything else is a 404 Status. `asked` holds "VERB path?query" in order."""

    url: str = ""
    answers: dict[str, Handler] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.raw_path}")
        self.headers.append(dict(request.headers))
        handler = self.answers.get(request.path)
        if handler is None:
            return web.json_response(
                {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no route"}, status=404
            )
        return await handler(request)

    def kubeconfig(self, folder: Path, **user: str) -> Path:
        """A kubeconfig for this server; `user` holds its credentials."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path


@contextlib.asynccontextmanager
async def scripted_server(*, port: int = 0) -> AsyncIterator[ScriptedServer]:
    """The server on a free loopback port."""
    server = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connected(server: ScriptedServer, folder: Path, **options: Any) -> AsyncIterator[KubeClient]:
    """A client of the server."""
    async with await KubeClient.connect(server.kubeconfig(folder), **options) as client:
        yield client


def answer(body: object, *, status: int = 200) -> Handler:
    """Always this JSON."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return handler


def raw(body: bytes, *, status: int = 200) -> Handler:
    """Always these bytes."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status)

    return handler


class Collection:
    """A collection that can be listed and watched, where the test says what each watch brings and when it ends."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.version = "1"
        self.lists = 0
        self.watches: asyncio.Queue[Watch] = asyncio.Queue()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            self.lists += 1
            return web.json_response({"metadata": {"resourceVersion": self.version}, "items": self.items})
        watch = Watch(from_version=request.query["resourceVersion"])
        await self.watches.put(watch)
        first = await watch.events.get()
        if isinstance(first, int):
            return web.json_response({"kind": "Status", "code": first, "message": "no"}, status=first)
        response = web.StreamResponse()
        await response.prepare(request)
        event: dict[str, Any] | int | None = first
        while isinstance(event, dict):
            if event:
                await response.write(json.dumps(event).encode() + b"\n")
            event = await watch.events.get()
        return response


@dataclass
class Watch:
    """One watch: put events, {} to open it without one, None to end it, or at first a number to refuse it."""

    from_version: str
    events: asyncio.Queue[dict[str, Any] | int | None] = field(default_factory=asyncio.Queue)

    def send(self, kind: str, body: dict[str, Any]) -> None:
        self.events.put_nowait({"type": kind, "object": body})

    def open(self) -> None:
        self.events.put_nowait({})

    def end(self) -> None:
        self.events.put_nowait(None)

    def refuse(self, code: int) -> None:
        self.events.put_nowait(code)


def thing(name: str, version: str, *, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": version}, **fields}
