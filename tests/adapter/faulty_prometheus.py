"""A Prometheus that violates HTTP: sends a test's bytes over a raw socket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes a whole HTTP response, or what is to pass for one."""

HEAD = b'{"status":"success","data":{"resultType":"vector","result":['
SERIES_HEAD = b'{"status":"success","data":['


@dataclass
class FaultyPrometheus:
    """`query` and `series` write the responses to the two endpoints; every request closes its connection."""

    url: str = ""
    """Its base address."""
    query: Reply = field(default_factory=lambda: responds(vector({}, 1)))
    """Writes the response to an instant query."""
    series: Reply = field(default_factory=lambda: responds(SERIES_HEAD + b"]}"))
    """Writes the response to a series request."""
    queries: list[str] = field(default_factory=list)
    """The PromQL of the requests so far."""
    open: int = 0
    """Connections that are open now."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to one request."""
        self.open += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                target = head.split(" ", 2)[1]
                length = [int(line[16:]) for line in head.splitlines() if line.lower().startswith("content-length: ")]
                body = (await reader.readexactly(length[0])).decode() if length else ""
                parameters = parse_qs(body or urlsplit(target).query)
                if urlsplit(target).path.endswith("/query"):
                    self.queries.append(parameters["query"][0])
                    await self.query(writer)
                else:
                    await self.series(writer)
                await writer.drain()
        finally:
            self.open -= 1


@contextlib.asynccontextmanager
async def faulty_prometheus() -> AsyncIterator[FaultyPrometheus]:
    """A server on loopback."""
    prometheus = FaultyPrometheus()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(prometheus.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1024 * 1024)
    prometheus.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with server:
            yield prometheus
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def vector(labels: dict[str, str], *values: object) -> bytes:
    """The body of a good response: one series for each value, distinguished by `number`."""
    numbered = enumerate(values)
    result = [{"metric": labels | {"number": str(n)}, "value": [1.7e9, str(value)]} for n, value in numbered]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def head(status: int = 200, /, **headers: str) -> bytes:
    """Return a response's head; without a length, the body ends with the connection."""
    lines = [f"HTTP/1.1 {status} X", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def responds(body: bytes, *, status: int = 200, **headers: str) -> Reply:
    """A whole body."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(head(status, **{"Content_Length": str(len(body))} | headers) + body)

    return reply


def streams(parts: Callable[[], Iterable[bytes]]) -> Reply:
    """Send parts as fast as they are read."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        for part in parts():
            writer.write(part)
            await writer.drain()

    return reply


def endless(first: bytes, repeated: bytes) -> Reply:
    """A body without an end."""
    return streams(lambda: itertools.chain([first], itertools.repeat(repeated)))


def bomb(encoding: str, first: bytes, repeated: bytes, *, times: int) -> Reply:
    """A compressed body: `repeated` as often as that."""

    @functools.cache
    def body() -> bytes:  # when it is sent: a second
        compressor = zlib.compressobj(9, wbits=31) if encoding == "gzip" else zlib.compressobj(9)
        parts = [compressor.compress(first), *(compressor.compress(repeated) for _ in range(times))]
        return b"".join(parts) + compressor.flush()

    async def reply(writer: asyncio.StreamWriter) -> None:
        await responds(body(), Content_Encoding=encoding)(writer)

    return reply


def drips(first: bytes, repeated: bytes) -> Reply:
    """A slow body without an end."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(head() + first)
        while True:
            writer.write(repeated)
            await writer.drain()
            await asyncio.sleep(0.005)

    return reply
