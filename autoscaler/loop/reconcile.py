"""One step of one HPA: observe, decide, act.

The order of the acts is Kubernetes': write the scale, emit the events, store the status if it changed. Each may fail on
its own; the decision's `conclude` knows what a failure means for the status and for what is remembered. In dry-run and
in shadow mode neither scale nor status is written, and what is remembered follows the controller that does write them.

To store the status is an act of its own (`Ending`), because it may have to wait for its turn for longer than all else,
and who takes steps has better things to do meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from autoscaler.core.annotations import PREFIX
from autoscaler.core.conditions import INVALID_SPEC, report_invalid_spec
from autoscaler.core.config import Mode
from autoscaler.core.decision import Decision, Event, Outcome
from autoscaler.core.history import needs_initial_recommendation, record_foreign_scale
from autoscaler.core.model import HPA, HPAKey, InvalidHPA, Status
from autoscaler.core.reconcile import conclude, conclude_without_writing, decide
from autoscaler.loop.events import EventRecorder
from autoscaler.loop.histories import Histories
from autoscaler.loop.monitor import observe_reconciliation
from autoscaler.loop.observe import Observed, Observer
from autoscaler.loop.scales import ScaleClient, ScaleWriteError
from autoscaler.loop.status import StatusWriteError, StatusWriter
from autoscaler.loop.telemetry import Action, ErrorKind, Telemetry
from autoscaler.objects.hpa import RefusedHPA, TrackedHPA
from autoscaler.records.build import build_record
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.shadow import ShadowComparer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended."""

    error: str | None
    """None: well. With an error it may have scaled nevertheless."""
    superseded: bool = False
    """Whether its status was left to the next step."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left of a step when the target has been scaled: to store the status, and to tell how it all went."""

    waits: bool
    """Whether it would have to wait for its turn now."""
    finish: Callable[[asyncio.Future[None] | None], Awaitable[Ended]]
    """Do it. As StatusWriter.write, it is told when a status that only has newer metric values need not be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step that has come to its ending."""

    tracked: TrackedHPA
    mode: Mode
    observed: Observed
    decision: Decision
    scale_error: str | None
    outcome: Outcome
    started: float


class Reconciler:
    """Takes steps.

    Args:
        observer: reads.
        scales: writes the targets' scales.
        statuses: writes the HPAs' statuses.
        recorder: writes events.
        telemetry: counts.
        histories: the history of each HPA from step to step.
        decisions: keeps the last records.
        shadow: compares the decisions on HPAs in shadow mode.
        mode: what becomes of the decisions; an HPA's annotation can only restrict it.
        held: whether this process must not act on an HPA, because another controller does.
        wall_clock: the time in seconds since the epoch, for statuses and for times that come from the API.
        clock: a time in seconds that only goes forward, for histories and durations.
    """

    def __init__(
        self,
        *,
        observer: Observer,
        scales: ScaleClient,
        statuses: StatusWriter,
        recorder: EventRecorder,
        telemetry: Telemetry,
        histories: Histories,
        decisions: DecisionLog,
        shadow: ShadowComparer,
        mode: Mode = Mode.ACT,
        held: Callable[[HPAKey], bool] = lambda _: False,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer = observer
        self._scales = scales
        self._statuses = statuses
        self._recorder = recorder
        self._telemetry = telemetry
        self._histories = histories
        self._decisions = decisions
        self._shadow = shadow
        self._mode = mode
        self._held = held
        self._wall_clock = wall_clock
        self._clock = clock
        self._told: dict[HPAKey, tuple[str, ...]] = {}

    async def reconcile(self, tracked: TrackedHPA) -> Ending:
        """Take one step, all but its ending.

        Must not run twice at the same time for the same HPA; a step has not ended before its ending has.
        """
        started = self._clock()
        with self._internal_errors_counted(started):
            return await self._reconcile(tracked, started)

    async def _reconcile(self, tracked: TrackedHPA, started: float) -> Ending:
        hpa = tracked.hpa
        self._tell_problems(hpa)
        observed, decision = await self._decide(hpa)
        # Not earlier: another controller may have been noticed meanwhile.
        mode = self.mode_of(hpa)
        scale_error: str | None = None
        if mode is Mode.ACT:
            scale_error = await self._write_scale(observed, decision)
            outcome = conclude(decision, scale_error=scale_error)
        else:
            outcome = conclude_without_writing(decision)
        # Kept before anything else can fail or be cancelled: the scale may have been written.
        self._histories.keep(hpa, outcome.history)
        if mode is Mode.SHADOW:
            self._shadow.add_decision(decision)
        self._record(hpa, outcome.events)
        step = _Step(
            tracked=tracked,
            mode=mode,
            observed=observed,
            decision=decision,
            scale_error=scale_error,
            outcome=outcome,
            started=started,
        )
        waits = outcome.status is not None and not self._statuses.free
        return Ending(waits, partial(self._end, step))

    async def _end(self, step: _Step, superseded: asyncio.Future[None] | None) -> Ended:
        with self._internal_errors_counted(step.started):
            return await self._store_status(step, superseded)

    async def _store_status(self, step: _Step, superseded: asyncio.Future[None] | None) -> Ended:
        hpa, decision, outcome = step.tracked.hpa, step.decision, step.outcome
        status_error: str | None = None
        stored = True
        if outcome.status is not None:
            try:
                stored = await self._statuses.write(step.tracked, outcome.status, superseded=superseded)
                if not stored:
                    self._telemetry.status_superseded()
                    outcome = replace(outcome, status=None)
            except StatusWriteError as error:
                status_error = str(error)
                outcome = outcome.status_not_stored(hpa, status_error)
        self._record(hpa, outcome.late_events)
        if self._decisions.enabled:
            record = build_record(
                decision, outcome, scale_error=step.scale_error, status_error=status_error, mode=step.mode
            )
            self._decisions.add(record)
        observe_reconciliation(
            self._telemetry,
            decision,
            outcome,
            scale_error=step.scale_error,
            metric_seconds=step.observed.seconds,
            seconds=self._clock() - step.started,
        )
        return Ended(outcome.error, superseded=not stored)

    async def refuse(self, tracked: RefusedHPA) -> Ending:
        """Tell an HPA that it is not valid, and do nothing else; the ending's error is what is wrong with it."""
        hpa, started = tracked.hpa, self._clock()
        self._tell_problems(hpa)
        status, message = report_invalid_spec(hpa, self._now_ms())
        self._record(hpa, [Event("Warning", INVALID_SPEC, message)])
        status = status if self.mode_of(hpa) is Mode.ACT else None
        waits = status is not None and not self._statuses.free
        return Ending(waits, partial(self._end_refusal, tracked, status, message, started))

    async def _end_refusal(
        self, tracked: RefusedHPA, status: Status | None, problem: str, started: float, _: asyncio.Future[None] | None
    ) -> Ended:
        if status is not None:
            try:
                await self._statuses.write(tracked, status)
            except StatusWriteError as error:
                self._record(tracked.hpa, [Event("Warning", "FailedUpdateStatus", str(error))])
        self._telemetry.reconciled(Action.NONE, ErrorKind.SPEC, seconds=self._clock() - started)
        return Ended(problem)

    def changed(self, old: HPA | None, new: HPA) -> None:
        """An HPA is new, or has changed: where this process only looks on, its status tells what the other one does.

        Args:
            old: the HPA before; None if it is new.
            new: the HPA now.
        """
        mode = self.mode_of(new)
        if old is not None and mode is not Mode.SHADOW and self.mode_of(old) is Mode.SHADOW:
            self._shadow.remove(new.key)
            self._telemetry.no_longer_compared(new.key)
        if mode is Mode.ACT:
            return
        monotonic_ms = self._monotonic_ms()
        before = self._histories.of(new)
        # Without a step there is no memory to record_foreign_scale with.
        if before.recommendations and old is not None and old.uid == new.uid:
            after = record_foreign_scale(
                before,
                old=old.status,
                new=new.status,
                behavior=new.spec.behavior,
                now_ms=self._now_ms(),
                monotonic_ms=monotonic_ms,
            )
            if after != before:
                self._histories.keep(new, after)
        if mode is Mode.SHADOW:
            self._shadow.add_status(new, monotonic_ms)

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone: drop what is remembered of it."""
        self._histories.forget(key)
        self._shadow.remove(key)
        self._told.pop(key, None)
        self._statuses.forget(key)
        self._telemetry.forget(key)
        self._decisions.remove(key)

    def mode_of(self, hpa: HPA | InvalidHPA) -> Mode:
        """What becomes of the decisions on an HPA now: none is acted on while another controller acts on it."""
        mode = self.configured_mode_of(hpa)
        return Mode.SHADOW if mode is Mode.ACT and self._held(hpa.key) else mode

    def configured_mode_of(self, hpa: HPA | InvalidHPA) -> Mode:
        """What becomes of the decisions on an HPA by the process' mode and the HPA's annotation."""
        asked = hpa.overrides.mode
        return self._mode if asked is None or not self._mode.allows(asked) else asked

    def released(self, key: HPAKey) -> None:
        """Another controller no longer acts on an HPA, so there is nothing left to compare with."""
        self._shadow.remove(key)
        self._telemetry.no_longer_compared(key)

    async def _decide(self, hpa: HPA) -> tuple[Observed, Decision]:
        """A decision, and what it is based on; one to scale is always based on a scale that was read for it.

        So is what a memory begins with: a watch may tell of fewer replicas than there are by now.
        """
        observed = await self._observer.observe(hpa, to_scale=needs_initial_recommendation(self._histories.of(hpa)))
        decision = self._decide_on(observed)
        if decision.scale_to is not None and not observed.may_scale:
            observed = await self._observer.observe(hpa)
            decision = self._decide_on(observed)
        return observed, decision

    def _decide_on(self, observed: Observed) -> Decision:
        history = self._histories.of(observed.observation.hpa)
        return decide(observed.observation, history, self._now_ms(), monotonic_ms=self._monotonic_ms())

    async def _write_scale(self, observed: Observed, decision: Decision) -> str | None:
        if decision.scale_to is None or observed.target is None:
            return None
        try:
            await self._scales.write(observed.target, decision.scale_to)
        except ScaleWriteError as error:
            return str(error)
        hpa = observed.observation.hpa
        change = f"from {decision.current_replicas} to {decision.scale_to} replicas"
        _log.info("%s: scaled %s %s: %s", hpa.key, hpa.target, change, decision.rescale_reason)
        return None

    def _record(self, hpa: HPA | InvalidHPA, events: Iterable[Event]) -> None:
        if self.mode_of(hpa) is not Mode.SHADOW:
            for event in events:
                self._recorder.record(hpa, event.type, event.reason, event.message)

    def _tell_problems(self, hpa: HPA | InvalidHPA) -> None:
        """Say what is wrong with an HPA's annotations, if that is news."""
        problems = hpa.overrides.problems
        asked = hpa.overrides.mode
        if asked is not None and not self._mode.allows(asked):
            limit = f"this process runs with --mode={self._mode}, which an annotation can only restrict"
            problems = (*problems, f'annotation {PREFIX}mode: "{asked}" is ignored: {limit}')
        if problems == self._told.get(hpa.key, ()):
            return
        self._told[hpa.key] = problems
        for problem in problems:
            _log.warning("%s: %s", hpa.key, problem)
            self._record(hpa, [Event("Warning", "InvalidAnnotation", problem)])

    @contextmanager
    def _internal_errors_counted(self, started: float) -> Iterator[None]:
        """Count a reconciliation that ends by a bug as what it is, an internal error."""
        try:
            yield
        except Exception:
            self._telemetry.reconciled(Action.NONE, ErrorKind.INTERNAL, seconds=self._clock() - started)
            raise

    def _now_ms(self) -> int:
        return round(self._wall_clock() * 1000)

    def _monotonic_ms(self) -> int:
        return round(self._clock() * 1000)
