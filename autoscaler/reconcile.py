"""One step of one HPA: observe, decide, act.

The order of the acts is Kubernetes': write the scale, emit the events, store the status if it changed. Each may fail on
its own; the decision's `conclude` knows what a failure means for the status and for what is remembered.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from autoscaler.decide import conclude, decide
from autoscaler.evaluate import unanswerable
from autoscaler.model import ExternalMetric, InvalidMetric, ObjectMetric, PodsMetric, ResourceMetric
from autoscaler.refusal import INVALID_SPEC, refuse
from autoscaler.scales import ScaleWriteError
from autoscaler.status import StatusWriteError
from autoscaler.telemetry import Action, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autoscaler.decide import Decision, Event
    from autoscaler.evaluate import Evaluation
    from autoscaler.events import EventRecorder
    from autoscaler.memory import Memory
    from autoscaler.model import HPA, HPAKey, MetricSource
    from autoscaler.observe import Observed, Observer
    from autoscaler.scales import ScaleClient
    from autoscaler.status import StatusWriter
    from autoscaler.telemetry import Telemetry
    from autoscaler.watched import RefusedHPA, TrackedHPA

__all__ = ["Reconciler"]

_log = logging.getLogger(__name__)


class Reconciler:
    """Takes steps.

    Args:
        observer: reads.
        scales: writes the targets' scales.
        statuses: writes the HPAs' statuses.
        recorder: writes events.
        telemetry: counts.
        memory: what is remembered of each HPA from step to step.
        wall_clock: the time in seconds since the epoch, for decisions.
        clock: a time in seconds that only goes forward, for durations.
    """

    def __init__(
        self,
        *,
        observer: Observer,
        scales: ScaleClient,
        statuses: StatusWriter,
        recorder: EventRecorder,
        telemetry: Telemetry,
        memory: Memory,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer = observer
        self._scales = scales
        self._statuses = statuses
        self._recorder = recorder
        self._telemetry = telemetry
        self._memory = memory
        self._wall_clock = wall_clock
        self._clock = clock

    async def reconcile(self, tracked: TrackedHPA) -> str | None:
        """Take one step; the error that it ended with, also where it did scale, or None.

        Must not run twice at the same time for the same HPA.
        """
        hpa = tracked.hpa
        started = self._clock()
        observed = await self._observer.observe(hpa)
        now_ms = round(self._wall_clock() * 1000)
        decision = decide(observed.observation, self._memory.of(hpa), now_ms)
        outcome = conclude(decision, scale_error=await self._write_scale(observed, decision))
        # Kept before anything else can fail or be cancelled: the scale may have been written.
        self._memory.keep(hpa, outcome.history)
        self._record(hpa, outcome.events)
        if outcome.status is not None:
            try:
                await self._statuses.write(tracked, outcome.status)
            except StatusWriteError as error:
                outcome = outcome.status_not_stored(hpa, str(error))
        self._record(hpa, outcome.late_events)
        self._count(decision, observed, outcome.error, seconds=self._clock() - started)
        return outcome.error

    async def refuse(self, tracked: RefusedHPA) -> str:
        """Tell an HPA that it is not valid, and do nothing else; what is wrong with it."""
        hpa = tracked.hpa
        refusal = refuse(hpa, round(self._wall_clock() * 1000))
        self._recorder.record(hpa, "Warning", INVALID_SPEC, refusal.message)
        if refusal.status is not None:
            try:
                await self._statuses.write(tracked, refusal.status)
            except StatusWriteError as error:
                self._recorder.record(hpa, "Warning", "FailedUpdateStatus", str(error))
        return refusal.message

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone: drop what is remembered of it."""
        self._memory.forget(key)
        self._telemetry.forget(key)

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

    def _record(self, hpa: HPA, events: Iterable[Event]) -> None:
        for event in events:
            self._recorder.record(hpa, event.type, event.reason, event.message)

    def _count(self, decision: Decision, observed: Observed, error: str | None, *, seconds: float) -> None:
        hpa, current = observed.observation.hpa, decision.current_replicas or 0
        for index, evaluation in enumerate(decision.evaluations):
            proposed = current if evaluation.proposal is None else evaluation.proposal.replicas
            self._telemetry.computed(
                _metric_type(evaluation.spec.source),
                Action.of(current=current, desired=proposed),
                _error_kind(evaluation),
                seconds=observed.seconds[index] if observed.seconds else 0.0,
            )
        desired = current if decision.scale_to is None else decision.scale_to
        kind = ErrorKind.NONE
        if error is not None:
            kinds = {_error_kind(evaluation) for evaluation in decision.evaluations}
            kind = ErrorKind.SPEC if ErrorKind.SPEC in kinds else ErrorKind.INTERNAL
        self._telemetry.reconciled(Action.of(current=current, desired=desired), kind, seconds=seconds)
        if decision.current_replicas is not None:
            self._telemetry.desired_replicas(hpa.key, desired)


def _error_kind(evaluation: Evaluation) -> ErrorKind:
    if evaluation.failure is None:
        return ErrorKind.NONE
    return ErrorKind.INTERNAL if unanswerable(evaluation.spec) is None else ErrorKind.SPEC


def _metric_type(source: MetricSource) -> str:
    match source:
        case ResourceMetric(_, None):
            return "Resource"
        case ResourceMetric():
            return "ContainerResource"
        case PodsMetric():
            return "Pods"
        case ObjectMetric():
            return "Object"
        case ExternalMetric():
            return "External"
        case InvalidMetric():
            return "Invalid"
