"""The record of one step, as it is kept, served and logged: a documented JSON shape, apart from the types inside.

Programs read it (the page /debug/decisions, the audit file, `explain -o json`), so it has a version of its own. It
holds every number that mattered: whoever computes with them comes to the same replica count. Names are those of the
HPA's API, quantities are written as there, and an absent field is one that does not apply, is empty or is false.

    VERSION changes when a field changes its meaning or goes away; new fields may come at any time.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

VERSION: Final = 1

DecidedBy: TypeAlias = Literal["metrics", "fallback", "bounds", "disabled"]
"""What settled the replica count: the metrics, what stands in for them while they fail, a count out of bounds, or a
target that somebody scaled to 0."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What does not apply is None or empty, and left out."""


class Measure(_Record, frozen=True, kw_only=True):
    """A value of a metric, or its target: one field, as in the HPA's API."""

    value: str | None = None
    """Of the whole, a quantity."""
    average_value: str | None = None
    """Per pod, a quantity."""
    average_utilization: int | None = None
    """Percent of the requests."""


class Value(_Record, frozen=True, kw_only=True):
    """One value."""

    pod: str | None = None
    """Absent where the metric is not one of pods."""
    value: str
    """A quantity."""


class Values(_Record, frozen=True, kw_only=True):
    """What the metrics API has answered."""

    count: int
    shown: tuple[Value, ...] = ()
    """Those of pods with the highest first, others in the order of the answer."""


class PodNames(_Record, frozen=True, kw_only=True):
    """Some pods."""

    count: int
    shown: tuple[str, ...] = ()
    """The first names."""


class CountedPods(_Record, frozen=True, kw_only=True):
    """The target's pods by the use that could be made of them."""

    ready: PodNames
    unready: PodNames
    missing: PodNames
    """Without a value."""
    ignored: PodNames
    """Deleted or failed."""


class DescribedObject(_Record, frozen=True, kw_only=True):
    """The object of an Object metric."""

    kind: str
    name: str
    api_version: str = ""


class FailureRecord(_Record, frozen=True, kw_only=True):
    """Why a metric asks for nothing."""

    reason: str
    message: str


class MetricRecord(_Record, frozen=True, kw_only=True):
    """One entry of `spec.metrics`."""

    type: str
    name: str
    container: str | None = None
    selector: dict[str, Any] | None = None
    """The metric's own, as a LabelSelector."""
    described_object: DescribedObject | None = None
    target: Measure
    current: Measure | None = None
    """As in the HPA's status."""
    total: str | None = None
    """The value of the whole, where the metric is not one of pods."""
    values: Values | None = None
    pods: CountedPods | None = None
    """Absent where the pods were not looked at."""
    ratio: float | None = None
    """Current value to target; absent where that is no finite number."""
    rebalanced_ratio: float | None = None
    """The ratio with an assumption for each missing or unready pod; it counts in place of `ratio`."""
    within_tolerance: bool = False
    counted: int | None = None
    """The pods by which the ratio was multiplied."""
    overruled: bool = False
    """The product was not used, since the assumptions turned the direction; the current count was proposed."""
    proposed_replicas: int | None = None
    failure: FailureRecord | None = None


class ToleranceRecord(_Record, frozen=True, kw_only=True):
    """How far a ratio may be from 1 without effect."""

    scale_down: float
    scale_up: float


class ScaleRecord(_Record, frozen=True, kw_only=True):
    """The target's scale as read."""

    spec_replicas: int
    status_replicas: int
    selector: str = ""


class HeldBy(_Record, frozen=True, kw_only=True):
    """An earlier recommendation."""

    replicas: int
    time: str


class FallbackRecord(_Record, frozen=True, kw_only=True):
    """What asks for replicas in place of metrics that keep failing."""

    replicas: int
    """At least so many, by annotation."""
    failure_threshold: int
    failures: int
    """Steps in a row in which a metric has failed, this one included."""


class PauseRecord(_Record, frozen=True, kw_only=True):
    """A scale that a pause or stale objects held back."""

    paused: str
    """The annotation's value; empty: it was stale objects."""
    stale: tuple[str, ...] = ()
    """The resources that were known only as of some time ago."""
    replicas: int
    """What the target would have been scaled to."""
    reason: str
    """Why, in the words of the event that there would have been."""


class StabilizationRecord(_Record, frozen=True, kw_only=True):
    """What stabilisation made of the winner's, or the fallback's, proposal."""

    proposed_replicas: int
    replicas: int
    reason: str
    """Of the AbleToScale condition."""
    window_seconds: float
    """Of the direction in which the proposal points."""
    held_by: HeldBy | None = None
    """The recommendation in the window that changed the count."""


class PolicyRecord(_Record, frozen=True, kw_only=True):
    """A policy of `spec.behavior`."""

    type: str
    value: int
    period_seconds: float


class LimitRecord(_Record, frozen=True, kw_only=True):
    """How far one direction may go in this step."""

    replicas: int
    policy: PolicyRecord | None = None
    """Absent without behavior, and where the direction is disabled."""
    period_start_replicas: int | None = None
    """What the policy counts from."""


class BoundsRecord(_Record, frozen=True, kw_only=True):
    """The HPA's bounds."""

    min_replicas: int
    max_replicas: int


class EventRecord(_Record, frozen=True, kw_only=True):
    """An event about the HPA."""

    type: str
    reason: str
    message: str


class Written(_Record, frozen=True, kw_only=True):
    """What the step changed in the cluster."""

    replicas: int | None = None
    """Written to the scale."""
    scale_error: str | None = None
    """Why the scale could not be written."""
    status: bool = False
    """A changed status was stored."""
    status_error: str | None = None
    """Why the status could not be stored."""


class DecisionRecord(_Record, frozen=True, kw_only=True):
    """One step of one HPA."""

    version: int
    time: str
    """Of the step: RFC 3339, UTC, milliseconds."""
    api_version: str
    namespace: str
    name: str
    uid: str = ""
    target: str
    """KIND/NAMESPACE/NAME."""
    sentence: str = ""
    """The whole step in plain words (`autoscaler.records.words`)."""
    mode: str = "act"
    """What the step may change."""
    decided_by: DecidedBy | None = None
    """Absent where no replica count was found."""
    current_replicas: int | None = None
    desired_replicas: int | None = None
    """The replica count that was decided on; absent where none was found, which leaves the target alone."""
    reason: str = ""
    """Why the count changes, in the words of the event."""
    scale: ScaleRecord | None = None
    bounds: BoundsRecord
    tolerance: ToleranceRecord | None = None
    foreign_pods: PodNames | None = None
    """Pods that the selector matches and that do not count, because they do not belong to the target."""
    metrics: tuple[MetricRecord, ...] = ()
    """One per entry of `spec.metrics`; empty if the metrics did not matter."""
    winner: int | None = None
    """The index of the metric that asks for the most."""
    fallback: FallbackRecord | None = None
    stabilization: StabilizationRecord | None = None
    scale_up_limit: LimitRecord | None = None
    scale_down_limit: LimitRecord | None = None
    limited_replicas: int | None = None
    """After rate limits and bounds."""
    limit: str = ""
    """What changed the count there: the reason of the ScalingLimited condition."""
    held_back: PauseRecord | None = None
    written: Written | None = None
    """Absent where nothing was to be written: the step was only computed."""
    events: tuple[EventRecord, ...] = ()
    error: str | None = None
    """What the step ended with, even if it scales."""
