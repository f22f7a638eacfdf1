"""The running autoscaler: everything that lives as long as the process, and who owns it.

    stores      HPAs and pods of all namespaces, kept up to date by watches
    queue       which HPA is next: a new one or a changed spec at once, any other a sync period after its last step
    workers     take an HPA from the queue and reconcile it
    recorder    sends events beside the workers
    endpoint    health and metrics over HTTP

One TaskGroup owns all tasks: should one of them end by a bug, the process ends and is started anew, rather than living
on by half. A failing HPA is no such thing: its worker says so, once for each new reason, and goes on.

On SIGTERM or Ctrl-C workers take no further HPA, and those in flight get a few seconds to finish, so that a scale that
was written gets its status and event.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from autoscaler.events import EventRecorder
from autoscaler.health import application, serving
from autoscaler.hpas import HPAs
from autoscaler.label_index import PodIndex, SelectorIndex
from autoscaler.metrics_client import MetricsClient
from autoscaler.observe import Observer
from autoscaler.queue import WorkQueue
from autoscaler.reconcile import Reconciler
from autoscaler.scales import ScaleClient
from autoscaler.status import StatusWriter
from autoscaler.telemetry import Telemetry
from autoscaler.throttle import ThrottledClient, TokenBucket
from autoscaler.watched import PODS, RefusedHPA, TrackedHPA, track_pod
from kube.client import KubeClient
from kube.mapping import RestMapper
from kube.process import done_before, stopped_by_signals
from kube.store import Store

if TYPE_CHECKING:
    from autoscaler.model import HPAKey, Pod
    from autoscaler.options import Options

__all__ = ["Controller", "run"]

_log = logging.getLogger(__name__)

# Together less than the five seconds that an impatient operator waits.
_FINISH_SECONDS = 3.0
_FLUSH_SECONDS = 1.0


async def run(options: Options) -> None:
    """Run an autoscaler until SIGTERM or SIGINT.

    Raises:
        KubeConfigError: there is no usable configuration.
        OSError: the endpoint's address cannot be bound.
    """
    stop = asyncio.Event()
    with stopped_by_signals(stop):
        async with await KubeClient.connect(options.kubeconfig, user_agent="milliscale-autoscaler") as client:
            await Controller(client, options).run(stop)


class Controller:
    """An autoscaler on one API server."""

    def __init__(self, client: KubeClient, options: Options) -> None:
        self._options = options
        self._queue = WorkQueue()
        self._telemetry = Telemetry()
        self._pod_index = PodIndex()
        self._selectors = SelectorIndex()
        self._hpas = HPAs(
            client,
            required=options.hpa_apis,
            welcome=options.welcome_hpa_apis,
            scale_to_zero=options.config.scale_to_zero,
            on_change=self._hpa_changed,
        )
        self._pods: Store[Pod] = Store(client, PODS, track_pod, on_change=self._pod_index.apply)

        def throttled() -> ThrottledClient:
            return ThrottledClient(client, TokenBucket(qps=options.qps, burst=options.burst))

        mapper = RestMapper(client)
        objects = throttled()
        scales = ScaleClient(throttled(), mapper)
        metrics = MetricsClient(
            resource=throttled(),
            custom=throttled(),
            external=throttled(),
            mapper=mapper,
            version_seconds=options.sync_period,
        )
        self._recorder = EventRecorder(objects)
        self._reconciler = Reconciler(
            observer=Observer(
                scales=scales,
                metrics=metrics,
                pods=self._pod_index,
                selectors=self._selectors,
                config=options.config,
            ),
            scales=scales,
            statuses=StatusWriter(objects),
            recorder=self._recorder,
            telemetry=self._telemetry,
        )
        self._said: dict[HPAKey, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop` is set.

        Raises:
            OSError: the endpoint's address cannot be bound.
        """
        options = self._options
        app = application(
            self._telemetry,
            live={},
            ready={"hpas": lambda: self._hpas.problem, "pods": lambda: _problem(self._pods)},
        )
        async with serving(app, host=options.bind_address, port=options.metrics_port) as port:
            _log.info("health and metrics on %s port %d", options.bind_address, port)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._hpas.run()),
                    tasks.create_task(self._pods.run()),
                    tasks.create_task(self._recorder.run()),
                ]
                if await done_before(stop, self._synced()):
                    _log.info(
                        "%d HPAs, %d pods; starting %d workers", len(self._hpas), len(self._pods), options.workers
                    )
                    workers = [tasks.create_task(self._work()) for _ in range(options.workers)]
                    await stop.wait()
                    _log.info("stopping")
                    self._queue.close()
                    await self._finish(workers)
                for task in background:
                    task.cancel()
        _log.info("stopped")

    async def _synced(self) -> None:
        await self._hpas.wait_synced()
        await self._pods.wait_synced()

    async def _finish(self, workers: list[asyncio.Task[None]]) -> None:
        """Let the workers end what they are at, and their events go out, for a bounded time."""
        _, unfinished = await asyncio.wait(workers, timeout=_FINISH_SECONDS)
        for worker in unfinished:
            worker.cancel()
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._recorder.flush()
        except TimeoutError:
            _log.warning("not all events could be sent")

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: HPAKey) -> None:
        tracked = self._hpas.get(key)
        if tracked is None:
            self._reconciler.forget(key)
            self._selectors.drop(key)
            self._said.pop(key, None)
            return
        try:
            if isinstance(tracked, RefusedHPA):
                self._selectors.drop(key)
                error: str | None = await self._reconciler.refuse(tracked)
            else:
                error = await self._reconciler.reconcile(tracked)
        except Exception:  # noqa: BLE001  # a bug, met by one HPA: the others must go on
            _log.exception("%s: internal error", key)
        else:
            self._say(key, error or "")
        self._queue.add_after(key, self._options.sync_period)

    def _say(self, key: HPAKey, error: str) -> None:
        """Log how a step ended, if that is news."""
        if error and (self._hpas.away or self._pods.away):
            # Without contact to the API server every HPA fails, and the stores have said that it is lost.
            _log.debug("%s: %s", key, error)
        elif error != self._said.get(key, ""):
            self._said[key] = error
            if error:
                _log.warning("%s: %s", key, error)
            else:
                _log.info("%s: reconciles again", key)

    def _hpa_changed(
        self, key: HPAKey, old: TrackedHPA | RefusedHPA | None, new: TrackedHPA | RefusedHPA | None
    ) -> None:
        """Schedule an HPA as Kubernetes does: a status that changed, mostly by ourselves, is no reason to hurry."""
        self._telemetry.autoscalers(len(self._hpas))
        if old is None or new is None or old.wish != new.wish:
            self._queue.add(key)
        else:
            self._queue.add_after(key, self._options.sync_period)


def _problem(store: Store[Pod]) -> str | None:
    """What is wrong with a store, for the readiness probe."""
    if not store.synced:
        return "not listed yet"
    return "no contact to the API server" if store.away else None
