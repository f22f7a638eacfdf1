"""The end of a reconciliation: status, events and history after the writes succeeded or failed.

A failed write changes all three, so they are known only then.
"""

from __future__ import annotations

from msgspec.structs import replace

from autoscaler.core.conditions import ABLE_TO_SCALE, SCALED_TO_ZERO, Conditions
from autoscaler.core.decision import Decision, Event
from autoscaler.core.history import History, store_scale_event
from autoscaler.core.preconditions import has_object_or_external_metrics


def conclude(decision: Decision, *, act: bool = True, scale_error: str | None = None) -> Decision:
    """Complete a decision after `decision.scale_to`, if any, was written.

    Args:
        decision: the decision.
        act: False in modes that write neither scale nor status; an event reports the scale.
        scale_error: why the scale could not be written; None if it was written or there was nothing to write.
    """
    hpa = decision.observation.hpa
    status, events, error = decision.status, decision.events, decision.error
    scaled_history: History | None = None
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
            error = f"failed to rescale {hpa.target}: {scale_error}"
        else:
            message = f"the HPA controller was able to update the target scale to {decision.scale_to}"
            conditions.set(ABLE_TO_SCALE, True, "SucceededRescale", message)
            _set_scaled_to_zero(decision, conditions)
            events = (*events, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
            status = replace(status, last_scale_ms=decision.now_ms, conditions=conditions.all)
            scaled_history = store_scale_event(
                decision.history,
                behavior=hpa.spec.behavior,
                previous_replicas=decision.current_replicas or 0,
                new_replicas=decision.scale_to,
                now_ms=decision.monotonic_ms,
            )
    if hpa.generation:
        status = replace(status, observed_generation=hpa.generation)
    return replace(
        decision,
        status=status,
        events=events,
        error=error,
        scaled_history=scaled_history,
        concluded=True,
        scale_error=None if decision.scale_to is None else scale_error,
    )


def status_not_stored(decision: Decision, message: str) -> Decision:
    """Complete a concluded decision after the status write failed with `message`."""
    event = Event("Warning", "FailedUpdateStatus", message)
    error = decision.error
    if not decision.failed and decision.scale_error is None:
        error = f"failed to update status for {decision.observation.hpa.name}: {message}"
    return replace(decision, late_events=(event, *decision.late_events), error=error, status_error=message)


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
