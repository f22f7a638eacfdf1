"""The running autoscaler: everything that lives as long as the process, and who owns it.

    stores      HPAs and pods of all namespaces, kept up to date by watches; ReplicaSets, if an HPA asks for them;
                Deployments and StatefulSets, if there are many HPAs on them
    queue       which HPA is next: a new one or a changed spec at once, any other a sync period after its last step
    workers     take an HPA from the queue and reconcile it
    recorder    sends events beside the workers
    memory      what is remembered of each HPA; saved beside the workers for the next process
    elector     says when this process may act
    decisions   the records of the last steps, for whoever asks why; and a file of all of them
    shadow      compares decisions with the built-in controller's, of HPAs in shadow mode
    foreign     notices HPAs that the built-in controller writes, which are then left to it
    endpoint    health and metrics over HTTP

One TaskGroup owns all tasks: should one of them end by a bug, the process ends and is started anew, rather than living
on by half. A failing HPA is no such thing: its worker says so, once for each new reason, and goes on.

Of several processes one acts. The others stand by with stores that are up to date, so that they can take over at once.
Where kube-controller-manager ends when it loses its lease, this process stands by again: the TaskGroup of its term has
then ended all that acts, and a relist of all pods in an API server that just had a bad time helps nobody.

Thousands of HPAs are not reconciled all at once and then not at all: when a process begins to act it spreads their
first steps over a sync period, those of one namespace side by side, and there they stay.

On SIGTERM or Ctrl-C workers take no further HPA, and those in flight get a few seconds to finish, so that a scale that
was written gets its status and event; where they would have to wait for that, statuses that only have newer metric
values are left out. Then the memory is saved and the lease given back, in this order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial

from autoscaler.core.annotations import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.config import Mode
from autoscaler.core.model import HPAKey
from autoscaler.core.observation import Pod
from autoscaler.loop.debug import decision_routes, shadow_routes
from autoscaler.loop.error_log import ErrorLog
from autoscaler.loop.events import EventRecorder
from autoscaler.loop.foreign_writer import EVENT_MESSAGE, EVENT_REASON, ForeignWriterDetector
from autoscaler.loop.health import application, serving
from autoscaler.loop.histories import Histories, HistoryEntry
from autoscaler.loop.hpas import HPAs
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.observe import Observer, Staleness
from autoscaler.loop.options import Options
from autoscaler.loop.pod_owners import ReplicaSets
from autoscaler.loop.queue import WorkQueue
from autoscaler.loop.reconcile import Ending, Reconciler
from autoscaler.loop.saved_history import SavedHistoryStore
from autoscaler.loop.scales import ScaleClient
from autoscaler.loop.selector_index import PodIndex, SelectorIndex
from autoscaler.loop.sharding import ShardLeases
from autoscaler.loop.status import StatusWriter
from autoscaler.loop.telemetry import Telemetry
from autoscaler.loop.throttle import ThrottledClient, TokenBucket, Urgency
from autoscaler.loop.workers import Workers, workers_for
from autoscaler.loop.workloads import Workloads
from autoscaler.objects.hpa import RefusedHPA, TrackedHPA
from autoscaler.objects.workloads import PODS, track_pod
from autoscaler.records.audit import audit_log
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.shadow import ShadowComparer
from kube.client import KubeClient
from kube.election import LeaderElector, unique_identity
from kube.mapping import RestMapper
from kube.process import freeze_gc, stopped_by_signals
from kube.store import Store
from kube.tasks import done_before

_log = logging.getLogger(__name__)

# Together, and with the time to give the lease back, less than the five seconds that an impatient operator waits.
_FINISH_SECONDS = 2.5
_FLUSH_SECONDS = 1.0
# Other shards' HPAs are only looked at for their selectors, which hardly ever change while their HPAs do not.
_OTHERS_SYNC_PERIODS = 10
# HPAs that come up within a tick are handed out together.
_TICK_SECONDS, _TICKS_PER_PERIOD = 0.1, 10
# The first steps begin this much apart, or less where there are so many HPAs that they would take a whole period.
_APART_SECONDS = 0.01
# Within this time the watch brings a status that we have written.
_SETTLE_SECONDS = 1.0


async def run(options: Options) -> None:
    """Run an autoscaler until SIGTERM or SIGINT.

    Raises:
        KubeConfigError: there is no usable configuration.
        AuditLogError: the audit file cannot be opened.
        OSError: the endpoint's address cannot be bound.
    """
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.enter_context(stopped_by_signals(stop))
        client = await KubeClient.connect(
            options.kubeconfig, user_agent="milliscale-autoscaler", bookmark_seconds=options.bookmark_seconds
        )
        await stack.enter_async_context(client)
        on_record, telemetry = None, Telemetry()
        if options.decision_log.audit is not None:
            audit = audit_log(options.decision_log.audit, on_dropped=telemetry.audit_record_lost)
            on_record = (await stack.enter_async_context(audit)).write
        await Controller(client, options, on_record=on_record, telemetry=telemetry).run(stop)


class Controller:
    """An autoscaler on one API server."""

    def __init__(
        self,
        client: KubeClient,
        options: Options,
        *,
        on_record: Callable[[bytes], None] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Nothing begins before `run`; `on_record` is told the record of each step, as JSON."""
        self._options = options
        self._shard = options.availability.shard
        self._telemetry = telemetry or Telemetry()
        self._telemetry.about_client(client)
        tick = min(_TICK_SECONDS, options.sync_period / _TICKS_PER_PERIOD)
        self._queue = WorkQueue(tick=tick, on_take=self._telemetry.started)
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
        self._replica_sets = ReplicaSets(client)
        self._own_hpas = 0
        self._shard_leases: ShardLeases | None = None
        self._elector = self._candidate(client)
        may_write = self._elector.leading if self._elector else lambda: True

        def new_budget() -> TokenBucket:
            return TokenBucket(qps=options.qps, burst=options.burst)

        def throttled(
            bucket: TokenBucket, *, reads: Urgency = Urgency.OTHER, writes: Urgency = Urgency.OTHER
        ) -> ThrottledClient:
            return ThrottledClient(
                client,
                bucket,
                reads=reads,
                writes=writes,
                may_write=may_write,
                on_error=self._request_failed,
            )

        self._decisions = DecisionLog(options.decision_log.max_per_hpa, on_record=on_record)
        self._memory = Histories()
        self._memory_store: SavedHistoryStore | None = None
        if options.availability.saved_history is not None:
            self._memory_store = SavedHistoryStore(
                throttled(TokenBucket(qps=0, burst=1)),
                location=options.availability.saved_history,
                shard=self._shard,
                longest_window_ms=options.config.downscale_stabilization_ms,
            )
        mapper = RestMapper(client)
        budget = new_budget()
        objects = throttled(budget)
        self._workloads = Workloads(client)
        scale_client = throttled(budget, reads=Urgency.SCALE_READ, writes=Urgency.SCALE_WRITE)
        scales = ScaleClient(scale_client, mapper, self._workloads)
        metrics = MetricsClient(
            resource=throttled(new_budget()),
            custom=throttled(new_budget()),
            external=throttled(new_budget()),
            mapper=mapper,
            pods=self._pod_index,
            version_seconds=options.sync_period,
        )
        self._recorder = EventRecorder(objects)
        self._observer = Observer(
            scales=scales,
            metrics=metrics,
            pods=self._pod_index,
            selectors=self._selectors,
            config=options.config,
            controllers=self._replica_sets.controllers,
            stale=Staleness(
                hpa=self._hpas.stale,
                pods=lambda: self._pods.stale,
                replica_sets=lambda: self._replica_sets.stale,
            ),
        )
        self._shadow = ShadowComparer(
            sync_period=options.sync_period, config=options.config, on_comparison=self._telemetry.compared
        )
        self._reconciler = Reconciler(
            observer=self._observer,
            scales=scales,
            statuses=StatusWriter(objects),
            recorder=self._recorder,
            telemetry=self._telemetry,
            histories=self._memory,
            decisions=self._decisions,
            shadow=self._shadow,
            mode=options.mode,
            held=lambda key: self._foreign.holds(key),
        )
        self._foreign = ForeignWriterDetector(
            allowed=options.allow_foreign_controller,
            on_write=self._telemetry.rival_wrote,
            on_release=self._released,
        )
        self._workers = Workers(self._queue, step=self._step, wanted=lambda: self._workers_wanted)
        self._acts = may_write
        self._complaints = ErrorLog(away=lambda: self._hpas.away or self._pods.disconnected)

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop` is set.

        Raises:
            OSError: the endpoint's address cannot be bound.
        """
        options = self._options
        app = application(
            self._telemetry,
            live={"leaderElection": self._elector.problem} if self._elector else {},
            ready={"hpas": lambda: self._hpas.problem, "pods": lambda: self._pods.problem},
            notes={
                "foreignWriter": lambda: self._foreign.problem,
                "shards": lambda: self._shard_leases.problem if self._shard_leases else None,
            },
            pages=[
                *decision_routes(self._decisions, options.decision_log.debug_access),
                *shadow_routes(self._shadow, options.decision_log.debug_access),
            ],
        )
        async with serving(app, host=options.bind_address, port=options.metrics_port) as port:
            _log.info("health and metrics on %s port %d", options.bind_address, port)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._hpas.run()),
                    tasks.create_task(self._pods.run()),
                    tasks.create_task(self._replica_sets.run()),
                    tasks.create_task(self._workloads.run()),
                    tasks.create_task(self._recorder.run()),
                ]
                if await done_before(stop, self._synced()):
                    _log.info("%d HPAs, %d pods", len(self._hpas), len(self._pods))
                    freeze_gc()
                    if self._elector is None:
                        await self._act(stop)
                    else:
                        await self._elector.run(lambda: self._act(stop), stop=stop)
                for task in background:
                    task.cancel()
        _log.info("stopped")

    async def _synced(self) -> None:
        await self._hpas.wait_synced()
        await self._pods.wait_synced()

    def _candidate(self, client: KubeClient) -> LeaderElector | None:
        settings = self._options.availability.election
        if settings is None:
            return None

        def changed(leading: bool) -> None:
            self._telemetry.leads(settings.name, leading=leading)

        changed(False)
        others = self._shard_leases = ShardLeases(client, settings, shard=self._shard)
        self._telemetry.waits_for_shards(lambda: others.problem is not None)
        return LeaderElector(
            client,
            settings,
            identity=unique_identity(),
            on_change=changed,
            annotations=others.annotations,
            may_take=others.may_take,
        )

    async def _act(self, stop: asyncio.Event) -> None:
        """Take steps until `stop` is set; cancelled when the lead is lost."""
        if not await done_before(stop, self._restore()):
            return
        # Known from steps that others may have taken since; every HPA is due for one now.
        self._selectors.clear()
        self._spread()
        _log.info("starting %d workers", self._workers_wanted)
        async with asyncio.TaskGroup() as tasks:
            saving = tasks.create_task(self._save_often())
            working = tasks.create_task(self._workers.run(stop))
            await stop.wait()
            _log.info("stopping")
            saving.cancel()
            await self._finish(working)

    def _spread(self) -> None:
        """Schedule the first steps, evenly and by namespace."""
        # What became due while another led is not late.
        self._queue.restart()
        keys = sorted(tracked.hpa.key for tracked in self._hpas.list())
        apart = min(_APART_SECONDS, self._options.sync_period / max(1, len(keys)))
        for number, key in enumerate(keys):
            self._queue.move(key, number * apart)

    @property
    def _workers_wanted(self) -> int:
        return self._options.workers or workers_for(self._own_hpas)

    async def _restore(self) -> None:
        """Remember what whoever led before remembered, so that nothing is scaled down early."""
        if self._memory_store is None:
            self._memory.restore({})
            return
        longest_ms = max(MAX_STABILIZATION_WINDOW_MS, self._options.config.downscale_stabilization_ms)
        oldest_ms = time.monotonic() * 1000 - longest_ms

        def matters(key: HPAKey, remembered: HistoryEntry) -> bool:
            # An HPA that is not there may be of an API whose watch has yet to begin.
            known = remembered.latest_ms >= oldest_ms or self._hpas.get(key) is not None
            return known and self._shard.owns(key)

        saved = await self._memory_store.load()
        self._memory.restore({key: each for key, each in saved.items() if matters(key, each)})
        _log.info("remembering %d HPAs", len(self._memory))
        if len(self._memory):
            # From here on what was saved is not all that was done, should this process be killed.
            await self._memory_store.save(self._memory, final=False)

    async def _save_often(self) -> None:
        if self._memory_store is not None:
            await self._memory_store.run(self._memory)

    async def _finish(self, working: asyncio.Task[None]) -> None:
        """Let the workers end what they are at, their events go out and the memory be saved, for a bounded time."""
        await asyncio.wait([working], timeout=_FINISH_SECONDS)
        unfinished = self._workers.busy
        working.cancel()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_in_time(self._recorder.close(), otherwise="not all events could be sent"))
            if self._memory_store is not None:
                # A step that was broken off may have scaled without being remembered.
                saving = self._memory_store.save(self._memory, final=not unfinished)
                tasks.create_task(_in_time(saving, otherwise="what is remembered of the HPAs could not be saved"))

    async def _step(self, key: HPAKey) -> Callable[[], Coroutine[None, None, None]] | None:
        """One step of an HPA; what is left of it, if its status has to wait for its turn."""
        tracked = self._hpas.get(key)
        if tracked is None:
            self._reconciler.forget(key)
            self._selectors.drop(key)
            self._complaints.forget(key)
            return None
        try:
            if not self._shard.owns(key):
                await self._note_others(tracked)
                self._queue.add_after(key, _OTHERS_SYNC_PERIODS * self._options.sync_period)
                return None
            if isinstance(tracked, RefusedHPA):
                self._selectors.drop(key)
                ending = await self._reconciler.refuse(tracked)
            else:
                ending = await self._reconciler.reconcile(tracked)
        except Exception:  # noqa: BLE001  # a bug, met by one HPA: the others must go on
            _log.exception("%s: internal error", key)
        else:
            if ending.waits:
                return partial(self._end_later, key, ending, self._period(tracked))
            await self._end(key, ending)
        self._queue.add_after(key, self._period(tracked))
        return None

    async def _end(self, key: HPAKey, ending: Ending, superseded: asyncio.Future[None] | None = None) -> bool:
        """End a step; False: its status was left to the next one."""
        try:
            ended = await ending.finish(superseded)
        except Exception:  # noqa: BLE001  # as above
            _log.exception("%s: internal error", key)
            return True
        self._complaints.ended(key, ended.error or "")
        return not ended.superseded

    async def _end_later(self, key: HPAKey, ending: Ending, period: float) -> None:
        """End a step whose status waits for its turn, at the latest when the next is due if it can be left out.

        The next is due as if it had not waited, but must not begin before the watch has brought what was written.
        """
        self._queue.add_after(key, period)
        if await self._end(key, ending, self._queue.due(key)):
            self._queue.postpone(key, min(period, _SETTLE_SECONDS))

    def _period(self, tracked: TrackedHPA | RefusedHPA) -> float:
        """Seconds from the end of an HPA's step to the start of its next."""
        return tracked.hpa.overrides.sync_period or self._options.sync_period

    async def _note_others(self, tracked: TrackedHPA | RefusedHPA) -> None:
        """See which pods an HPA of another shard controls: none of ours may control them, too."""
        if isinstance(tracked, RefusedHPA):
            self._selectors.drop(tracked.hpa.key)
        else:
            await self._observer.note(tracked.hpa)

    def _released(self, key: HPAKey) -> None:
        """An HPA has been left to the built-in controller, which does not write it any more."""
        self._telemetry.held(self._foreign.held)
        self._reconciler.released(key)

    def _request_failed(self, group: str, code: int | None) -> None:
        self._telemetry.request_failed(group, code)
        if code is None:
            self._complaints.unanswered()

    def _hpa_changed(
        self, key: HPAKey, old: TrackedHPA | RefusedHPA | None, new: TrackedHPA | RefusedHPA | None
    ) -> None:
        """Schedule an HPA as Kubernetes does: a status that changed, mostly by ourselves, is no reason to hurry."""
        own = self._shard.owns(key)
        if own:
            self._own_hpas += (new is not None) - (old is not None)
            self._telemetry.autoscalers(self._own_hpas)
            if new is None:
                self._foreign.forget(key)
                self._telemetry.held(self._foreign.held)
            if isinstance(new, TrackedHPA):
                acting = self._acts() and self._reconciler.configured_mode_of(new.hpa) is Mode.ACT
                if self._foreign.changed(key, new.foreign_write_time, acting=acting):
                    self._telemetry.held(self._foreign.held)
                    self._recorder.record(new.hpa, "Warning", EVENT_REASON, EVENT_MESSAGE)
                self._reconciler.changed(old.hpa if isinstance(old, TrackedHPA) else None, new.hpa)
        if old is None or new is None or old.reconcile_trigger != new.reconcile_trigger:
            self._queue.add(key)
        elif not own:
            # Such as one whose target was at zero, and which controls its pods again.
            if old.hpa.status.conditions != new.hpa.status.conditions:
                self._queue.add(key)
        else:
            self._queue.add_after(key, self._period(new))


async def _in_time(work: Coroutine[None, None, None], *, otherwise: str) -> None:
    """Do the last of some work, or say that it took too long."""
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await work
    except TimeoutError:
        _log.warning(otherwise)
