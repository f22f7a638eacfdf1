"""Web servers on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from playground.certs import KeyPair

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def served(
    application: web.Application | Handler,
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    **options: Any,
) -> AsyncIterator[str]:
    """Serve an application, or a handler of all requests; yield the URL. `options` are those of AppRunner."""
    if not isinstance(application, web.Application):
        handler, application = application, web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
    # A timeout of 0 would wait forever.
    runner = web.AppRunner(application, **{"shutdown_timeout": 0.05, **options})
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield f"http{'s' if tls else ''}://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def server_tls(pair: KeyPair, folder: Path, *, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS of a server; with `client_ca`, clients must have a certificate of it. Writes a file."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    (folder / "server.pem").write_bytes(pair.cert_pem + pair.key_pem)
    context.load_cert_chain(folder / "server.pem")
    return context
