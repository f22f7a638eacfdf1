"""An API server of few words: it answers what a test scripts, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from kube.client import KubeClient
from tests.kube.scripted import ScriptedServer


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None


Answer = Mapping[str, Any] | bytes | Callable[[Asked], "Mapping[str, Any] | web.StreamResponse"]


@dataclass
class ScriptedApi:
    """Answers by method and path; what is not scripted is a 404 Status."""

    asked: list[Asked] = field(default_factory=list)
    _answers: dict[tuple[str, str], list[tuple[int, Answer]]] = field(default_factory=dict)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def on(self, method: str, path: str, answer: Answer, *, status: int = 200) -> None:
        """Answer like this from now on."""
        self._answers[method, path] = [(status, answer)]

    def then(self, method: str, path: str, answer: Answer, *, status: int = 200) -> None:
        """Answer like this from the next request on; what was scripted before is used up once."""
        self._answers.setdefault((method, path), []).append((status, answer))

    def fail(self, method: str, path: str, code: int, message: str) -> None:
        """Answer with a Status from now on."""
        self.on(method, path, status_body(code, message), status=code)

    def named(self, method: str, path: str = "") -> list[Asked]:
        """The requests of a method (to a path) so far."""
        return [asked for asked in self.asked if asked.method == method and path in ("", asked.path)]

    async def until(self, condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
        """Wait until requests have made a condition true."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        asked = Asked(request.method, request.path, dict(request.query), (await request.json()) if content else None)
        self.asked.append(asked)
        self._arrived.set()
        answers = self._answers.get((asked.method, asked.path), [(404, status_body(404, "not found"))])
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answered = answer(asked)
            return answered if isinstance(answered, web.StreamResponse) else web.json_response(answered)
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status)
        return web.json_response(answer, status=status)


def busy(_: Asked) -> web.StreamResponse:
    """429, to be asked again after a second."""
    return web.json_response(status_body(429, "busy"), status=429, headers={"Retry-After": "1"})


def status_body(code: int, message: str) -> dict[str, Any]:
    """A metav1.Status."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


@asynccontextmanager
async def scripted_api(folder: Path) -> AsyncIterator[tuple[ScriptedApi, KubeClient]]:
    """A running scripted API and a client of it."""
    api = ScriptedApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    kubeconfig = ScriptedServer(url=f"http://{host}:{port}").kubeconfig(folder)
    async with await KubeClient.connect(kubeconfig, timeout=5) as client:
        try:
            yield api, client
        finally:
            await runner.cleanup()
