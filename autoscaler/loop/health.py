"""The autoscaler's own HTTP endpoint: probes for the kubelet and metrics for Prometheus.

/healthz and /livez (the event loop runs), /readyz (HPAs and pods are listed), each with `?verbose` for the single
checks, and /metrics. Plain HTTP on a port of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler

from autoscaler.loop import telemetry

Check: TypeAlias = Callable[[], str | None]
"""Returns the problem, or None."""

_SHUTDOWN_SECONDS = 0.5


def application(
    metrics: telemetry.Telemetry,
    *,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    notes: Mapping[str, Check] | None = None,
    pages: Iterable[web.RouteDef] = (),
) -> web.Application:
    """The endpoint's routes.

    Args:
        metrics: for /metrics.
        live: checks for /livez and /healthz, by name.
        ready: further checks for /readyz.
        notes: warnings that `?verbose` shows beside the checks of /readyz; they do not fail it.
        pages: further routes.
    """

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": telemetry.CONTENT_TYPE})

    def probe(name: str, checks: Mapping[str, Check], notes: Mapping[str, Check]) -> Handler:
        async def respond(request: web.Request) -> web.Response:
            problems = {check: problem() for check, problem in checks.items()}
            failed = any(problems.values())
            # The form of Kubernetes' own components, reasons included: this endpoint is for the cluster's operators.
            lines = [f"[-]{check} failed: {why}" if why else f"[+]{check} ok" for check, why in problems.items()]
            lines += [f"[!]{note}: {what}" for note, look in notes.items() if (what := look())]
            lines.append(f"{name} check {'failed' if failed else 'passed'}")
            verbose = failed or "verbose" in request.query
            return web.Response(text="\n".join(lines) + "\n" if verbose else "ok", status=500 if failed else 200)

        return respond

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_routes(pages)
    for name, checks, more in (("healthz", live, {}), ("livez", live, {}), ("readyz", {**live, **ready}, notes or {})):
        app.router.add_get(f"/{name}", probe(name, {"ping": lambda: None, **checks}, more))
    return app


@asynccontextmanager
async def serving(app: web.Application, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port, a free one for port 0.

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
