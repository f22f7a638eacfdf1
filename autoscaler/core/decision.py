"""A decision on one HPA with the reasons for it.

Three features are not in Kubernetes: the pause annotation blocks scaling, stale watches block scaling down, and a
fallback replaces metrics that keep failing. A fallback never lowers the replica count, and is stabilized and limited
like a metric's proposal. If stale watches block scaling down, the recommendation is the current count, also in the
history, so the stabilization window restarts when the watches are current again.
"""

from __future__ import annotations

from msgspec import Struct

from autoscaler.core.config import PREFIX
from autoscaler.core.history import History
from autoscaler.core.metrics import Evaluation
from autoscaler.core.model import Status
from autoscaler.core.observation import Observation
from autoscaler.core.replica_calculator import Tolerances
from autoscaler.core.stabilization import Normalized
from autoscaler.core.status import ABLE_TO_SCALE, SCALING_ACTIVE

PAUSED = "Paused"
"""Reason of the ScalingLimited condition while a pause blocks a scale."""
STALE = "StaleWatch"
"""Reason of the ScalingLimited condition while stale watches block a scale-down."""


class BlockedScale(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A scale that a pause or stale watches blocked."""

    paused: str
    """The annotation's value; empty: stale watches blocked it."""
    stale: tuple[str, ...] = ()
    """The resources whose watches are stale."""
    replicas: int
    """The replica count that was blocked."""
    reason: str
    """The reason that the scale's event would have had."""

    @property
    def condition(self) -> str:
        """The reason of the ScalingLimited condition."""
        return STALE if self.stale else PAUSED

    @property
    def message(self) -> str:
        """The message of the ScalingLimited condition."""
        if self.stale:
            return (
                f"the watch on {' and '.join(self.stale)} is silent, fails or is incomplete, so what is known may be "
                f"out of date, which keeps the target from being scaled down to {self.replicas} replicas"
            )
        return (
            f"annotation {PREFIX}paused: {self.paused} keeps the target from being scaled to {self.replicas} replicas"
        )


class FallbackReplicas(Struct, frozen=True, kw_only=True, rename="camel"):
    """The proposal of the fallback."""

    replicas: int
    """The least replicas; the proposal is the current count if that is higher."""
    failure_threshold: int
    failures: int
    """Reconciliations in a row in which a metric failed, this one included."""

    @property
    def rescale_reason(self) -> str:
        """The reason in the event."""
        return f"metrics unavailable, fallback to {self.replicas} replicas"

    @property
    def message(self) -> str:
        """The message of the condition; constant, so that repeated failures do not change the status."""
        return (
            f"after {self.failure_threshold} or more failures in a row, annotation {PREFIX}fallback-replicas "
            f"asks for at least {self.replicas} replicas"
        )


class Event(Struct, frozen=True):
    """An event about the HPA."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


class Decision(Struct, frozen=True, kw_only=True):
    """The decision on one HPA and its reasons.

    `autoscaler.core.decide.conclude` completes status, events, error and history after the scale was written.
    """

    observation: Observation
    now_ms: int
    """The time of the decision, in milliseconds since the Unix epoch."""
    monotonic_ms: int
    """The same by the history's clock."""
    current_replicas: int | None = None
    """`spec.replicas` of the scale; None if that could not be read."""
    tolerance: Tolerances | None = None
    """None if the metrics were not evaluated."""
    evaluations: tuple[Evaluation, ...] = ()
    """One per metric; empty if the metrics were not evaluated."""
    winner: Evaluation | None = None
    """The metric with the highest proposal; None if there is none, or a fallback replaces it."""
    fallback: FallbackReplicas | None = None
    """The fallback that replaced failing metrics, if any."""
    normalized: Normalized | None = None
    """The proposal of the winner or the fallback after each stage; None if there was no proposal."""
    scale_to: int | None = None
    """The replica count to write to the scale; None: do not write it."""
    rescale_reason: str = ""
    """The reason in the event about the scale."""
    blocked: BlockedScale | None = None
    """The scale that a pause blocked (`scale_to` is None then), or the scale-down that stale watches blocked."""
    status: Status
    """The HPA's status; see `new_status`."""
    events: tuple[Event, ...] = ()
    """To emit before the status is written, in order."""
    late_events: tuple[Event, ...] = ()
    """To emit after the status is written, in order."""
    error: str | None = None
    """The error of the reconciliation; it may scale despite an error."""
    failed: bool = False
    """The reconciliation ends early with `error`: there is no replica count."""
    history: History
    """The history with this recommendation, on which the decision is based; see `next_history`."""
    scaled_history: History | None = None
    """The same with the scale of this decision, if `conclude` has added it."""
    concluded: bool = False
    """`conclude` has completed it."""
    scale_error: str | None = None
    """Why the scale could not be written, once it is concluded."""
    status_error: str | None = None
    """Why the status could not be stored, once it is concluded."""

    @property
    def next_history(self) -> History:
        """The history for the next reconciliation."""
        return self.history if self.scaled_history is None else self.scaled_history

    @property
    def new_status(self) -> Status | None:
        """The status to write; None: it did not change."""
        return None if self.status == self.observation.hpa.status else self.status

    @property
    def is_early_scale_up(self) -> bool:
        """True if eager mode may apply this decision before the next sync: it scales up, and all metrics have values.

        What only an earlier recommendation calls for waits for the sync. So does an HPA whose scaleUp has a
        stabilization window: one recommendation more in that window could hold a later, larger scale-up back.
        """
        current, normalized = self.current_replicas or 0, self.normalized
        if self.scale_to is None or self.error is not None or self.scale_to <= current:
            return False
        if normalized is not None and normalized.proposed_replicas <= current:
            return False
        behavior = self.observation.hpa.spec.behavior
        return behavior is None or not behavior.scale_up.stabilization_window_seconds

    @property
    def reason(self) -> str:
        """The condition's reason for the replica count; a label of metrics, so it has few values.

        Paused, StaleWatch and Fallback are not in Kubernetes. The others are the reason for limiting the proposal, else
        for stabilizing it, else ValidMetricFound; TooManyReplicas or TooFewReplicas for a count out of bounds; or the
        failure.
        """
        if self.blocked is not None:
            return self.blocked.condition
        if self.normalized is not None:
            if self.normalized.limited:
                return self.normalized.limit
            if self.normalized.stabilization != "ReadyForNewScale":
                return self.normalized.stabilization
            return "Fallback" if self.fallback is not None else "ValidMetricFound"
        if self.scale_to is not None:
            return "TooManyReplicas" if self.scale_to < (self.current_replicas or 0) else "TooFewReplicas"
        failed = ABLE_TO_SCALE if self.current_replicas is None else SCALING_ACTIVE
        return next(each.reason for each in self.status.conditions if each.type == failed)
