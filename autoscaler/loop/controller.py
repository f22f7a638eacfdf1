"""The controller: it owns all parts that live as long as the process, and schedules the reconciliations.

The stores of HPAs, pods and workloads are kept up to date by watches. The queue hands out new HPAs and changed specs at
once, all others a sync period after their last reconciliation; workers reconcile them. Events are sent and histories
saved in the background. One TaskGroup owns all tasks: an unexpected exception in a task ends the process, which is then
restarted. An error of one HPA is logged, and the worker continues.

If several processes run, the leader acts. The others keep their stores up to date, so that they can take over at once.
A new leader spreads the first reconciliations over a sync period, those of one namespace side by side. On SIGTERM or
Ctrl-C reconciliations in flight get a few seconds; then the histories are saved and the Lease is released.

Upstream: podautoscaler.HorizontalController.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from autoscaler.core.config import Mode
from autoscaler.core.model import HPA, HPAKey
from autoscaler.core.observation import Pod
from autoscaler.loop.clients import ThrottledClients
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.eager import EagerEvaluator
from autoscaler.loop.endpoint import debug_page, probe_handler, serving
from autoscaler.loop.foreign_writer import EVENT_REASON, ForeignWriterDetector, event_message
from autoscaler.loop.histories import LIMIT_BYTES, Histories
from autoscaler.loop.hpas import HPAs
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.observe import Observer
from autoscaler.loop.options import Options
from autoscaler.loop.pod_owners import PodIndex, ReplicaSets
from autoscaler.loop.reconcile import Reconciler, object_reference
from autoscaler.loop.saved_history import SavedHistoryStore
from autoscaler.loop.scales import ScaleClient, Workloads
from autoscaler.loop.selector_index import SelectorIndex
from autoscaler.loop.sharding import ShardLeases
from autoscaler.loop.telemetry import Action, ErrorKind, Telemetry
from autoscaler.objects.workloads import PODS, track_pod
from autoscaler.records.decision_log import DecisionLog, uncompressed
from autoscaler.records.metric_lookup import MetricNames, adapter_explanation
from autoscaler.records.record import DecisionRecord
from autoscaler.records.shadow import ShadowComparer
from autoscaler.ui.history import PrometheusHistory
from autoscaler.ui.sources import Sources, WhatIf
from kube.aio.fairness import enter_namespace
from kube.aio.tasks import done_before
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.cache.store import Store
from kube.controller.election import LeaderElector, unique_identity
from kube.controller.error_log import ErrorLog
from kube.controller.events import EventRecorder
from kube.controller.workqueue import WorkQueue, run_workers
from kube.process.runtime import freeze_gc, watch_loop
from kube.serving.health import Health

_log = logging.getLogger(__name__)

# HPAs that are due within a tick are handed out together.
_TICK_SECONDS, _TICKS_PER_PERIOD = 0.1, 10


class Controller:
    """An autoscaler on one API server; `on_record` is called with the record of each decision, as JSON."""

    def __init__(
        self,
        client: KubeClient,
        options: Options,
        *,
        on_record: Callable[[bytes], None] | None = None,
        telemetry: Telemetry | None = None,
        what_if: WhatIf | None = None,
    ) -> None:
        self._client = client
        self._options = options
        settings = self._settings = options.settings
        self._shard = options.availability.shard
        self._telemetry = telemetry or Telemetry()
        self._telemetry.register_client(client)
        self._own_hpas = self._eager_hpas = 0
        self._queue: WorkQueue[HPAKey] | None = None  # while this process acts
        self._pod_index = PodIndex()
        self._selectors = SelectorIndex()
        self._hpas = HPAs(
            client,
            required=options.hpa_apis,
            optional=options.optional_hpa_apis,
            scale_to_zero=options.config.scale_to_zero,
            on_change=self._hpa_changed,
        )
        self._pods: Store[Pod] = Store(client, PODS, track_pod, on_change=self._pod_index.apply)
        self._replica_sets = ReplicaSets(client)
        self._workloads = Workloads(client, enough=settings.reconciliation.watched_from)
        self._shard_leases: ShardLeases | None = None
        self._elector = self._create_elector(client)
        self._is_leader = self._elector.leading if self._elector else lambda: True

        self._clients = ThrottledClients(
            client,
            rate_limit=lambda hpas: options.rate_limit_for(hpas, self._eager_hpas),
            in_flight=options.metrics_in_flight_for,
            metrics_seconds=settings.reconciliation.metrics_seconds,
            may_write=self._is_leader,
            on_error=self._request_failed,
        )
        mapper = RestMapper(client)
        scales = ScaleClient(self._clients.scales, mapper, self._workloads)
        syncs = (self._clients.resource_metrics, self._clients.custom_metrics, self._clients.external_metrics)
        self._observer, eager_observer = (
            Observer(
                scales=scales,
                metrics=MetricsClient(
                    resource=resource,
                    custom=custom,
                    external=external,
                    mapper=mapper,
                    pods=self._pod_index,
                    version_seconds=options.sync_period,
                    lookup_seconds=settings.reconciliation.version_lookup_seconds,
                    coalescing=settings.coalescing,
                ),
                pods=self._pod_index,
                selectors=self._selectors,
                config=options.config,
                controllers=self._replica_sets.controllers,
                stale={
                    "horizontalpodautoscalers": self._hpas.stale,
                    "pods": lambda key: self._pods.stale or self._pods.is_unknown(key.namespace),
                    "replicasets": lambda _: self._replica_sets.stale,
                },
            )
            for resource, custom, external in (syncs, self._clients.eager)
        )
        self._telemetry.watched("horizontalpodautoscalers", lambda: self._hpas.any_stale)
        self._telemetry.unreadable_hpas.set_function(lambda: self._hpas.unknown)
        self._telemetry.watched("pods", lambda: self._pods.stale)
        self._telemetry.watched("replicasets", lambda: self._replica_sets.stale)
        self._histories, clocks = Histories(), Clocks()
        self._saved_history: SavedHistoryStore | None = None
        if options.availability.saved_history is not None:
            self._saved_history = SavedHistoryStore(
                self._clients.unlimited,
                location=options.availability.saved_history,
                shard=self._shard,
                longest_window_ms=options.config.downscale_stabilization_ms,
                settings=settings.history,
                clocks=clocks,
            )
        self._recorder = EventRecorder(
            self._clients.objects, component="horizontal-pod-autoscaler", settings=settings.events
        )
        self._what_if = what_if
        self._decisions = DecisionLog(
            options.decision_log.max_per_hpa,
            max_bytes=settings.decisions.kept_bytes,
            on_record=on_record,
        )
        self._shadow = ShadowComparer(
            sync_period=options.sync_period, config=options.config, on_comparison=self._telemetry.compared
        )
        self._foreign = ForeignWriterDetector(
            allowed=options.allow_foreign_controller,
            on_write=self._telemetry.foreign_status_writes.inc,
            on_release=lambda key: self._reconciler.stop_comparing(key),
        )
        self._telemetry.foreign_hpas.set_function(lambda: len(self._foreign))
        self._reconciler = Reconciler(
            observer=self._observer,
            scales=scales,
            client=self._clients.objects,
            recorder=self._recorder,
            telemetry=self._telemetry,
            histories=self._histories,
            decisions=self._decisions,
            shadow=self._shadow,
            mode=options.mode,
            is_foreign=self._foreign.is_foreign,
            on_decision=self._foreign.decided,
            on_reconciled=lambda *reconciled: self._eager.decided(*reconciled),
            clocks=clocks,
        )
        self._eager = EagerEvaluator(
            hpa=self._hpas.get,
            is_eager=options.is_eager,
            observer=eager_observer,
            evaluate=self._reconciler.evaluate,
            scale_up=self._scale_up_early,
            on_evaluation=self._telemetry.eagerly_evaluated,
            max_delay=options.sync_period,
            settings=settings.eager,
        )
        self._error_log = ErrorLog(disconnected=lambda: self._hpas.disconnected or self._pods.disconnected)

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop` is set.

        Raises:
            ListenError: the endpoint's address, or the pages', cannot be bound.
            TLSError, TrustError: the certificates of the pages cannot be used.
        """
        options = self._options
        health = Health(
            live={"leaderElection": self._elector.problem} if self._elector else {},
            ready={"hpas": lambda: self._hpas.problem, "pods": lambda: self._pods.problem},
            notes={
                "foreignWriter": lambda: self._foreign.problem,
                "shards": lambda: self._shard_leases.problem if self._shard_leases else None,
            },
        )
        page = debug_page(self._decisions, self._shadow, options.decision_log.debug_access, flags=options.flags)
        handler = probe_handler(self._telemetry.render, health, page=page)
        async with serving(handler, host=options.bind_address, port=options.metrics_port) as port:
            _log.info("health and metrics on %s port %d", options.bind_address, port)
            async with self._pages_served(), asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(each.run())
                    for each in (self._hpas, self._pods, self._replica_sets, self._workloads, self._recorder)
                ]
                background.append(tasks.create_task(watch_loop(self._telemetry.loop_lag.observe)))
                if await done_before(stop, self._wait_synced()):
                    _log.info("%d HPAs, %d pods", len(self._hpas), len(self._pods))
                    freeze_gc()
                    if self._elector is None:
                        await self._act(stop)
                    else:
                        await self._elector.run(lambda: self._act(stop), stop=stop)
                for task in background:
                    task.cancel()
        _log.info("stopped")

    def _pages_served(self) -> AbstractAsyncContextManager[None]:
        """Serve the web pages, if they have an address."""
        if self._options.ui_address is None or self._what_if is None:
            return nullcontext()
        from autoscaler.loop.pages import pages_served  # templates and charts take memory

        sources = Sources(
            hpas=self._hpas.list,
            hpa=self._hpas.get,
            mode_of=self._reconciler.mode_of,
            is_foreign=self._foreign.is_foreign,
            owns=lambda key: self._shard.owns(key.namespace, key.name),
            is_leader=self._is_leader,
            decisions=self._decisions,
            version=lambda: self._hpas.changes + self._decisions.added,
            config=self._options.config,
            sync_period=self._options.sync_period,
            what_if=self._what_if,
            what_if_settings=self._settings.what_if,
            problem=lambda: self._hpas.problem,
            metric_names=MetricNames(self._client.get),
            explain_metric=partial(adapter_explanation, self._client),
            adapter_ui_url=self._options.adapter_ui_url,
            history=None if self._options.prometheus_url is None else PrometheusHistory(self._options.prometheus_url),
        )
        return pages_served(
            sources,
            self._options.ui_address,
            self._options,
            client=self._client,
            registry=self._telemetry.registry,
        )

    async def _wait_synced(self) -> None:
        await self._hpas.wait_synced()
        await self._pods.wait_synced()

    def _create_elector(self, client: KubeClient) -> LeaderElector | None:
        settings = self._options.availability.election
        if settings is None:
            return None
        self._telemetry.leader_changed(settings.name, is_leader=False)
        leases = self._shard_leases = ShardLeases(client, settings, shard=self._shard)
        self._telemetry.waiting_for_shards.set_function(lambda: float(leases.problem is not None))
        return LeaderElector(
            client,
            settings,
            identity=unique_identity(),
            on_change=lambda is_leader: self._telemetry.leader_changed(settings.name, is_leader=is_leader),
            annotations=leases.annotations,
            may_take=leases.may_take,
        )

    async def _act(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop` is set; cancelled when the Lease is lost."""
        if not await done_before(stop, self._restore()):
            return
        # Selectors from an earlier term are out of date; each reconciliation adds the HPA's selector.
        self._selectors.clear()
        queue = self._queue = self._spread()
        _log.info("starting %d workers", self._options.workers_for(self._own_hpas))
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [
                    tasks.create_task(run_workers(queue, partial(self._sync, queue), stop=stop)),
                    tasks.create_task(self._eager.run(stop)),
                ]
                background = []
                if self._saved_history is not None:
                    background = [tasks.create_task(self._saved_history.run(self._histories))]
                await stop.wait()
                _log.info("stopping")
                for task in background:
                    task.cancel()
                await self._finish(queue, working)
        finally:
            self._queue = None

    async def _restore(self) -> None:
        """Restore the histories that earlier leaders saved, so that nothing is scaled down early."""
        if self._saved_history is None:
            self._histories.restore({})
        else:
            await self._saved_history.restore(
                self._histories, exists=self._exists, on_decisions=self._restore_decisions
            )

    def _restore_decisions(self, records: list[DecisionRecord]) -> None:
        """Keep what an earlier leader decided on the HPAs that exist."""
        hpas = {hpa.key: hpa.uid for hpa in self._hpas.list()}
        self._decisions.restore(record for record in records if hpas.get(record.key) == record.uid)

    def _exists(self, key: HPAKey) -> bool | None:
        """True for an HPA of this shard that exists; None: its API is not listed yet, or not reconciled."""
        if not self._shard.owns(key.namespace, key.name):
            return False
        return self._hpas.get(key) is not None or (False if self._hpas.synced(key) else None)

    def _spread(self) -> WorkQueue[HPAKey]:
        """Return a queue with all HPAs: first reconciliations over a sync period, in the order of the namespaces."""
        options = self._options
        queue: WorkQueue[HPAKey] = WorkQueue(
            tick=min(_TICK_SECONDS, options.sync_period / _TICKS_PER_PERIOD),
            namespace=lambda key: key.namespace,
            limit=lambda: options.workers_for(self._own_hpas),
            on_lag=self._telemetry.schedule_lag.observe,
        )
        keys = sorted(hpa.key for hpa in self._hpas.list())
        interval = min(self._settings.reconciliation.start_interval_seconds, options.sync_period / max(1, len(keys)))
        for number, key in enumerate(keys):
            queue.add_after(key, number * interval)
        return queue

    async def _finish(self, queue: WorkQueue[HPAKey], working: list[asyncio.Task[None]]) -> None:
        """Wait for reconciliations in flight, send their events and save the histories, all for a bounded time."""
        await asyncio.wait(working, timeout=self._settings.shutdown.reconcile_seconds)
        unfinished = queue.processing
        for task in working:
            task.cancel()
        try:
            async with asyncio.timeout(self._settings.shutdown.flush_seconds), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._recorder.close())
                if self._saved_history is not None:
                    # A cancelled reconciliation may have scaled without a scale event in the history.
                    kept = self._decisions.newest_first(max_bytes=LIMIT_BYTES)
                    tasks.create_task(
                        self._saved_history.save(
                            self._histories, final=not unfinished, decisions=lambda: [*map(uncompressed, kept)]
                        )
                    )
        except TimeoutError:
            _log.warning("stopping before all events were sent and the history was saved")

    async def _sync(self, queue: WorkQueue[HPAKey], key: HPAKey) -> None:
        """Reconcile an HPA, and schedule it again. Upstream: podautoscaler.reconcileKey."""
        enter_namespace(key.namespace)
        hpa = self._hpas.get(key)
        if hpa is None:
            self._forget(key)
            return
        own, started = self._shard.owns(key.namespace, key.name), time.monotonic()
        try:
            if hpa.problem:
                self._selectors.drop(key)
                error = await self._reconciler.refuse(hpa) if own else None
            elif own:
                error = await self._reconciler.reconcile(hpa)
            else:
                # No HPA of this shard may control the same pods.
                await self._observer.note(hpa)
                error = None
        except Exception:  # noqa: BLE001  # a bug: the other HPAs must go on
            _log.exception("%s: internal error", key)
            self._telemetry.reconciled(Action.NONE, ErrorKind.INTERNAL, seconds=time.monotonic() - started)
        else:
            self._error_log.reconciled(key, error)
        others = self._settings.reconciliation.other_shards_periods * self._options.sync_period
        queue.add_after(key, self._period(hpa) if own else others)

    async def _scale_up_early(self, hpa: HPA) -> bool:
        """Reconcile an HPA before its sync is due, if that scales it up; return whether it did, without an error."""
        queue = self._queue
        if queue is None or not queue.lock(hpa.key):
            return False
        try:
            return await self._reconciler.scale_up_early(hpa, timeout=self._settings.eager.timeout_seconds)
        finally:
            queue.unlock(hpa.key)

    def _forget(self, key: HPAKey) -> None:
        """Drop all state of an HPA that was deleted."""
        self._reconciler.forget(key)
        self._selectors.drop(key)
        self._eager.forget(key)
        self._error_log.forget(key)

    def _period(self, hpa: HPA) -> float:
        """Seconds from the end of an HPA's reconciliation to the start of its next one."""
        return hpa.overrides.sync_period or self._options.sync_period

    def _hpa_changed(self, key: HPAKey, old: HPA | None, new: HPA | None) -> None:
        """Schedule an HPA that was created, changed or deleted.

        A changed status, usually written by this process, does not trigger a reconciliation. Upstream:
        podautoscaler.updateHPA.
        """
        own = self._shard.owns(key.namespace, key.name)
        if own:
            self._own_hpa_changed(key, old, new)
        if self._queue is None:  # `_spread` schedules all HPAs
            if new is None:
                self._forget(key)
        elif old is None or new is None or old.reconcile_trigger != new.reconcile_trigger:
            self._queue.add(key)
        elif not own and old.status.conditions != new.status.conditions:
            # It belongs to another shard. Its selector may matter again, for example after its target was at zero.
            self._queue.add(key)

    def _own_hpa_changed(self, key: HPAKey, old: HPA | None, new: HPA | None) -> None:
        was_eager, is_eager = (each is not None and self._options.is_eager(each) for each in (old, new))
        if old is None or new is None or was_eager is not is_eager:
            self._own_hpas += (new is not None) - (old is not None)
            self._eager_hpas += is_eager - was_eager
            self._telemetry.hpas.set(self._own_hpas)
            self._clients.resize(self._own_hpas)
            self._recorder.resize(self._own_hpas)
        if new is None:
            self._foreign.forget(key)
        elif not new.problem:
            acting = self._reconciler.configured_mode_of(new) is Mode.ACT
            # A standby notes it for the time when it is leader.
            if self._foreign.changed(key, new.foreign_write, acting=acting) and self._is_leader():
                message = event_message(new.foreign_write[1])
                self._recorder.record(object_reference(new), "Warning", EVENT_REASON, message)
            self._reconciler.changed(None if old is None or old.problem else old, new)

    def _request_failed(self, group: str, code: int | None) -> None:
        self._telemetry.request_failed(group, code)
        if code is None:
            self._error_log.no_response()
