"""One reconciliation of an HPA: observe, decide, act.

The writes have Kubernetes' order: the scale, the events, the status if it has changed. Each can fail separately;
`conclude` handles the effect of a failed scale on status and history. In dry-run and shadow mode neither scale nor
status is written, and the history records the scale events of the other controller.

Upstream: podautoscaler.reconcileAutoscaler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from autoscaler.core.config import PREFIX, Mode
from autoscaler.core.decide import conclude, decide, status_not_stored
from autoscaler.core.decision import Decision, Event
from autoscaler.core.history import needs_initial_recommendation, record_foreign_scale
from autoscaler.core.model import HPA, KIND, HPAKey, Status
from autoscaler.core.observation import Observation
from autoscaler.core.status import INVALID_SPEC, report_invalid_spec, status_json, targets_line
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.eager import Result
from autoscaler.loop.histories import Histories
from autoscaler.loop.observe import Observed, Observer
from autoscaler.loop.scales import ScaleClient, ScaleWriteError
from autoscaler.loop.telemetry import Telemetry
from autoscaler.records.build import build_record
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.reaction import Reactions
from autoscaler.records.sentence import with_sentence
from autoscaler.records.shadow import ShadowComparer
from kube.api.client import KubeError
from kube.api.status import StatusError
from kube.controller.events import EventRecorder, ObjectReference
from kube.controller.flowcontrol import ThrottledClient

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Reconciler:
    """Reconciles HPAs, one at a time or several concurrently, but never the same HPA twice at the same time.

    Args:
        client: writes the HPAs' statuses.
        mode: of the process; an HPA's annotation can only restrict it.
        is_foreign: returns True if another controller acts on this HPA, so this one must not.
        on_decision: called after each decision with the HPA, and whether its status has other values of the metrics.
        on_reconciled: called after each reconciliation with the decision, the mode, and the replicas that were written
            to the scale, if any.
    """

    observer: Observer
    scales: ScaleClient
    client: ThrottledClient
    recorder: EventRecorder
    telemetry: Telemetry
    histories: Histories
    decisions: DecisionLog
    shadow: ShadowComparer
    mode: Mode = Mode.ACT
    is_foreign: Callable[[HPAKey], bool] = lambda _: False
    on_decision: Callable[[HPAKey, bool], None] = lambda _key, _outdated: None
    on_reconciled: Callable[[Decision, Mode, int | None], None] = lambda _decision, _mode, _replicas: None
    clocks: Clocks = field(default_factory=Clocks)
    _reported: dict[HPAKey, tuple[str, ...]] = field(default_factory=dict, init=False)
    _reactions: Reactions = field(default_factory=Reactions, init=False)

    async def reconcile(self, hpa: HPA) -> str | None:
        """Reconcile an HPA once.

        Returns:
            The error of the reconciliation; None: it succeeded. It may have scaled despite an error.
        """
        started = self.clocks.monotonic()
        self._report_annotations(hpa)
        observed, decision = await self._decide(hpa)
        return await self._act(hpa, observed, decision, started=started)

    def evaluate(self, observation: Observation) -> Result:
        """Decide whether an HPA is to be reconciled before its sync is due."""
        decision = self._decide_on(observation)
        if decision.error is not None:
            return Result.FAILED
        self._reactions.decided(decision, written_ms=None)
        return Result.SCALE_UP if decision.is_early_scale_up else Result.NONE

    async def scale_up_early(self, hpa: HPA, *, timeout: float) -> bool:
        """Reconcile an HPA before its sync is due, if that scales it up; otherwise nothing has happened.

        Args:
            hpa: the HPA; it was reconciled before.
            timeout: seconds for all reads.

        Returns:
            True if it was scaled up without an error.
        """
        started = self.clocks.monotonic()
        try:
            async with asyncio.timeout(timeout):
                observed = await self.observer.observe(hpa)
        except TimeoutError:
            return False
        decision = self._decide_on(observed.observation)
        if not decision.is_early_scale_up or self.mode_of(hpa) is not Mode.ACT:
            return False
        return await self._act(hpa, observed, decision, started=started, is_early=True) is None

    async def _act(
        self, hpa: HPA, observed: Observed, decision: Decision, *, started: float, is_early: bool = False
    ) -> str | None:
        """Write what was decided, and return the error of the reconciliation."""
        self.on_decision(hpa.key, decision.status.current_metrics != hpa.status.current_metrics)
        # After all reads, during which another controller may have been detected.
        mode = self.mode_of(hpa)

        scale_error = await self._write_scale(observed, decision) if mode is Mode.ACT else None
        written = mode is Mode.ACT and decision.scale_to is not None and scale_error is None
        reaction = self._reactions.decided(decision, written_ms=self.clocks.read_ms()[0] if written else None)
        decision = conclude(decision, act=mode is Mode.ACT, scale_error=scale_error)
        # First, before anything can fail or be cancelled, since the scale may have been written.
        self.histories.replace(hpa, decision.next_history)
        if mode is Mode.SHADOW:
            self.shadow.add_decision(decision)
        self._emit(hpa, decision.events)
        if mode is Mode.ACT and decision.new_status is not None:
            status_error = await self._update_status(hpa, decision.new_status)
            if status_error is not None:
                decision = status_not_stored(decision, status_error)
        self._emit(hpa, decision.late_events)

        debug = _log.isEnabledFor(logging.DEBUG)
        if debug or self.decisions.enabled:
            record = build_record(decision, mode=mode, is_early=is_early, reaction=reaction)
            self.decisions.add(record)
            if debug:
                _log.debug("%s: %s", hpa.key, with_sentence(record).sentence)
        self.telemetry.decided(decision, metric_seconds=observed.seconds, seconds=self.clocks.monotonic() - started)
        self.on_reconciled(decision, mode, decision.scale_to if written else None)
        return decision.error

    async def refuse(self, hpa: HPA) -> str:
        """Report an invalid HPA in its status and an event, without reconciling it.

        Returns:
            The error: what is invalid.
        """
        started = self.clocks.monotonic()
        self._report_annotations(hpa)
        status, message = report_invalid_spec(hpa, self.clocks.read_ms()[0])
        self._emit(hpa, [Event("Warning", INVALID_SPEC, message)])
        if status is not None and self.mode_of(hpa) is Mode.ACT:
            status_error = await self._update_status(hpa, status)
            if status_error is not None:
                self._emit(hpa, [Event("Warning", "FailedUpdateStatus", status_error)])
        self.telemetry.refused(hpa.key, seconds=self.clocks.monotonic() - started)
        return message

    def changed(self, old: HPA | None, new: HPA) -> None:
        """Note that an HPA was created (`old` is None) or has changed.

        In dry-run and shadow mode, scale events of the other controller are read from the status and added to the
        history.
        """
        mode = self.mode_of(new)
        if old is not None and mode is not Mode.SHADOW and self.mode_of(old) is Mode.SHADOW:
            self.stop_comparing(new.key)
        if mode is Mode.ACT:
            return
        now_ms, monotonic_ms = self.clocks.read_ms()
        before = self.histories.of(new)
        # Without a reconciliation there is no history to add to.
        if before.recommendations and old is not None and old.uid == new.uid:
            after = record_foreign_scale(
                before,
                old=old.status,
                new=new.status,
                behavior=new.spec.behavior,
                now_ms=now_ms,
                monotonic_ms=monotonic_ms,
            )
            if after != before:
                self.histories.replace(new, after)
        if mode is Mode.SHADOW:
            self.shadow.add_status(new, monotonic_ms)

    def stop_comparing(self, key: HPAKey) -> None:
        """Drop the comparisons of an HPA that has left shadow mode."""
        self.shadow.remove(key)
        self.telemetry.no_longer_compared(key)

    def forget(self, key: HPAKey) -> None:
        """Drop all state of an HPA that was deleted."""
        self.histories.forget(key)
        self.shadow.remove(key)
        self._reported.pop(key, None)
        self._reactions.forget(key)
        self.telemetry.forget(key)
        self.decisions.remove(key)

    def mode_of(self, hpa: HPA) -> Mode:
        """Return the effective mode of an HPA; `shadow` while another controller acts on it."""
        mode = self.configured_mode_of(hpa)
        return Mode.SHADOW if mode is Mode.ACT and self.is_foreign(hpa.key) else mode

    def configured_mode_of(self, hpa: HPA) -> Mode:
        """Return the mode of an HPA by the process' mode and the HPA's annotation."""
        restriction = hpa.overrides.mode
        return self.mode if restriction is None or not self.mode.allows(restriction) else restriction

    async def _decide(self, hpa: HPA) -> tuple[Observed, Decision]:
        """Observe and decide.

        A scale from the watch may be out of date. So the scale is read again for a decision to scale, and for the
        initial recommendation of a history.
        """
        to_scale = needs_initial_recommendation(self.histories.of(hpa))
        observed = await self.observer.observe(hpa, to_scale=to_scale)
        decision = self._decide_on(observed.observation)
        if decision.scale_to is not None and not observed.may_scale:
            observed = await self.observer.observe(hpa)
            decision = self._decide_on(observed.observation)
        return observed, decision

    def _decide_on(self, observation: Observation) -> Decision:
        now_ms, monotonic_ms = self.clocks.read_ms()
        return decide(observation, self.histories.of(observation.hpa), now_ms, monotonic_ms=monotonic_ms)

    async def _write_scale(self, observed: Observed, decision: Decision) -> str | None:
        """Scale the target, if that was decided; returns the error."""
        if decision.scale_to is None or observed.target is None:
            return None
        try:
            await self.scales.write(observed.target, decision.scale_to)
        except ScaleWriteError as error:
            return str(error)
        hpa = observed.observation.hpa
        change = f"from {decision.current_replicas} to {decision.scale_to} replicas"
        _log.info("%s: scaled %s %s: %s", hpa.key, hpa.target, change, decision.rescale_reason)
        return None

    async def _update_status(self, hpa: HPA, status: Status) -> str | None:
        """Store a status with the resourceVersion of the decision's HPA; return the error, such as a conflict.

        A PUT of the status subresource ignores the spec but replaces labels and annotations, so these are sent
        unchanged. Upstream: podautoscaler.updateStatus.
        """
        body = status_json(status)
        if not hpa.api.built_in and not hpa.problem:
            body["targets"] = targets_line(hpa.spec.metrics, status.current_metrics)
        metadata = msgspec.Raw(hpa.metadata)
        obj = {"apiVersion": hpa.api_version, "kind": KIND, "metadata": metadata, "status": body}
        try:
            await self.client.put(hpa.api.path(hpa.namespace, hpa.name, subresource="status"), obj)
        except (StatusError, KubeError) as error:
            return str(error)
        return None

    def _emit(self, hpa: HPA, events: Iterable[Event]) -> None:
        if self.mode_of(hpa) is not Mode.SHADOW:
            for event in events:
                self.recorder.record(object_reference(hpa), event.type, event.reason, event.message)

    def _report_annotations(self, hpa: HPA) -> None:
        """Log invalid annotations and emit an event for each, once until they change."""
        problems = hpa.overrides.problems
        restriction = hpa.overrides.mode
        if restriction is not None and not self.mode.allows(restriction):
            limit = f"this process runs with --mode={self.mode}, which an annotation can only restrict"
            problems = (*problems, f'annotation {PREFIX}mode: "{restriction}" is ignored: {limit}')
        if problems == self._reported.get(hpa.key, ()):
            return
        self._reported[hpa.key] = problems
        for problem in problems:
            _log.warning("%s: %s", hpa.key, problem)
            self._emit(hpa, [Event("Warning", "InvalidAnnotation", problem)])


def object_reference(hpa: HPA) -> ObjectReference:
    """The reference to an HPA in its events."""
    return ObjectReference(
        api_version=hpa.api_version,
        kind=KIND,
        namespace=hpa.namespace,
        name=hpa.name,
        uid=hpa.uid,
        resource_version=hpa.resource_version,
    )
