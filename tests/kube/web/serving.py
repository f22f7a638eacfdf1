"""Serve pages on loopback in the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from kube.serving.options import ServerLimits
from kube.web.event_stream import EventStreams
from kube.web.options import UIAddress
from kube.web.pages import Pages
from kube.web.server import PageServer


@asynccontextmanager
async def served(
    pages: Pages, *, streams: EventStreams | None = None, limits: ServerLimits | None = None
) -> AsyncIterator[str]:
    """Yield the URL of the first page, which ends in a slash."""
    server = PageServer(
        pages,
        UIAddress("127.0.0.1", 0),
        auth=None,
        registry=CollectorRegistry(),
        metrics_prefix="test",
        streams=streams,
        limits=limits or ServerLimits(connections=200, shutdown_seconds=1.0),
    )
    listening = server.bind()
    await server.start(listening)
    try:
        yield server.url(listening)
    finally:
        await server.stop()
