"""The outcome of a reconciliation: status, events and history after the write of the scale succeeded or failed.

A failed write changes all three, so they are known only then.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from autoscaler.core.conditions import ABLE_TO_SCALE, SCALED_TO_ZERO, Conditions
from autoscaler.core.decision import Decision, Event
from autoscaler.core.history import History, store_scale_event
from autoscaler.core.model import HPA, Status
from autoscaler.core.preconditions import has_object_or_external_metrics


class Outcome(Struct, frozen=True, kw_only=True):
    """The end of one reconciliation."""

    status: Status | None
    """The status to write; None: it did not change, or is not written."""
    events: tuple[Event, ...]
    """To emit before the status is written, in order."""
    late_events: tuple[Event, ...]
    """To emit after the status is written, in order."""
    error: str | None
    history: History
    """The history for the next reconciliation."""
    failed: bool
    """The reconciliation ended early with `error`; a failed status write does not replace that error."""

    def status_not_stored(self, hpa: HPA, message: str) -> Outcome:
        """Return this outcome after the status write failed with `message`."""
        event = Event("Warning", "FailedUpdateStatus", message)
        error = self.error if self.failed else f"failed to update status for {hpa.name}: {message}"
        return replace(self, status=None, late_events=(event, *self.late_events), error=error)


def conclude(decision: Decision, *, act: bool = True, scale_error: str | None = None) -> Outcome:
    """Return the outcome after `decision.scale_to`, if any, was written.

    Args:
        decision: the decision.
        act: False in modes that write neither scale nor status; an event reports the scale.
        scale_error: why the scale could not be written; None if it was written or there was nothing to write.
    """
    hpa = decision.observation.hpa
    status, events, history = decision.status, decision.events, decision.history
    error, failed = decision.error, decision.failed
    if decision.scale_to is not None:
        conditions = Conditions(status.conditions, decision.now_ms)
        size = f"{decision.scale_to}; reason: {decision.rescale_reason}"
        if not act:
            events = (*events, Event("Normal", "WouldRescale", f"New size would be: {size}"))
        elif scale_error is not None:
            message = f"the HPA controller was unable to update the target scale: {scale_error}"
            conditions.set(ABLE_TO_SCALE, False, "FailedUpdateScale", message)
            events = (*events, Event("Warning", "FailedRescale", f"New size: {size}; error: {scale_error}"))
            status = replace(status, desired_replicas=hpa.status.desired_replicas, conditions=conditions.all)
            error, failed = f"failed to rescale {hpa.target}: {scale_error}", True
        else:
            message = f"the HPA controller was able to update the target scale to {decision.scale_to}"
            conditions.set(ABLE_TO_SCALE, True, "SucceededRescale", message)
            _set_scaled_to_zero(decision, conditions)
            events = (*events, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
            status = replace(status, last_scale_ms=decision.now_ms, conditions=conditions.all)
            history = store_scale_event(
                history,
                behavior=hpa.spec.behavior,
                previous_replicas=decision.current_replicas or 0,
                new_replicas=decision.scale_to,
                now_ms=decision.monotonic_ms,
            )
    if hpa.generation:
        status = replace(status, observed_generation=hpa.generation)
    return Outcome(
        status=status if act and status != hpa.status else None,
        events=events,
        late_events=decision.late_events,
        error=error,
        history=history,
        failed=failed,
    )


def _set_scaled_to_zero(decision: Decision, conditions: Conditions) -> None:
    """Set the condition ScaledToZero, so that this controller may scale the target up again.

    With the feature off, an old condition is removed with the next scale, or if scaling is disabled.
    """
    hpa = decision.observation.hpa
    if decision.observation.config.scale_to_zero:
        zero = decision.scale_to == 0 and hpa.spec.min_replicas == 0 and has_object_or_external_metrics(hpa)
        conditions.set(SCALED_TO_ZERO, zero, "ScaledToZero" if zero else "NotScaledToZero")
    else:
        conditions.remove(SCALED_TO_ZERO)
