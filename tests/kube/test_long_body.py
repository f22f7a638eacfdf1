"""A long body takes no memory of the connection, whether its client reads or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry

from kube.serving.listener import Listener, bind
from kube.serving.options import ServerLimits
from tests.eventually import eventually

BODY = bytes(range(256)) * (64 * 1024)  # 16 MiB


@asynccontextmanager
async def served() -> AsyncIterator[tuple[int, list[asyncio.Transport]]]:
    """Serve BODY; yields the port, and the transports of requests."""
    transports: list[asyncio.Transport] = []

    async def respond(request: web.BaseRequest, _: bytes | None) -> web.Response:
        assert isinstance(request.transport, asyncio.Transport)
        transports.append(request.transport)
        return web.Response(body=BODY, content_type="application/octet-stream")

    listener = Listener(
        respond,
        None,
        error_response=lambda error: web.Response(status=error.code),
        limits=ServerLimits(shutdown_seconds=0.1),
        registry=CollectorRegistry(),
        metrics_prefix="test",
    )
    listening = bind("127.0.0.1", 0)
    await listener.start(listening)
    try:
        yield listening.getsockname()[1], transports
    finally:
        await listener.stop()


async def test_body_is_sent_only_as_fast_as_the_client_reads() -> None:
    async with served() as (port, transports):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        async def is_waiting() -> bool:
            return bool(transports) and transports[0].get_write_buffer_size() > 0

        assert await eventually(is_waiting)
        assert transports[0].get_write_buffer_size() < 1024 * 1024
        writer.close()


async def test_the_body_arrives_whole_with_its_length() -> None:
    async with served() as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert f"Content-Length: {len(BODY)}".encode() in head
        assert b"Content-Type: application/octet-stream" in head
        assert await reader.readexactly(len(BODY)) == BODY
        writer.close()
