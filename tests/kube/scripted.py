"""A scripted API server: a real HTTP server with handlers of a test, which records its requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from kube.api.client import KubeClient
from tests.web_servers import Handler as Handler
from tests.web_servers import served

Event = dict[str, Any] | list[dict[str, Any]] | int | None


@dataclass
class ScriptedServer:
    """`handlers` by path; other paths are 404. `requests` has each request as "VERB path?query"."""

    url: str = ""
    handlers: dict[str, Handler] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.raw_path}")
        self.headers.append(dict(request.headers))
        handler = self.handlers.get(request.path)
        if handler is None:
            return web.json_response(
                {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no route"}, status=404
            )
        return await handler(request)

    def kubeconfig(self, folder: Path, **user: str) -> Path:
        """Write a kubeconfig for this server; `user` has the credentials."""
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
    """Start the server on a free loopback port."""
    server = ScriptedServer()
    async with served(server.handle, port=port, handler_cancellation=True) as server.url:
        yield server


@contextlib.asynccontextmanager
async def connected(server: ScriptedServer, folder: Path, **options: Any) -> AsyncIterator[KubeClient]:
    """Connect a client to the server."""
    async with await KubeClient.connect(server.kubeconfig(folder), **options) as client:
        yield client


class LoopIterations:
    """Counts iterations of the event loop: code at the same count has not yielded."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count until the end of the context."""

        async def count() -> None:
            while True:
                self.count += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        try:
            yield
        finally:
            counting.cancel()
            await asyncio.wait([counting])


def respond(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    """Respond with this JSON."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return handler


def raw(body: bytes, *, status: int = 200) -> Handler:
    """Respond with these bytes."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status)

    return handler


class Held:
    """A handler that responds as another one does, but only once the test sets `open`; `times` counts its requests."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.arrived, self.open = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.times += 1
        self.arrived.set()
        await self.open.wait()
        return await self._handler(request)


class Collection:
    """A collection that can be listed, in pages, and watched; the test controls the events of each watch."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.version = "1"
        self.lists = 0
        """How many lists were started; not those of one object, which only show the version."""
        self.expires: dict[str, list[dict[str, Any]]] = {}
        """Pages that are 410 once, by the index of their first item, with the items after that."""
        self.watches: asyncio.Queue[Watch] = asyncio.Queue()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            return self._page(request.query.get("continue", ""), int(request.query.get("limit", "0")))
        watch = Watch(from_version=request.query["resourceVersion"])
        await self.watches.put(watch)
        first = await watch.events.get()
        if isinstance(first, int):
            return web.json_response({"kind": "Status", "code": first, "message": "no"}, status=first)
        response = web.StreamResponse()
        await response.prepare(request)
        event: Event = first
        while isinstance(event, (dict, list)):
            lines = [
                json.dumps(each).encode() + b"\n" for each in (event if isinstance(event, list) else [event]) if each
            ]
            if lines:
                await response.write(b"".join(lines))
            event = await watch.events.get()
        return response

    def _page(self, token: str, limit: int) -> web.Response:
        if token in self.expires:
            self.items = self.expires.pop(token)
            body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "the continue parameter is too old"}
            return web.json_response(body, status=410)
        self.lists += not token and limit != 1
        start = int(token or 0)
        end = start + (limit or len(self.items))
        metadata = {"resourceVersion": self.version} | ({"continue": str(end)} if end < len(self.items) else {})
        return web.json_response({"metadata": metadata, "items": self.items[start:end]})


@dataclass
class Watch:
    """One watch: send events, {} to open it without one, None to end it, or first a status to refuse it."""

    from_version: str
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    def send(self, kind: str, body: dict[str, Any]) -> None:
        self.events.put_nowait({"type": kind, "object": body})

    def send_together(self, kind: str, bodies: list[dict[str, Any]]) -> None:
        """Send events in one chunk."""
        self.events.put_nowait([{"type": kind, "object": body} for body in bodies])

    def open(self) -> None:
        self.events.put_nowait({})

    def end(self) -> None:
        self.events.put_nowait(None)

    def refuse(self, code: int) -> None:
        self.events.put_nowait(code)


def thing(name: str, version: str, *, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    """Return an object."""
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": version}, **fields}
