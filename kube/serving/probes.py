"""The HTTP endpoint of a controller: probes for the kubelet and metrics for Prometheus.

/healthz, /livez and /readyz, each with `?verbose` for the single checks, /metrics and /metrics/slis. Plain HTTP on its
own port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

from kube.security.request_info import Query, Target
from kube.serving.health import Health

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SHUTDOWN_SECONDS = 0.5


def application(metrics: Callable[[], bytes], health: Health, *, pages: Iterable[web.RouteDef] = ()) -> web.Application:
    """Return the endpoint's routes, with further `pages`.

    `metrics` returns Prometheus' text format. It is called in a thread: 10,000 HPAs have 20,000 lines.
    """

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=await asyncio.to_thread(metrics), headers={"Content-Type": _CONTENT_TYPE})

    async def show_health_metrics(_: web.Request) -> web.Response:
        return web.Response(body=health.render(), headers={"Content-Type": _CONTENT_TYPE})

    async def probe(request: web.Request) -> web.Response:
        found = health.respond(Target(request.path, Query(tuple(request.query.items()))))
        if found is None:
            raise web.HTTPNotFound
        return web.Response(text=found.text, status=found.status)

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/metrics/slis", show_health_metrics)
    app.router.add_routes(pages)
    for path in health.paths:
        app.router.add_get(path, probe)
    return app


@asynccontextmanager
async def serving(app: web.Application, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the end of the context; yields the port, a free one for port 0.

    Raises:
        OSError: the address cannot be bound.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
