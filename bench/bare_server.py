"""A minimal HTTPS server on aiohttp, to compare the adapter with: `python -m bench.bare_server`.

One handler with the same response for every request, the adapter's TLS settings (a client certificate of the front
proxy's CA), and uvloop.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import click
from aiohttp import web

from kube.process.runtime import run, stopped_by_signals

_FILE = click.Path(path_type=Path, exists=True)


async def _serve(port: int, certificate: Path, key: Path, client_ca: Path, body: bytes) -> None:
    async def response(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/vnd.kubernetes.protobuf")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_REQUIRED
    stop = asyncio.Event()
    runner = web.ServerRunner(web.Server(response, access_log=None))
    with stopped_by_signals(stop):
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        await stop.wait()
        await runner.cleanup()


@click.command(help=__doc__)
@click.option("--port", type=int, required=True)
@click.option("--certificate", type=_FILE, required=True)
@click.option("--key", type=_FILE, required=True)
@click.option("--client-ca", type=_FILE, required=True)
@click.option("--bytes", "size", type=int, default=320, show_default=True, help="Length of the response's body.")
def main(port: int, certificate: Path, key: Path, client_ca: Path, size: int) -> None:
    """Serve until SIGTERM."""
    run(_serve(port, certificate, key, client_ca, b"x" * size))


if __name__ == "__main__":
    main()
