"""The record of one reconciliation, a documented JSON shape; `autoscaler.records.build` makes it from the Decision.

Programs read it in /debug/decisions, in the audit file and from `explain -o json`, so it is versioned. It has every
number that the decision depends on, so that readers can recompute the replica count. Names are those of the HPA's API
and quantities are written as there. Fields that do not apply, are empty or false are absent.

VERSION changes when a field changes its meaning or is removed; new fields may be added at any time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec

from autoscaler.core.decision import BlockedScale, Event, FallbackReplicas
from autoscaler.core.model import CrossVersionObjectReference, HPAKey, LabelSelectorSpec
from autoscaler.core.observation import Scale
from autoscaler.core.replica_calculator import Tolerances
from autoscaler.core.stabilization import RateLimit

VERSION: Final = 1

DecidedBy: TypeAlias = Literal["metrics", "fallback", "bounds", "disabled"]
"""The replica count comes from metrics, the fallback for failing metrics, the bounds, or a scale to 0 by hand."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class Measure(_Record, frozen=True, kw_only=True):
    """A value of a metric, or its target: one field, as in the HPA's API."""

    value: str | None = None
    """The total, a quantity."""
    average_value: str | None = None
    """Per pod, a quantity."""
    average_utilization: int | None = None
    """Percent of the requests."""


class Value(_Record, frozen=True, kw_only=True):
    """One value."""

    pod: str | None = None
    """Absent if the metric is not one of pods."""
    value: str
    """A quantity."""


class Values(_Record, frozen=True, kw_only=True):
    """The values that the metrics API returned."""

    count: int
    shown: tuple[Value, ...] = ()
    """Highest first for pods, otherwise in the order of the response."""


class PodNames(_Record, frozen=True, kw_only=True):
    """How many pods, and the names of the first."""

    count: int
    shown: tuple[str, ...] = ()


class PodGroupsRecord(_Record, frozen=True, kw_only=True):
    """The target's pods as the replica calculator groups them."""

    ready: PodNames
    unready: PodNames
    missing: PodNames
    """Without a value."""
    ignored: PodNames
    """Deleted or failed."""


class FailureRecord(_Record, frozen=True, kw_only=True):
    """Why a metric proposes no replica count."""

    reason: str
    message: str


class MetricRecord(_Record, frozen=True, kw_only=True):
    """One entry of `spec.metrics`."""

    type: str
    name: str
    container: str | None = None
    selector: LabelSelectorSpec | None = None
    described_object: CrossVersionObjectReference | None = None
    target: Measure
    current: Measure | None = None
    """As in the HPA's status."""
    age_seconds: float | None = None
    """Of the newest value when it was used, by the timestamp that the metrics API gave; absent if it gave none."""
    window_seconds: float | None = None
    """The time over which the values are averages, as the metrics API says; absent if it does not."""
    total: str | None = None
    """The total, if the metric is not one of pods."""
    pods_total: str | None = None
    """The sum over the ready pods, if the metric is one of pods."""
    pods_requests: str | None = None
    """What the ready pods request together, if the target is a utilization."""
    values: Values | None = None
    pods: PodGroupsRecord | None = None
    """Absent if the metric does not depend on the pods."""
    ratio: float | None = None
    """Current value divided by target; absent if not finite."""
    rebalanced_ratio: float | None = None
    """The ratio with assumed values for missing and unready pods; it replaces `ratio`."""
    within_tolerance: bool = False
    counted_pods: int | None = msgspec.field(default=None, name="counted")
    """The number of pods by which the ratio was multiplied."""
    overruled: bool = False
    """The product was not used, because the assumed values reversed the direction; the current count was proposed."""
    proposed_replicas: int | None = None
    failure: FailureRecord | None = None


class RecommendationRecord(_Record, frozen=True, kw_only=True):
    """An earlier recommendation."""

    replicas: int
    time: str


class ScaleEventRecord(_Record, frozen=True, kw_only=True):
    """An earlier scale."""

    change: int
    """Replicas; negative: scaled down."""
    time: str


class StabilizationRecord(_Record, frozen=True, kw_only=True):
    """The proposal before and after stabilization."""

    proposed_replicas: int
    replicas: int
    reason: str
    """Of the AbleToScale condition."""
    window_seconds: float
    """Of the direction of the proposal."""
    recommendation: RecommendationRecord | None = msgspec.field(default=None, name="heldBy")
    """The recommendation in the window that changed the count."""


class BoundsRecord(_Record, frozen=True, kw_only=True):
    """The HPA's bounds."""

    min_replicas: int
    max_replicas: int


class Written(_Record, frozen=True, kw_only=True):
    """The changes that the reconciliation made in the cluster."""

    replicas: int | None = None
    """Written to the scale."""
    scale_error: str | None = None
    """Why the scale could not be written."""
    status: bool = False
    """A changed status was stored."""
    status_error: str | None = None
    """Why the status could not be stored."""


class ReactionRecord(_Record, frozen=True, kw_only=True):
    """How soon a scale-up followed the metric that called for it; `autoscaler.records.reaction` says what is known."""

    sufficed: str | None = None
    """The time of the last sample for which the replicas sufficed; absent if it is not known."""
    sampled: str | None = None
    """The time of the first sample that called for more; absent if it has no timestamp."""
    sync_seconds: float | None = None
    """From the sample, or the last reconciliation without it if that is later, to the first one that used it."""
    held_seconds: float = 0.0
    """From that to the decision to scale: stabilization, policies, earlier steps."""
    write_seconds: float = 0.0
    """From the decision until the scale was written."""
    written: str
    """The time when the scale was written."""


class DecisionRecord(_Record, frozen=True, kw_only=True):
    """One reconciliation of one HPA."""

    version: int
    time: str
    """Of the decision: RFC 3339, UTC, milliseconds."""
    api_version: str
    namespace: str
    name: str
    uid: str = ""
    target: str
    """KIND/NAMESPACE/NAME."""
    sentence: str = ""
    """The record in one sentence (`autoscaler.records.sentence`)."""
    mode: str = "act"
    """The mode of the HPA."""
    eager: bool = False
    """Eager mode scaled up before the sync was due."""
    decided_by: DecidedBy | None = None
    """Absent if no replica count was found."""
    current_replicas: int | None = None
    desired_replicas: int | None = None
    """Absent if no replica count was found; the target is left alone then."""
    reason: str = ""
    """The reason in the event about the scale."""
    scale: Scale | None = None
    bounds: BoundsRecord
    tolerance: Tolerances | None = None
    foreign_pods: PodNames | None = None
    """Pods that the selector matches but that are not counted, because another object owns them."""
    metrics: tuple[MetricRecord, ...] = ()
    """One per entry of `spec.metrics`; empty if the metrics were not evaluated."""
    winner: int | None = None
    """The index of the metric with the highest proposal."""
    fallback: FallbackReplicas | None = None
    stabilization: StabilizationRecord | None = None
    scale_events: tuple[ScaleEventRecord, ...] = ()
    """The latest scales within the longest period of the scaling policies, oldest first."""
    scale_up_limit: RateLimit | None = None
    scale_down_limit: RateLimit | None = None
    limited_replicas: int | None = None
    """After rate limits and bounds."""
    limit: str = ""
    """Which limit changed the count: the reason of the ScalingLimited condition."""
    blocked: BlockedScale | None = msgspec.field(default=None, name="heldBack")
    written: Written | None = None
    """Absent if the decision was only computed (`explain` without --server)."""
    reaction: ReactionRecord | None = None
    """Only of a scale-up for a metric."""
    events: tuple[Event, ...] = ()
    error: str | None = None
    """The error of the reconciliation, even if it scales."""

    @property
    def key(self) -> HPAKey:
        """The HPA's name."""
        return HPAKey(self.namespace, self.name, self.api_version.rpartition("/")[0])

    @property
    def pod_selector(self) -> str:
        """The selector of the target's pods; "" if it was not read."""
        return "" if self.scale is None else self.scale.selector


def time_text(time_ms: int) -> str:
    """Return a time since the Unix epoch as records have it: RFC 3339, UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
