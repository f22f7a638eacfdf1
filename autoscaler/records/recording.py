"""From the facts of a step to its record: all that was decided, in the documented shape and in plain words."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

import msgspec

from autoscaler.core.decision import Decision, Outcome
from autoscaler.core.status import quantity_text
from autoscaler.records.facts import (
    Facts,
    GroupFacts,
    LimitFacts,
    MetricFacts,
    MilliMeasure,
    NormalizedFacts,
    SomeNames,
    Subject,
    WrittenFacts,
    facts_of,
)
from autoscaler.records.record import (
    VERSION,
    BoundsRecord,
    CountedPods,
    DecisionRecord,
    DescribedObject,
    EventRecord,
    FailureRecord,
    FallbackRecord,
    HeldBy,
    LimitRecord,
    Measure,
    MetricRecord,
    PauseRecord,
    PodNames,
    PolicyRecord,
    ScaleRecord,
    StabilizationRecord,
    ToleranceRecord,
    Value,
    Values,
    Written,
)
from autoscaler.records.words import sentence

_OF_RESOURCES: Final = ("Resource", "ContainerResource")


def record_of(
    decision: Decision,
    outcome: Outcome | None = None,
    *,
    scale_error: str | None = None,
    status_error: str | None = None,
    mode: str = "act",
) -> DecisionRecord:
    """The record of a step; the arguments are those of `facts_of`."""
    facts = facts_of(decision, outcome, scale_error=scale_error, status_error=status_error, mode=mode)
    return render(Subject.of(decision.observation.hpa), facts)


def render(subject: Subject, facts: Facts) -> DecisionRecord:
    """The record that is made of facts."""
    normalized, key = facts.normalized, subject.key
    down, up = facts.tolerance or (0.0, 0.0)
    record = DecisionRecord(
        version=VERSION,
        time=_time(facts.now_ms),
        api_version=subject.api_version,
        namespace=key.namespace,
        name=key.name,
        uid=subject.uid,
        target=subject.target,
        mode=facts.mode,
        decided_by=facts.decided_by,
        current_replicas=facts.current_replicas,
        desired_replicas=facts.desired_replicas,
        reason=facts.reason,
        scale=None if facts.scale is None else _scale(*facts.scale),
        bounds=BoundsRecord(min_replicas=facts.bounds[0], max_replicas=facts.bounds[1]),
        tolerance=None if facts.tolerance is None else ToleranceRecord(scale_down=down, scale_up=up),
        foreign_pods=None if facts.foreign_pods is None else _names(facts.foreign_pods),
        metrics=tuple(map(_metric, facts.metrics)),
        winner=facts.winner,
        fallback=None if facts.fallback is None else _fallback(*facts.fallback),
        stabilization=None if normalized is None else _stabilization(normalized),
        scale_up_limit=None if normalized is None else _limit(normalized.scale_up_limit),
        scale_down_limit=None if normalized is None else _limit(normalized.scale_down_limit),
        limited_replicas=None if normalized is None else normalized.desired_replicas,
        limit="" if normalized is None else normalized.limit,
        held_back=None if facts.held_back is None else _pause(*facts.held_back),
        written=None if facts.written is None else _written(facts.written),
        events=tuple(
            EventRecord(type=type_, reason=reason, message=message) for type_, reason, message in facts.events
        ),
        error=facts.error,
    )
    return msgspec.structs.replace(record, sentence=sentence(record))


def _scale(spec_replicas: int, status_replicas: int, selector: str) -> ScaleRecord:
    return ScaleRecord(spec_replicas=spec_replicas, status_replicas=status_replicas, selector=selector)


def _metric(facts: MetricFacts) -> MetricRecord:
    binary = facts.type in _OF_RESOURCES and facts.name == "memory"
    values = None
    if facts.values is not None:
        shown = tuple(Value(pod=pod, value=quantity_text(milli, binary=binary)) for pod, milli in facts.values.shown)
        values = Values(count=facts.values.count, shown=shown)
    described = None
    if facts.described is not None:
        kind, name, api_version = facts.described
        described = DescribedObject(kind=kind, name=name, api_version=api_version)
    return MetricRecord(
        type=facts.type,
        name=facts.name,
        container=facts.container,
        selector=facts.selector,
        described_object=described,
        target=_measure(facts.target, binary=binary),
        current=None if facts.current is None else _measure(facts.current, binary=binary),
        total=_quantity(facts.total, binary=binary),
        values=values,
        pods=None if facts.pods is None else _pods(facts.pods),
        ratio=_finite(facts.ratio),
        rebalanced_ratio=_finite(facts.rebalanced_ratio),
        within_tolerance=facts.within_tolerance,
        counted=facts.counted,
        overruled=facts.overruled,
        proposed_replicas=facts.proposed_replicas,
        failure=None if facts.failure is None else FailureRecord(reason=facts.failure[0], message=facts.failure[1]),
    )


def _measure(measure: MilliMeasure, *, binary: bool) -> Measure:
    return Measure(
        value=_quantity(measure.value, binary=binary),
        average_value=_quantity(measure.average_value, binary=binary),
        average_utilization=measure.average_utilization,
    )


def _pods(groups: GroupFacts) -> CountedPods:
    return CountedPods(
        ready=_names(groups.ready),
        unready=_names(groups.unready),
        missing=_names(groups.missing),
        ignored=_names(groups.ignored),
    )


def _names(names: SomeNames) -> PodNames:
    return PodNames(count=names.count, shown=names.shown)


def _stabilization(normalized: NormalizedFacts) -> StabilizationRecord:
    held_by = None
    if normalized.held_by is not None:
        replicas, time_ms = normalized.held_by
        held_by = HeldBy(replicas=replicas, time=_time(time_ms))
    return StabilizationRecord(
        proposed_replicas=normalized.proposed_replicas,
        replicas=normalized.stabilized_replicas,
        reason=normalized.stabilization,
        window_seconds=normalized.window_ms / 1000,
        held_by=held_by,
    )


def _fallback(replicas: int, failure_threshold: int, failures: int) -> FallbackRecord:
    return FallbackRecord(replicas=replicas, failure_threshold=failure_threshold, failures=failures)


def _pause(paused: str, replicas: int, reason: str, stale: tuple[str, ...]) -> PauseRecord:
    return PauseRecord(paused=paused, stale=stale, replicas=replicas, reason=reason)


def _limit(limit: LimitFacts | None) -> LimitRecord | None:
    if limit is None:
        return None
    policy = None
    if limit.policy is not None:
        type_, value, period_ms = limit.policy
        policy = PolicyRecord(type=type_, value=value, period_seconds=period_ms / 1000)
    return LimitRecord(replicas=limit.replicas, policy=policy, period_start_replicas=limit.period_start)


def _written(written: WrittenFacts) -> Written:
    return Written(
        replicas=written.replicas,
        scale_error=written.scale_error,
        status=written.status,
        status_error=written.status_error,
    )


def _quantity(milli: int | None, *, binary: bool) -> str | None:
    return None if milli is None else quantity_text(milli, binary=binary)


def _finite(ratio: float | None) -> float | None:
    return ratio if ratio is not None and math.isfinite(ratio) else None


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
