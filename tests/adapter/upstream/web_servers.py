"""Web servers on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web


@contextlib.asynccontextmanager
async def served(application: web.Application, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve an application; yield its URL."""
    runner = web.AppRunner(application, shutdown_timeout=0.05)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
