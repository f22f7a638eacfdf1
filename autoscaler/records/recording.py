"""From a step to its record: all that was decided, in the documented shape, and small whatever the cluster's size.

Of long lists the record holds the length and the first few entries, of long texts the beginning: a record is kept for
each of the last steps of every HPA, and one with ten thousand pods must not cost what they cost.
"""

from __future__ import annotations

import heapq
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from autoscaler.core import describe, readings
from autoscaler.core.model import (
    ExternalAnswer,
    ExternalMetric,
    InvalidMetric,
    ObjectAnswer,
    ObjectMetric,
    PodsAnswer,
    PodsMetric,
    ResourceAnswer,
    ResourceMetric,
    Scale,
)
from autoscaler.core.present import quantity_text
from autoscaler.core.replicas import Unavailable
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autoscaler.core.decide import Decision, Outcome
    from autoscaler.core.evaluate import Evaluation
    from autoscaler.core.model import CrossVersionObjectReference, MetricAnswer, MetricSpec, PodSample
    from autoscaler.core.normalize import Normalized, RateLimit
    from autoscaler.core.overrides import Held, StandIn
    from autoscaler.core.pod_groups import PodGroups
    from autoscaler.core.replicas import Tolerance
    from autoscaler.records.record import DecidedBy

__all__ = ["record_of"]

_MOST_SHOWN: Final = 10
"""Entries of a list."""
_MOST_TEXT: Final = 1024
"""Characters of a text: what an event's message may have."""

_Text = TypeVar("_Text", str, str | None)


def record_of(
    decision: Decision,
    outcome: Outcome | None = None,
    *,
    scale_error: str | None = None,
    status_error: str | None = None,
    mode: str = "act",
) -> DecisionRecord:
    """The record of a step.

    Args:
        decision: what was decided.
        outcome: how the step ended; None if it was only computed, and nothing was to be written.
        scale_error: why the scale could not be written.
        status_error: why the status could not be stored.
        mode: what the step may change.
    """
    hpa, scale = decision.observation.hpa, decision.observation.scale
    normalized = decision.normalized
    events = decision.events + decision.late_events if outcome is None else outcome.events + outcome.late_events
    written = None
    if decision.scale_to is None:
        scale_error = None
    if outcome is not None:
        written = Written(
            replicas=decision.scale_to if scale_error is None and mode == "act" else None,
            scale_error=_shortened(scale_error),
            status=outcome.status is not None and mode == "act",
            status_error=_shortened(status_error),
        )
    record = DecisionRecord(
        version=VERSION,
        time=_time(decision.now_ms),
        api_version=hpa.api_version,
        namespace=hpa.namespace,
        name=hpa.name,
        uid=hpa.uid,
        target=hpa.target,
        mode=mode,
        decided_by=_decided_by(decision),
        current_replicas=decision.current_replicas,
        desired_replicas=_desired(decision),
        reason="" if decision.scale_to is None else decision.rescale_reason,
        scale=_scale(scale) if isinstance(scale, Scale) else None,
        bounds=BoundsRecord(min_replicas=hpa.spec.min_replicas, max_replicas=hpa.spec.max_replicas),
        tolerance=_tolerance(decision.tolerance),
        foreign_pods=_names(foreign) if (foreign := decision.observation.foreign_pods) else None,
        metrics=_metrics(decision),
        winner=next((index for index, each in enumerate(decision.evaluations) if each is decision.winner), None),
        fallback=_fallback(decision.stand_in),
        stabilization=None if normalized is None else _stabilization(normalized),
        scale_up_limit=None if normalized is None else _limit(normalized.scale_up_limit),
        scale_down_limit=None if normalized is None else _limit(normalized.scale_down_limit),
        limited_replicas=normalized.desired_replicas if normalized else None,
        limit=normalized.limit if normalized else "",
        held_back=_pause(decision.held),
        written=written,
        events=tuple(EventRecord(type=e.type, reason=e.reason, message=_shortened(e.message)) for e in events),
        error=_shortened(decision.error if outcome is None else outcome.error),
    )
    return msgspec.structs.replace(record, sentence=sentence(record))


def _decided_by(decision: Decision) -> DecidedBy | None:
    if decision.failed:
        return None
    if decision.normalized is not None:
        return "metrics" if decision.stand_in is None else "fallback"
    return "disabled" if decision.scale_to is None and decision.held is None else "bounds"


def _desired(decision: Decision) -> int | None:
    if decision.failed:
        return None
    return decision.current_replicas if decision.scale_to is None else decision.scale_to


def _tolerance(tolerance: Tolerance | None) -> ToleranceRecord | None:
    if tolerance is None:
        return None
    return ToleranceRecord(scale_down=tolerance.scale_down, scale_up=tolerance.scale_up)


def _scale(scale: Scale) -> ScaleRecord:
    return ScaleRecord(
        spec_replicas=scale.spec_replicas,
        status_replicas=scale.status_replicas,
        selector=_shortened(scale.selector),
    )


# --- metrics -------------------------------------------------------------------------------------------------------


def _metrics(decision: Decision) -> tuple[MetricRecord, ...]:
    answers = decision.observation.answers or (None,) * len(decision.evaluations)
    return tuple(_metric(each, answer) for each, answer in zip(decision.evaluations, answers, strict=True))


def _metric(evaluation: Evaluation, answer: MetricAnswer | None) -> MetricRecord:
    spec, proposal, failure = evaluation.spec, evaluation.proposal, evaluation.failure
    binary = _is_binary(spec)
    record = _identity(spec, target=_target(spec), values=_values(spec, answer))
    if failure is not None:
        failed = FailureRecord(reason=failure.reason, message=_shortened(failure.message))
        return msgspec.structs.replace(record, failure=failed)
    assert proposal is not None, "an evaluation is a proposal or a failure"
    current = evaluation.current
    return msgspec.structs.replace(
        record,
        current=Measure(
            value=_quantity(current.value, binary=binary),
            average_value=_quantity(current.average_value, binary=binary),
            average_utilization=current.average_utilization,
        ),
        total=_quantity(proposal.total, binary=binary),
        pods=None if proposal.pods is None else _pods(proposal.pods),
        ratio=_finite(proposal.ratio),
        rebalanced_ratio=_finite(proposal.rebalanced_ratio),
        within_tolerance=proposal.within_tolerance,
        counted=proposal.counted,
        overruled=proposal.overruled,
        proposed_replicas=proposal.replicas,
    )


def _identity(spec: MetricSpec, *, target: Measure, values: Values | None) -> MetricRecord:
    match spec.source:
        case ResourceMetric(name, container):
            type_ = "Resource" if container is None else "ContainerResource"
            return MetricRecord(type=type_, name=name, container=container, target=target, values=values)
        case PodsMetric(metric):
            type_, described = "Pods", None
        case ObjectMetric(metric, reference):
            type_, described = "Object", _described(reference)
        case ExternalMetric(metric):
            type_, described = "External", None
        case InvalidMetric(type_):
            return MetricRecord(type=type_, name="", target=target)
    selector = None if metric.selector is None else describe.selector_object(metric.selector)
    return MetricRecord(
        type=type_, name=metric.name, selector=selector, described_object=described, target=target, values=values
    )


def _described(reference: CrossVersionObjectReference) -> DescribedObject:
    return DescribedObject(kind=reference.kind, name=reference.name, api_version=reference.api_version)


def _target(spec: MetricSpec) -> Measure:
    """The one target that counts, whatever else is set."""
    target, binary = spec.target, _is_binary(spec)
    by_value = isinstance(spec.source, ObjectMetric) and target.type == "Value"
    if target.average_value is not None and not by_value:
        return Measure(average_value=_quantity(target.average_value, binary=binary))
    if target.average_utilization is not None and isinstance(spec.source, ResourceMetric):
        return Measure(average_utilization=target.average_utilization)
    return Measure(value=_quantity(target.value, binary=binary))


def _values(spec: MetricSpec, answer: MetricAnswer | None) -> Values | None:
    match spec.source, answer:
        case _, PodsAnswer(samples):
            return _values_of_pods(samples, binary=False)
        case ResourceMetric() as metric, ResourceAnswer():
            read = readings.resource_samples(answer, metric)
            return None if isinstance(read, Unavailable) else _values_of_pods(read, binary=_is_binary(spec))
        case _, ExternalAnswer():
            return Values(count=len(answer.values), shown=tuple(map(_value, answer.values[:_MOST_SHOWN])))
        case _, ObjectAnswer():
            return Values(count=1, shown=(_value(answer.value),))
        case _:
            return None


def _values_of_pods(samples: Mapping[str, PodSample], *, binary: bool) -> Values:
    highest = heapq.nlargest(_MOST_SHOWN, samples, key=lambda name: samples[name].value)
    shown = tuple(Value(pod=name, value=quantity_text(samples[name].value, binary=binary)) for name in highest)
    return Values(count=len(samples), shown=shown)


def _value(milli: int) -> Value:
    return Value(value=quantity_text(milli, binary=False))


def _pods(groups: PodGroups) -> CountedPods:
    return CountedPods(
        ready=_names(groups.ready),
        unready=_names(groups.unready),
        missing=_names(groups.missing),
        ignored=_names(groups.ignored),
    )


def _names(pods: tuple[str, ...]) -> PodNames:
    return PodNames(count=len(pods), shown=pods[:_MOST_SHOWN])


# --- limits --------------------------------------------------------------------------------------------------------


def _stabilization(normalized: Normalized) -> StabilizationRecord:
    held_by = normalized.held_by
    return StabilizationRecord(
        proposed_replicas=normalized.proposed_replicas,
        replicas=normalized.stabilized_replicas,
        reason=normalized.stabilization,
        window_seconds=normalized.window_ms / 1000,
        held_by=None if held_by is None else HeldBy(replicas=held_by.replicas, time=_time(held_by.time_ms)),
    )


def _fallback(stand_in: StandIn | None) -> FallbackRecord | None:
    if stand_in is None:
        return None
    return FallbackRecord(
        replicas=stand_in.fallback.replicas,
        failure_threshold=stand_in.fallback.failure_threshold,
        failures=stand_in.failures,
    )


def _pause(held: Held | None) -> PauseRecord | None:
    return None if held is None else PauseRecord(paused=held.pause, replicas=held.replicas, reason=held.reason)


def _limit(limit: RateLimit | None) -> LimitRecord | None:
    if limit is None:
        return None
    policy = limit.policy
    return LimitRecord(
        replicas=limit.replicas,
        policy=None
        if policy is None
        else PolicyRecord(type=policy.type, value=policy.value, period_seconds=policy.period_ms / 1000),
        period_start_replicas=limit.period_start,
    )


# --- values --------------------------------------------------------------------------------------------------------


def _is_binary(spec: MetricSpec) -> bool:
    return isinstance(spec.source, ResourceMetric) and spec.source.name == "memory"


def _quantity(milli: int | None, *, binary: bool) -> str | None:
    return None if milli is None else quantity_text(milli, binary=binary)


def _finite(ratio: float | None) -> float | None:
    return ratio if ratio is not None and math.isfinite(ratio) else None


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shortened(text: _Text) -> _Text:
    if text is None or len(text) <= _MOST_TEXT:
        return text
    return text[: _MOST_TEXT - 3] + "..."
