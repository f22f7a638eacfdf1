"""The /metrics endpoints of the demo's pods: a port on loopback for each, and an exporter.

The exporter has the queue depths, and the Deployments' replicas by kube-state-metrics' names.

The counters of a ready pod advance by its share of the load; see playground.load.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from playground.load import Load
from playground.ports import LOOPBACK

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SHUTDOWN: Final = 1.0
"""Seconds for a scrape in progress when its pod is deleted."""


@dataclass(frozen=True, slots=True)
class WorkloadPod:
    """A pod, its application, and whether it shares the load."""

    name: str
    application: str
    ready: bool


class Workload:
    """The listeners; the load starts when the context is opened.

    `clock` returns seconds.
    """

    def __init__(self, load: Load, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.load = load
        self._clock = clock
        self._began = 0.0
        self._endpoints: dict[str, _Endpoint] = {}
        self._pods: Collection[WorkloadPod] = ()
        self._exporter = _Endpoint(self._render_cluster)

    @property
    def elapsed(self) -> float:
        """Seconds since the load began."""
        return self._clock() - self._began

    @property
    def addresses(self) -> Mapping[str, str]:
        """`host:port` of every pod, by its name."""
        return {name: endpoint.address for name, endpoint in self._endpoints.items()}

    @property
    def exporter_address(self) -> str:
        """`host:port` of the exporter."""
        return self._exporter.address

    async def set_pods(self, pods: Collection[WorkloadPod]) -> None:
        """Set the existing pods: open listeners for new ones, close those of deleted ones."""
        known = {pod.name: pod for pod in pods if pod.application in self.load.traffic}
        for name in self._endpoints.keys() - known.keys():
            await self._endpoints.pop(name).close()
            self.load.remove_pod(name)
        for name in known.keys() - self._endpoints.keys():
            endpoint = _Endpoint(partial(self._render_pod, known[name]))
            await endpoint.open()
            self._endpoints[name] = endpoint
        self._pods = list(pods)
        ready = defaultdict(list)
        for pod in pods:
            if pod.ready:
                ready[pod.application].append(pod.name)
        self.load.set_ready(self.elapsed, ready)

    async def __aenter__(self) -> Self:
        await self._exporter.open()
        self._began = self._clock()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in [self._exporter, *self._endpoints.values()]:
            await endpoint.close()
        self._endpoints.clear()

    def _render_pod(self, pod: WorkloadPod) -> str:
        self.load.advance(self.elapsed)
        counters = self.load.counters(pod.application, pod.name)
        return "".join(f"# TYPE {name} counter\n{name} {value:.3f}\n" for name, value in counters.items())

    def _render_cluster(self) -> str:
        self.load.advance(self.elapsed)
        depths = [f'queue_depth{{queue="{name}"}} {self.load.depth(name):.0f}\n' for name in self.load.backlogs]
        all_pods = Counter(pod.application for pod in self._pods)
        ready = Counter(pod.application for pod in self._pods if pod.ready)
        replicas = [
            f'kube_deployment_status_replicas{{deployment="{name}"}} {count}\n'
            f'kube_deployment_status_replicas_ready{{deployment="{name}"}} {ready[name]}\n'
            for name, count in all_pods.items()
        ]
        return "".join(["# TYPE queue_depth gauge\n", *depths, *replicas])


class _Endpoint:
    """A listener on a free port of loopback that serves `render()` at /metrics."""

    def __init__(self, render: Callable[[], str]) -> None:
        async def metrics(_: web.Request) -> web.Response:
            return web.Response(body=render().encode(), headers={"Content-Type": _CONTENT_TYPE})

        application = web.Application()
        application.router.add_get("/metrics", metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN)

    @property
    def address(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"{host}:{port}"

    async def open(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0).start()

    async def close(self) -> None:
        await self._runner.cleanup()
