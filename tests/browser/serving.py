"""Serve pages on loopback from the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from kube.web.options import UIAddress
from kube.web.pages import Pages
from kube.web.server import PageServer


@asynccontextmanager
async def serve(pages: Pages, *, port: int = 0) -> AsyncIterator[str]:
    """Serve pages on 127.0.0.1, and yield the URL of the first one."""
    server = PageServer(
        pages, UIAddress("127.0.0.1", port), auth=None, registry=CollectorRegistry(), metrics_prefix="test"
    )
    listening = server.bind()
    url = server.url(listening)
    await server.start(listening)
    try:
        yield url
    finally:
        await server.stop()
