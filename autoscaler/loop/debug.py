"""Debug pages on the endpoint of health checks and metrics.

    /debug/decisions                   the HPAs with decisions; ?namespace=shop those of one namespace; ?last=20 with
                                       the desired replicas of the last 20 decisions
    /debug/decisions/NAMESPACE/NAME    the last decisions on one HPA
    /debug/shadow                      the comparisons with kube-controller-manager's decisions, in shadow mode
    /debug/config                      the flags that are given

They show pods, metrics and errors of every namespace, and the endpoint does not authenticate: probes and Prometheus
read it. So by default these pages are only for connections from inside the pod (`kube.serving.local`). `kubectl
port-forward` makes such a connection, for which the API server requires the right to create `pods/portforward`. A proxy
container that connects to a loopback address for others makes these look the same: then disable the pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec
from aiohttp import web

from autoscaler.loop.probes import Page
from autoscaler.records.decision_log import DecisionLog, DecisionsPage, IndexPage
from autoscaler.records.record import VERSION
from autoscaler.records.shadow import ShadowComparer, ShadowPage, page_of
from kube.aio.pace import in_slices
from kube.api.status import bad_request
from kube.process.config_page import ConfigPage, Flags
from kube.security.request_info import Query, Target
from kube.serving.local import is_local

_MAX_INDEX_DECISIONS: Final = 100
"""HPAs between two yields to the event loop, about a millisecond."""


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
