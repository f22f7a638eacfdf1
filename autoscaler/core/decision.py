"""Where a decision differs from what Kubernetes would do: a pause, a fallback without metrics, and stale objects.

All are part of the decision, so that whoever looks at one sees them: a pause and stale objects say what they kept from
happening, a fallback says what it stood in for. Kubernetes knows none of them, so the words are ours.

A fallback raises and never lowers: it stands in for metrics that are not known, which is no reason to take replicas
away. The replica count that it asks for is stabilised and limited like any metric's.

Objects that may be out of date (`Observation.stale`) are no reason to take replicas away either: pods that are missing
in them would look like load that is gone. What asks for fewer replicas asks for the current count then. That count is
also what is remembered, so that the stabilisation window begins anew when the objects are known again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from autoscaler.core.annotations import PREFIX
from autoscaler.core.conditions import ABLE_TO_SCALE, SCALING_ACTIVE
from autoscaler.core.config import Fallback, Pause
from autoscaler.core.history import History
from autoscaler.core.metrics import Evaluation
from autoscaler.core.model import HPA, Status
from autoscaler.core.observation import Observation
from autoscaler.core.replica_calculator import Tolerances
from autoscaler.core.stabilization import Normalized

PAUSED = "Paused"
"""The reason of the ScalingLimited condition while a pause holds a scale back."""


STALE = "StaleWatch"
"""The reason of the ScalingLimited condition while stale objects hold a scale-down back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedScale:
    """A scale that a pause or stale objects held back."""

    pause: Pause | None = None
    stale: tuple[str, ...] = ()
    """The resources that may be out of date; empty: it was the pause."""
    replicas: int
    """What the target would have been scaled to."""
    reason: str
    """Why, in the words of the event that there would have been."""

    @property
    def condition(self) -> str:
        """The reason of the ScalingLimited condition."""
        return STALE if self.stale else PAUSED

    @property
    def message(self) -> str:
        """For the condition."""
        if self.stale:
            return (
                f"the watch on {' and '.join(self.stale)} is silent or fails, so what is known may be out of date, "
                f"which keeps the target from being scaled down to {self.replicas} replicas"
            )
        return f"annotation {PREFIX}paused: {self.pause} keeps the target from being scaled to {self.replicas} replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackReplicas:
    """What stands in for metrics that have been failing for too long."""

    fallback: Fallback
    failures: int
    """Steps in a row in which a metric has failed, this one included."""
    replicas: int
    """What is asked for in their place: the fallback's count, or the current one if that is higher."""

    @property
    def rescale_reason(self) -> str:
        """In the words of the event."""
        return f"metrics unavailable, fallback to {self.fallback.replicas} replicas"

    @property
    def message(self) -> str:
        """For the condition; the same at every step, so that the status does not change."""
        return (
            f"after {self.fallback.failure_threshold} or more failures in a row, annotation {PREFIX}fallback-replicas "
            f"asks for at least {self.fallback.replicas} replicas"
        )


def blocked_by_pause(pause: Pause, *, current_replicas: int, scale_to: int | None, reason: str) -> BlockedScale | None:
    """The scale to `scale_to` replicas, for `reason`, if `pause` forbids it; None if it may happen."""
    if scale_to is None or not pause.forbids(current=current_replicas, desired=scale_to):
        return None
    return BlockedScale(pause=pause, replicas=scale_to, reason=reason)


def blocked_as_stale(
    stale: tuple[str, ...], *, current_replicas: int, desired: int, reason: str
) -> BlockedScale | None:
    """The scale-down to `desired` replicas, for `reason`, if the resources in `stale` may be out of date."""
    return BlockedScale(stale=stale, replicas=desired, reason=reason) if stale and desired < current_replicas else None


def fallback_replicas(fallback: Fallback | None, *, failures: int, current_replicas: int) -> FallbackReplicas | None:
    """What stands in for the failed metrics after so many failures in a row; None: nothing does yet."""
    if fallback is None or failures < fallback.failure_threshold:
        return None
    return FallbackReplicas(fallback=fallback, failures=failures, replicas=max(fallback.replicas, current_replicas))


@dataclass(frozen=True, slots=True)
class Event:
    """An event about the HPA: `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one HPA and why; `conclude` completes it."""

    observation: Observation
    now_ms: int
    """When it was made, in milliseconds since the Unix epoch."""
    monotonic_ms: int
    """The same by the history's clock."""
    current_replicas: int | None = None
    """`spec.replicas` of the scale; None if that could not be read."""
    tolerance: Tolerances | None = None
    """What the metrics were judged by; None if they did not matter."""
    evaluations: tuple[Evaluation, ...] = ()
    """One per metric; empty if the metrics did not matter."""
    winner: Evaluation | None = None
    """The metric that asks for the most replicas; None if there is none, or something stands in for it."""
    fallback: FallbackReplicas | None = None
    """What asked for replicas in place of metrics that keep failing; None: nothing had to."""
    normalized: Normalized | None = None
    """How the winner's or the stand-in's proposal was stabilised and limited; None if the metrics did not decide."""
    scale_to: int | None = None
    """The replica count to write to the scale; None: leave it alone."""
    rescale_reason: str = ""
    """Why, in the words of the event."""
    blocked: BlockedScale | None = None
    """The scale that a pause held back, if any; `scale_to` is None then. Or the scale-down that stale objects did."""
    status: Status
    """The HPA's status as far as it is known before the scale is written."""
    events: tuple[Event, ...] = ()
    """Events before the status is written."""
    late_events: tuple[Event, ...] = ()
    """Events after the status is written."""
    error: str | None = None
    """What the step returns as its error, even if it scales."""
    failed: bool = False
    """The step ends early with `error`: no replica count was found."""
    history: History
    """The memory with this step's recommendation; a scale that succeeds is added by `conclude`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one step."""

    status: Status | None
    """The status to store; None: nothing changed."""
    events: tuple[Event, ...]
    """To emit before the status is stored, in order."""
    late_events: tuple[Event, ...]
    """To emit after the status is stored, in order."""
    error: str | None
    """The error that the step returns; None: all went well."""
    history: History
    """The memory for the next step."""
    failed: bool
    """The step ended early with `error`; a status that cannot be stored is not worth an error of its own."""

    def status_not_stored(self, hpa: HPA, message: str) -> Outcome:
        """This outcome if the status could not be stored, for the reason `message`."""
        event = Event("Warning", "FailedUpdateStatus", message)
        error = self.error if self.failed else f"failed to update status for {hpa.name}: {message}"
        return replace(self, status=None, late_events=(event, *self.late_events), error=error)


_READY: Final = "ReadyForNewScale"


def reason_of(decision: Decision) -> str:
    """What had the last word on the replica count.

    Paused, StaleWatch and Fallback are ours. Of a count that the metrics ask for: what limited it, else what stabilised
    it, else ValidMetricFound. Of a count out of bounds: TooManyReplicas or TooFewReplicas. Where there is none: the
    failure.
    """
    if decision.blocked is not None:
        return decision.blocked.condition
    normalized = decision.normalized
    if normalized is None:
        return _without_metrics(decision)
    if normalized.limited:
        return normalized.limit
    if normalized.stabilization != _READY:
        return normalized.stabilization
    return "Fallback" if decision.fallback is not None else "ValidMetricFound"


def _without_metrics(decision: Decision) -> str:
    if decision.scale_to is not None:
        return "TooManyReplicas" if decision.scale_to < (decision.current_replicas or 0) else "TooFewReplicas"
    failed = ABLE_TO_SCALE if decision.current_replicas is None else SCALING_ACTIVE
    return next(each.reason for each in decision.status.conditions if each.type == failed)
