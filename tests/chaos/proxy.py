"""An HTTP proxy on loopback between a process and one server, with faults that can be switched on and off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from multidict import CIMultiDict

from playground.apiserver.pki import KeyPairFiles
from playground.ports import LOOPBACK
from tests.chaos.exchange import Exchange, Request
from tests.chaos.faults import Fault, Silence, relay

_HEAD_LIMIT = 1024 * 1024
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request that can change an object, and the upstream server's status; `time` is that of time.monotonic()."""

    time: float
    method: str
    path: str
    body: bytes
    status: int | None

    @property
    def succeeded(self) -> bool:
        """True if the server executed it, even if the client did not get the response."""
        return self.status is not None and self.status < 300

    @property
    def json(self) -> Any:
        """The body. Raises ValueError."""
        return json.loads(self.body)


class FaultProxy:
    """The proxy; an async context manager.

    ```
    async with FaultProxy(prometheus.url) as proxy:
        async with proxy.inject(Reply(status=500)):
            ...
        async with proxy.stopped():
            ...
    ```

    Attributes:
        requests: the number of requests so far.
        faulty: how many of them met a fault, by path.
        errors: exceptions of faults, which are mistakes of a scenario.
        writes: the requests that can change an object, in the order of the server's responses.
    """

    def __init__(
        self, upstream: str, *, serving: KeyPairFiles | None = None, upstream_ca: Path | None = None, port: int = 0
    ) -> None:
        """Configure a proxy; nothing is opened yet.

        Args:
            upstream: the server's URL, without a path.
            serving: the proxy's own certificate; with it, the proxy serves HTTPS.
            upstream_ca: the CA that verifies the server, if its URL is https.
            port: the port, or 0 for a free one.
        """
        self.requests = 0
        self.faulty: Counter[str] = Counter()
        self.errors: list[Exception] = []
        self.writes: list[Write] = []
        self._upstream = upstream
        self._serving = serving
        self._upstream_ca = upstream_ca
        self._port = port
        self._fault: Fault | None = None
        self._server: asyncio.Server | None = None
        self._session: aiohttp.ClientSession | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return f"{'http' if self._serving is None else 'https'}://{LOOPBACK}:{self._port}"

    @property
    def connections(self) -> int:
        """The number of open connections of clients."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=self._upstream_ca) if self._upstream_ca is not None else None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context if context is not None else True),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        )
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._session is not None:
            await self._session.close()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        context = None
        if self._serving is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._serving.certificate, self._serving.key)
        self._server = await asyncio.start_server(
            self._accept, LOOPBACK, self._port, ssl=context, limit=_HEAD_LIMIT, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections: clients are refused."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.close_connections()

    async def close_connections(self) -> None:
        """Close the connections of all clients."""
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            if not writer.is_closing():  # its task was cancelled before it began
                writer.transport.abort()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Refuse connections within the context."""
        await self.stop()
        try:
            yield
        finally:
            await self.start()

    @asynccontextmanager
    async def inject(self, fault: Fault) -> AsyncIterator[None]:
        """Apply a fault within the context, instead of any other one; clients keep their connections."""
        before, self._fault = self._fault, fault
        try:
            yield
        finally:
            self._fault = before

    def use_certificate(self, serving: KeyPairFiles) -> None:
        """Serve with another certificate from the next `start` on."""
        self._serving = serving

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # its TLS handshake was in progress
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                while await self._serve_request(reader, writer):
                    pass
        finally:
            # close() of a stream waits for the peer to read what is buffered.
            writer.close() if writer.transport.get_write_buffer_size() == 0 else writer.transport.abort()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return True if the connection can have another one."""
        assert self._session is not None
        request = await _read_request(reader)
        exchange = Exchange(
            request, session=self._session, upstream=self._upstream, writer=writer, on_response=self._record
        )
        self.requests += 1
        fault = self._fault_of(request)
        self.faulty[request.path] += fault is not None
        response = asyncio.ensure_future(fault.respond(exchange) if fault is not None else relay(exchange))
        try:
            while not response.done() and not (reader.at_eof() or writer.is_closing()):
                await asyncio.wait([response], timeout=_POLL_SECONDS)
                if isinstance(self._fault_of(request), Silence) and not isinstance(fault, Silence):
                    fault = Silence()
                    response.cancel()
                    response = asyncio.ensure_future(fault.respond(exchange))
            if response.done():
                response.result()
        except (aiohttp.ClientError, OSError):
            exchange.close()
        except Exception as error:  # noqa: BLE001 - the scenario's promises report it
            self.errors.append(error)
            exchange.close()
        finally:
            response.cancel()
            await asyncio.wait([response])
            if exchange.upstream_status is None:
                self._record(exchange)
        return exchange.keeps_connection and response.done() and not response.cancelled()

    def _fault_of(self, request: Request) -> Fault | None:
        return self._fault if self._fault is not None and self._fault.match(request) else None

    def _record(self, exchange: Exchange) -> None:
        request = exchange.request
        if not request.is_write:
            return
        self.writes.append(
            Write(
                time=time.monotonic(),
                method=request.method,
                path=request.path,
                body=request.body,
                status=exchange.upstream_status,
            )
        )


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = line.split(" ", 2)
    fields = (field.partition(":") for field in lines)
    headers = CIMultiDict((name, value.strip()) for name, _, value in fields)
    if "chunked" in headers.get("Transfer-Encoding", ""):
        body = b""
        while (size := int(await reader.readline(), 16)) > 0:
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("Content-Length", "0")))
    return Request(method, target, headers, body)
