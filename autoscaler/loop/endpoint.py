"""The HTTP endpoint of a controller: probes for the kubelet, metrics for Prometheus, and debug pages.

    /healthz, /livez, /readyz          each with `?verbose` for the single checks
    /metrics, /metrics/slis
    /debug/decisions                   the HPAs with decisions; ?namespace=shop those of one namespace; ?last=20 with
                                       the desired replicas of the last 20 decisions
    /debug/decisions/NAMESPACE/NAME    the last decisions on one HPA
    /debug/shadow                      the comparisons with kube-controller-manager's decisions, in shadow mode
    /debug/config                      the flags that are given

Plain HTTP on its own port, without authentication. So anyone who can reach the port may open connections and request
metrics, and must not take files, memory or time from the controller: connections are limited
(`kube.serving.connection`), one response of /metrics is made at a time, for all who wait for it, and making them takes
at most a quarter of the time.

The debug pages show pods, metrics and errors of every namespace. So by default they are only for connections from
inside the pod (`kube.serving.local`). `kubectl port-forward` makes such a connection, for which the API server requires
the right to create `pods/portforward`. With a proxy container that connects to a loopback address for others, these
cannot be distinguished: then disable the pages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Final

import msgspec
from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry

from autoscaler.records.decision_log import DecisionLog, DecisionsPage, IndexPage
from autoscaler.records.record import VERSION
from autoscaler.records.shadow import ShadowComparer, ShadowPage, page_of
from kube.aio.fairness import Throttle
from kube.aio.tasks import SingleFlight, in_slices
from kube.api.status import StatusError, bad_request, method_not_allowed, not_found, too_many_requests
from kube.process.config_page import ConfigPage, Flags
from kube.security.request_info import Query, Target
from kube.serving.health import Health
from kube.serving.listener import Handler, Listener, bind
from kube.serving.local import is_local
from kube.serving.options import ConnectionLimits, ServerLimits

Page = Callable[[web.BaseRequest, Target], Awaitable[web.Response | None]]
"""Responds to a GET request for another path; None if there is no such page."""

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LIMITS: Final = ServerLimits(connections=100, shutdown_seconds=0.5, connection=ConnectionLimits(read_seconds=30.0))
# Requests for metrics in flight: a request keeps its connection, and the kubelet must get one.
_MAX_METRICS_REQUESTS: Final = 16


class _Metrics:
    """The response of /metrics, made in a thread: 10,000 HPAs have 20,000 lines."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._throttle = Throttle()
        self._shared: SingleFlight[None, bytes] = SingleFlight()
        self._waiting = 0

    async def get(self) -> bytes:
        """Return the metrics. Raises StatusError 429 if too many requests wait for them."""
        if self._waiting >= _MAX_METRICS_REQUESTS:
            raise too_many_requests("Too many requests, please try again later.", retry_after=1)
        self._waiting += 1
        try:
            return await self._shared.do(None, self._make)
        finally:
            self._waiting -= 1

    async def _make(self) -> bytes:
        async with self._throttle.slot():
            return await asyncio.to_thread(self._render)


def probe_handler(metrics: Callable[[], bytes], health: Health, *, page: Page | None = None) -> Handler:
    """Return the handler of the endpoint's requests, with further pages.

    `metrics` returns Prometheus' text format. It is called in a thread.
    """
    shared = _Metrics(metrics)

    async def respond(request: web.BaseRequest) -> web.Response:
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            raise method_not_allowed("the method is not allowed here: use GET")
        target = Target.parse(request.raw_path)
        match target.segments:
            case ("metrics",):
                return web.Response(body=await shared.get(), headers={hdrs.CONTENT_TYPE: _CONTENT_TYPE})
            case ("metrics", "slis"):
                return web.Response(body=health.render(), headers={hdrs.CONTENT_TYPE: _CONTENT_TYPE})
        probe = health.respond(target)
        if probe is not None:
            status, text = probe
            return web.Response(text=text, status=status)
        response = await page(request, target) if page is not None else None
        if response is None:
            raise not_found("404: Not Found")
        return response

    async def handle(request: web.BaseRequest, _: bytes | None) -> web.Response:
        try:
            return await respond(request)
        except StatusError as error:
            return _error_response(error)

    return handle


@asynccontextmanager
async def serving(handler: Handler, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the end of the context; yields the port, a free one for port 0.

    Raises:
        ListenError: the address cannot be bound.
    """
    listener = Listener(
        handler,
        None,
        error_response=_error_response,
        limits=_LIMITS,
        registry=CollectorRegistry(),
        metrics_prefix="probes",
    )
    listening = bind(host, port)
    await listener.start(listening)
    try:
        yield listening.getsockname()[1]
    finally:
        await listener.stop()


def _error_response(error: StatusError) -> web.Response:
    headers = {} if error.retry_after is None else {hdrs.RETRY_AFTER: str(error.retry_after)}
    return web.Response(text=error.message, status=error.code, headers=headers)


_MAX_INDEX_DECISIONS: Final = 100
"""Desired replicas of an HPA, at most."""


class DebugAccess(StrEnum):
    """The clients that may read the pages."""

    LOCAL = "local"
    """Connections from a loopback address: those from inside the pod, and through `kubectl port-forward`."""
    ALL = "all"
    """All connections."""
    OFF = "off"
    """Nobody: 404."""


def debug_page(
    log: DecisionLog,
    shadow: ShadowComparer,
    access: DebugAccess,
    *,
    flags: Flags | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Page:
    """Return what responds to requests for the pages.

    Args:
        log: the decisions.
        shadow: the comparisons.
        access: who may read the pages.
        flags: the flags of the process, without secrets.
        clock: the clock of the comparisons, in seconds.
    """

    async def index(query: Query) -> web.Response:
        last = min(_last(query) or 0, _MAX_INDEX_DECISIONS)
        entries = [entry async for entry in in_slices(log.index(namespace=query.get("namespace"), last=last))]
        return _json(IndexPage(version=VERSION, hpas=entries))

    async def decisions(namespace: str, name: str, query: Query) -> web.Response:
        page = await log.page(namespace, name, last=_last(query))
        if page is None:
            why = "the HPA does not exist or is invalid, or this autoscaler is not leader, or has another shard"
            return _problem(404, f"there are no decisions on {namespace}/{name} here: {why}")
        return _json(page)

    async def respond(request: web.BaseRequest, target: Target) -> web.Response | None:
        if access is DebugAccess.OFF or target.segments[:1] != ("debug",):
            return None
        if access is DebugAccess.LOCAL and not is_local(request):
            why = "this page is shown to connections from inside the pod only: use kubectl port-forward"
            return _problem(403, f"{why}, or start the autoscaler with --debug-endpoints=all")
        match target.segments[1:]:
            case ("decisions",):
                return await index(target.query)
            case ("decisions", namespace, name):
                return await decisions(namespace, name, target.query)
            case ("shadow",):
                return _json(page_of(shadow, round(clock() * 1000)))
            case ("config",):
                return _json(ConfigPage(flags=flags or {}))
        return None

    return respond


def _last(query: Query) -> int | None:
    """Return the parameter `last`; None without it. Raises StatusError 400."""
    if "last" not in query:
        return None
    last = query.get("last")
    if not (last.isascii() and last.isdigit() and int(last[:9]) > 0):
        raise bad_request("last: write how many decisions to show, a whole number from 1 on\n")
    return int(last[:9])


def _json(page: DecisionsPage | IndexPage | ShadowPage | ConfigPage) -> web.Response:
    return web.Response(body=msgspec.json.encode(page), content_type="application/json")


def _problem(code: int, message: str) -> web.Response:
    return web.Response(text=message + "\n", status=code)
