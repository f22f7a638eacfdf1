"""Build the record of a reconciliation from its Decision.

Records have a bounded size and do not reference objects of the Decision. Long lists are reduced to their length and
first entries, long texts to their beginning.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, TypeVar

from msgspec.structs import asdict, replace

from autoscaler.core.decision import Decision
from autoscaler.core.metrics import Evaluation, metric_quantity, pod_samples
from autoscaler.core.model import (
    InvalidMetric,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    ResourceMetric,
)
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    PodSample,
    PodsResponse,
    ResourceResponse,
    Scale,
    ValuesResponse,
)
from autoscaler.core.quantities import CanonicalQuantity
from autoscaler.core.stabilization import Normalized
from autoscaler.records.reaction import sample_times
from autoscaler.records.record import (
    VERSION,
    BoundsRecord,
    DecidedBy,
    DecisionRecord,
    FailureRecord,
    Measure,
    MetricRecord,
    PodGroupsRecord,
    PodNames,
    ReactionRecord,
    RecommendationRecord,
    ScaleEventRecord,
    StabilizationRecord,
    Value,
    Values,
    Written,
    time_text,
)

_MAX_SHOWN: Final = 10
"""Entries of a list."""
_MAX_TEXT: Final = 1024
"""Characters of a text, the limit of an event's message."""

_Text = TypeVar("_Text", str, str | None)


def build_record(
    decision: Decision,
    *,
    mode: str = "act",
    is_early: bool = False,
    reaction: ReactionRecord | None = None,
    with_values: bool = True,
) -> DecisionRecord:
    """Build the record of a reconciliation, without its sentence.

    Args:
        decision: the decision; if it is not concluded, it was only computed.
        mode: the mode of the HPA.
        reaction: how soon it followed the load, if it scaled up.
        is_early: eager mode reconciled it before its sync was due.
        with_values: whether the record has the values that the metrics API returned; the sentence needs none.
    """
    observation, normalized = decision.observation, decision.normalized
    hpa, scale = observation.hpa, observation.scale
    responses = (observation.responses if with_values else ()) or (None,) * len(decision.evaluations)
    return DecisionRecord(
        version=VERSION,
        time=time_text(decision.now_ms),
        api_version=hpa.api_version,
        namespace=hpa.namespace,
        name=hpa.name,
        uid=hpa.uid,
        target=hpa.target,
        mode=mode,
        eager=is_early,
        decided_by=_decided_by(decision),
        current_replicas=decision.current_replicas,
        desired_replicas=_desired_replicas(decision),
        reason="" if decision.scale_to is None else decision.rescale_reason,
        scale=replace(scale, selector=_shorten(scale.selector), target_uid="") if isinstance(scale, Scale) else None,
        bounds=BoundsRecord(min_replicas=hpa.spec.min_replicas, max_replicas=hpa.spec.max_replicas),
        tolerance=decision.tolerance,
        foreign_pods=_names(observation.foreign_pods) if observation.foreign_pods else None,
        metrics=tuple(map(partial(_metric, now_ms=decision.now_ms), decision.evaluations, responses)),
        winner=next((index for index, each in enumerate(decision.evaluations) if each is decision.winner), None),
        fallback=decision.fallback,
        stabilization=None if normalized is None else _stabilization(decision, normalized),
        scale_events=_scale_events(decision),
        scale_up_limit=None if normalized is None else normalized.scale_up_limit,
        scale_down_limit=None if normalized is None else normalized.scale_down_limit,
        limited_replicas=None if normalized is None else normalized.desired_replicas,
        limit="" if normalized is None else normalized.limit,
        blocked=decision.blocked,
        written=_written(decision, mode) if decision.concluded else None,
        reaction=reaction,
        events=tuple(replace(each, message=_shorten(each.message)) for each in decision.events + decision.late_events),
        error=_shorten(decision.error),
    )


def _decided_by(decision: Decision) -> DecidedBy | None:
    if decision.failed:
        return None
    if decision.normalized is not None:
        return "metrics" if decision.fallback is None else "fallback"
    return "disabled" if decision.scale_to is None and decision.blocked is None else "bounds"


def _desired_replicas(decision: Decision) -> int | None:
    if decision.failed:
        return None
    return decision.current_replicas if decision.scale_to is None else decision.scale_to


def _written(decision: Decision, mode: str) -> Written:
    is_acting = mode == "act"
    return Written(
        replicas=decision.scale_to if is_acting and decision.scale_error is None else None,
        scale_error=_shorten(decision.scale_error),
        status=is_acting and decision.new_status is not None and decision.status_error is None,
        status_error=_shorten(decision.status_error),
    )


# --- metrics -------------------------------------------------------------------------------------------------------


def metric_record(spec: MetricSpec, current: MetricTarget | None = None) -> MetricRecord:
    """Return what a metric's spec says about it, and its current value as in the HPA's status."""
    match source := spec.source:
        case InvalidMetric():
            identifier = MetricIdentifier()
        case ResourceMetric(name=name):
            identifier = MetricIdentifier(name)
        case _:
            identifier = source.metric
    return MetricRecord(
        type=spec.type,
        name=identifier.name,
        container=source.container if isinstance(source, ResourceMetric) else None,
        selector=identifier.selector,
        described_object=source.described_object if isinstance(source, ObjectMetric) else None,
        target=_target(spec),
        current=None
        if current is None
        else Measure(
            value=_quantity(current.value, spec),
            average_value=_quantity(current.average_value, spec),
            average_utilization=current.average_utilization,
        ),
    )


def _metric(evaluation: Evaluation, response: MetricResponse | None, *, now_ms: int) -> MetricRecord:
    spec, proposal, failure = evaluation.spec, evaluation.proposal, evaluation.failure
    sampled_ms, window_ms = sample_times(response)
    record = replace(
        metric_record(spec, None if proposal is None else evaluation.current.target),
        values=_values(spec, response),
        age_seconds=None if sampled_ms is None else (now_ms - sampled_ms) / 1000,
        window_seconds=None if window_ms is None else window_ms / 1000,
        failure=None if failure is None else FailureRecord(reason=failure.reason, message=_shorten(failure.message)),
    )
    if proposal is None:
        return record
    groups = proposal.pods
    return replace(
        record,
        total=_milli_quantity(proposal.total, spec),
        pods_total=_milli_quantity(proposal.pods_total, spec),
        pods_requests=_milli_quantity(proposal.pods_requests, spec),
        pods=groups and PodGroupsRecord(**{group: _names(pods) for group, pods in asdict(groups).items()}),
        ratio=_finite(proposal.ratio),
        rebalanced_ratio=_finite(proposal.rebalanced_ratio),
        within_tolerance=proposal.within_tolerance,
        counted_pods=proposal.counted,
        overruled=proposal.overruled,
        proposed_replicas=proposal.replicas,
    )


def target_field(spec: MetricSpec) -> Literal["value", "average_value", "average_utilization"]:
    """Return which field of the target is effective, if several are set."""
    target, source = spec.target, spec.source
    by_value = isinstance(source, ObjectMetric) and target.type == "Value"
    if target.average_value is not None and not by_value:
        return "average_value"
    return "average_utilization" if isinstance(source, ResourceMetric) else "value"


def _target(spec: MetricSpec) -> Measure:
    match target_field(spec):
        case "average_value":
            return Measure(average_value=_quantity(spec.target.average_value, spec))
        case "average_utilization":
            return Measure(average_utilization=spec.target.average_utilization)
        case "value":
            return Measure(value=_quantity(spec.target.value, spec))


def _values(spec: MetricSpec, response: MetricResponse | None) -> Values | None:
    """The values that the metrics API returned; None if it returned none."""
    match spec.source, response:
        case InvalidMetric(), _:
            return None
        case _, PodsResponse(samples):
            return _values_of_pods(samples, spec)
        case ResourceMetric() as metric, ResourceResponse():
            read = pod_samples(metric, response)
            return None if isinstance(read, MetricError) else _values_of_pods(read, spec)
        case _, ValuesResponse(values=values):
            shown = tuple(Value(value=metric_quantity(spec, milli)) for milli in values[:_MAX_SHOWN])
            return Values(count=len(values), shown=shown)
        case _:
            return None


def _values_of_pods(samples: Mapping[str, PodSample], spec: MetricSpec) -> Values:
    highest = heapq.nlargest(_MAX_SHOWN, samples.items(), key=lambda item: item[1].value)
    return Values(
        count=len(samples),
        shown=tuple(Value(pod=pod, value=metric_quantity(spec, sample.value)) for pod, sample in highest),
    )


def _names(pods: tuple[str, ...]) -> PodNames:
    return PodNames(count=len(pods), shown=pods[:_MAX_SHOWN])


def _quantity(quantity: CanonicalQuantity | None, spec: MetricSpec) -> str | None:
    return None if quantity is None else metric_quantity(spec, quantity.milli)


def _milli_quantity(milli: int | None, spec: MetricSpec) -> str | None:
    return None if milli is None else metric_quantity(spec, milli)


def _finite(ratio: float | None) -> float | None:
    return ratio if ratio is not None and math.isfinite(ratio) else None


# --- limits --------------------------------------------------------------------------------------------------------


def _stabilization(decision: Decision, normalized: Normalized) -> StabilizationRecord:
    earlier = normalized.stabilized_by
    return StabilizationRecord(
        proposed_replicas=normalized.proposed_replicas,
        replicas=normalized.stabilized_replicas,
        reason=normalized.stabilization,
        window_seconds=normalized.window_ms / 1000,
        recommendation=None
        if earlier is None
        else RecommendationRecord(replicas=earlier.replicas, time=_history_time(decision, earlier.time_ms)),
    )


def _scale_events(decision: Decision) -> tuple[ScaleEventRecord, ...]:
    behavior, history = decision.observation.hpa.spec.behavior, decision.history
    if behavior is None:
        return ()
    policies = (*behavior.scale_up.policies, *behavior.scale_down.policies)
    oldest_ms = decision.monotonic_ms - 1000 * max((each.period_seconds for each in policies), default=0)
    changes = [(each.time_ms, each.change) for each in history.scale_up_events if each.time_ms > oldest_ms]
    changes += [(each.time_ms, -each.change) for each in history.scale_down_events if each.time_ms > oldest_ms]
    return tuple(
        ScaleEventRecord(change=change, time=_history_time(decision, time_ms))
        for time_ms, change in sorted(changes)[-_MAX_SHOWN:]
    )


def _history_time(decision: Decision, time_ms: int) -> str:
    """Return a time of the history's clock as text."""
    return time_text(time_ms + decision.now_ms - decision.monotonic_ms)


def _shorten(text: _Text) -> _Text:
    if text is None or len(text) <= _MAX_TEXT:
        return text
    return text[: _MAX_TEXT - 3] + "..."
