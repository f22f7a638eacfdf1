"""A scripted API server: it sends the responses of a test and records the requests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube.api.client import ClientSettings, KubeClient
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from tests.kube.scripted import ScriptedServer
from tests.web_servers import served


@dataclass(frozen=True)
class RecordedRequest:
    """A request that the server received."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None


Response = Mapping[str, Any] | bytes | Callable[[RecordedRequest], "Mapping[str, Any] | web.StreamResponse"]


@dataclass
class ScriptedApi:
    """Responds by method and path; without a scripted response it sends a 404 Status."""

    requests: list[RecordedRequest] = field(default_factory=list)
    _responses: dict[tuple[str, str], list[tuple[int, Response]]] = field(default_factory=dict)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def on(self, method: str, path: str, response: Response, *, status: int = 200) -> None:
        """Send this response from now on."""
        self._responses[method, path] = [(status, response)]

    def then(self, method: str, path: str, response: Response, *, status: int = 200) -> None:
        """Add a response for the request after those with scripted responses; it then stays."""
        self._responses.setdefault((method, path), []).append((status, response))

    def fail(self, method: str, path: str, code: int, message: str) -> None:
        """Send this error Status from now on."""
        self.on(method, path, status_body(code, message), status=code)

    def named(self, method: str, path: str = "") -> list[RecordedRequest]:
        """Return the requests so far with a method (and path)."""
        return [recorded for recorded in self.requests if recorded.method == method and path in ("", recorded.path)]

    async def until(self, condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
        """Wait until requests have made a condition true."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        recorded = RecordedRequest(
            request.method, request.path, dict(request.query), (await request.json()) if content else None
        )
        self.requests.append(recorded)
        self._arrived.set()
        responses = self._responses.get((recorded.method, recorded.path), [(404, status_body(404, "not found"))])
        status, response = responses.pop(0) if len(responses) > 1 else responses[0]
        if callable(response):
            result = response(recorded)
            return result if isinstance(result, web.StreamResponse) else web.json_response(result)
        if isinstance(response, bytes):
            return web.Response(body=response, status=status)
        return web.json_response(response, status=status)


def busy(_: RecordedRequest) -> web.StreamResponse:
    """Return 429 with Retry-After: 1."""
    return web.json_response(status_body(429, "busy"), status=429, headers={"Retry-After": "1"})


def status_body(code: int, message: str) -> dict[str, Any]:
    """A metav1.Status."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


@asynccontextmanager
async def scripted_api(folder: Path) -> AsyncIterator[tuple[ScriptedApi, KubeClient]]:
    """A running scripted API and a client of it."""
    api = ScriptedApi()
    async with served(api.handle) as url:
        kubeconfig = ScriptedServer(url=url).kubeconfig(folder)
        async with await KubeClient.connect(kubeconfig, settings=ClientSettings(request_seconds=5)) as client:
            yield api, client


@pytest.fixture
async def connected(tmp_path: Path) -> AsyncIterator[tuple[ScriptedApi, KubeClient]]:
    async with scripted_api(tmp_path) as pair:
        yield pair


@pytest.fixture
def api(connected: tuple[ScriptedApi, KubeClient]) -> ScriptedApi:
    return connected[0]


@pytest.fixture
def kube(connected: tuple[ScriptedApi, KubeClient]) -> KubeClient:
    return connected[1]


@pytest.fixture
def client(kube: KubeClient) -> ThrottledClient:
    return ThrottledClient(kube, TokenBucket(qps=-1, burst=1))
