"""A proxy between adapter and Prometheus that records queries, and fails in the ways in which Prometheus does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

from playground.ports import LOOPBACK, free_port

_ANSWER_SECONDS: Final = 30.0
_MAX_LINE: Final = 1 << 20  # as long as Prometheus reads; a query may stand in it


class UnknownFaultError(LookupError):
    """There is no fault of this name."""


@dataclass(frozen=True, slots=True)
class InstantQuery:
    """A query to Prometheus: PromQL, and its time limit in seconds."""

    query: str
    timeout: str | None


@dataclass(frozen=True, slots=True)
class _Canned:
    body: str
    status: int = 200
    content_type: str = "application/json"


def _result(kind: str, result: Any, **more: Any) -> _Canned:
    return _Canned(json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}))


def _error(status: int, kind: str, text: str) -> _Canned:
    return _Canned(json.dumps({"status": "error", "errorType": kind, "error": text}), status)


_FAULTS: Final[Mapping[str, _Canned | None]] = {
    "500": _Canned("internal server error\n", 500, "text/plain"),
    "503json": _error(503, "timeout", "query timed out in expression evaluation"),
    "422json": _error(422, "execution", "found duplicate series for the match group on the right hand-side"),
    "400json": _error(400, "bad_data", "invalid parameter"),
    "401": _Canned("Unauthorized\n", 401, "text/plain"),
    "403": _Canned("Forbidden\n", 403, "text/plain"),
    "429": _Canned("Too Many Requests\n", 429, "text/plain"),
    "502": _Canned("<html>bad gateway</html>", 502, "text/html"),
    "504": _Canned("<html>gateway timeout</html>", 504, "text/html"),
    "garbage": _Canned("<html>this is not Prometheus</html>", 200, "text/html"),
    "scalar": _result("scalar", [1, "5"]),
    "string": _result("string", [1, "five"]),
    "matrix": _result("matrix", [{"metric": {"pod": "pod-1-0"}, "values": [[1, "5"]]}]),
    "empty": _result("vector", []),
    "warn": _result("vector", [], warnings=["one of the stores did not answer"]),
    "slow": None,
    "reset": None,
    "down": None,
}


class PrometheusTap:
    """Passes requests on to a Prometheus while its context is open.

    Attributes:
        fault: how instant queries fail; None passes them on.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._port = free_port()
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None
        self._queries: list[InstantQuery] = []
        self.fault: str | None = None

    @property
    def url(self) -> str:
        """Where the adapter finds it."""
        return f"http://{LOOPBACK}:{self._port}"

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS))
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._hang_up()
        assert self._http is not None, "not started"
        await self._http.close()

    async def fail(self, fault: str | None) -> None:
        """Fail like this from now on, or (None) no more.

        Raises:
            UnknownFaultError: there is no such fault.
        """
        if fault is not None and fault not in _FAULTS:
            raise UnknownFaultError(f"no fault is called {fault!r}; there are {', '.join(_FAULTS)}")
        if fault == "down":
            await self._hang_up()
        elif self._runner is None:
            await self._listen()
        self.fault = fault

    def take(self) -> list[InstantQuery]:
        """The instant queries since the last time, in their order."""
        queries, self._queries = self._queries, []
        return queries

    async def _listen(self) -> None:
        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.01,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()

    async def _hang_up(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/query":
            parameters = await request.post() if request.method == "POST" else request.query
            timeout = parameters.get("timeout")
            self._queries.append(InstantQuery(str(parameters["query"]), None if timeout is None else str(timeout)))
            if self.fault is not None:
                return await self._failed(request)
        assert self._http is not None, "not started"
        async with self._http.request(
            request.method,
            self._upstream + request.path_qs,
            data=await request.read(),
            headers={key: value for key, value in request.headers.items() if key.lower() == "content-type"},
        ) as response:
            return web.Response(
                status=response.status,
                body=await response.read(),
                content_type=response.content_type,
                charset=response.charset,
            )

    async def _failed(self, request: web.Request) -> web.Response:
        assert self.fault is not None, "only called for a fault"
        canned = _FAULTS[self.fault]
        if canned is not None:
            return web.Response(text=canned.body, status=canned.status, content_type=canned.content_type)
        if self.fault == "slow":
            await asyncio.Event().wait()  # until the client gives up
        transport = request.transport
        if isinstance(transport, asyncio.Transport):
            transport.abort()
        return web.Response()
