"""What is kept of a step until somebody asks: the numbers that a record is made of, without names and words.

A record is asked for once in a while, and a step is taken every few seconds for each HPA. So a step only leaves its
facts: milli-values, milliseconds and names, in the order of the fields, packed to some 300 bytes. The record, with its
quantities, times and sentence, is made of them when it is read (`autoscaler.records.recording`).

Nothing large is kept alive by facts: they hold no object of the step, and of long lists the length and the first few
entries, of long texts the beginning. One with ten thousand pods must not cost what they cost.

What a field means is said at the field of the record that it becomes (`autoscaler.records.record`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.core.decision import Decision, Outcome
from autoscaler.core.metrics import Evaluation, pod_samples
from autoscaler.core.model import (
    HPA,
    CurrentMetric,
    ExternalMetric,
    HPAKey,
    InvalidMetric,
    MetricSource,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
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
from autoscaler.core.pods import PodGroups
from autoscaler.core.stabilization import Normalized, RateLimit
from autoscaler.core.status import selector_object
from autoscaler.records.record import DecidedBy

_MOST_SHOWN: Final = 10
"""Entries of a list."""
_MOST_TEXT: Final = 1024
"""Characters of a text: what an event's message may have."""

_Text = TypeVar("_Text", str, str | None)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a step was about: the same for all steps of an HPA, and so kept once."""

    key: HPAKey
    api_version: str
    uid: str
    target: str

    @classmethod
    def of(cls, hpa: HPA) -> Subject:
        """An HPA as the subject of its steps."""
        return cls(hpa.key, hpa.api_version, hpa.uid, hpa.target)


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """Packed without the fields' names."""


class SomeNames(_Row, frozen=True):
    """How many, and the first."""

    count: int
    shown: tuple[str, ...] = ()


class SomeValues(_Row, frozen=True):
    """How many, and some: (pod, milli-value)."""

    count: int
    shown: tuple[tuple[str | None, int], ...] = ()


class MilliMeasure(_Row, frozen=True):
    """Milli-values, but for the utilization, which is in percent."""

    value: int | None = None
    average_value: int | None = None
    average_utilization: int | None = None


class GroupFacts(_Row, frozen=True):
    """The pods by the use that could be made of them."""

    ready: SomeNames
    unready: SomeNames
    missing: SomeNames
    ignored: SomeNames


class MetricFacts(_Row, frozen=True, kw_only=True):
    """One metric."""

    type: str
    name: str
    container: str | None
    selector: dict[str, Any] | None
    described: tuple[str, str, str] | None
    """Kind, name and apiVersion."""
    target: MilliMeasure
    values: SomeValues | None
    failure: tuple[str, str] | None
    """Reason and message."""
    current: MilliMeasure | None = None
    total: int | None = None
    pods: GroupFacts | None = None
    ratio: float | None = None
    rebalanced_ratio: float | None = None
    within_tolerance: bool = False
    counted: int | None = None
    overruled: bool = False
    proposed_replicas: int | None = None


class LimitFacts(_Row, frozen=True):
    """How far one direction may go."""

    replicas: int
    policy: tuple[str, int, int] | None
    """Type, value, and period in milliseconds."""
    period_start: int | None


class NormalizedFacts(_Row, frozen=True):
    """What became of a proposal."""

    proposed_replicas: int
    stabilized_replicas: int
    stabilization: str
    window_ms: int
    held_by: tuple[int, int] | None
    """Replicas, and milliseconds since the epoch."""
    scale_up_limit: LimitFacts
    scale_down_limit: LimitFacts | None
    desired_replicas: int
    limit: str


class WrittenFacts(_Row, frozen=True):
    """What was written, and why something was not."""

    replicas: int | None
    scale_error: str | None
    status: bool
    status_error: str | None


class Facts(_Row, frozen=True, kw_only=True):
    """One step, whomever it was about."""

    now_ms: int
    mode: str
    decided_by: DecidedBy | None
    current_replicas: int | None
    desired_replicas: int | None
    reason: str
    bounds: tuple[int, int]
    scale: tuple[int, int, str] | None
    """Replicas of the spec and of the status, and the selector."""
    tolerance: tuple[float, float] | None
    """Down and up."""
    foreign_pods: SomeNames | None
    metrics: tuple[MetricFacts, ...]
    winner: int | None
    fallback: tuple[int, int, int] | None
    """Replicas, threshold and failures."""
    normalized: NormalizedFacts | None
    held_back: tuple[str, int, str, tuple[str, ...]] | None
    """The pause, the replicas, the reason, and the stale resources."""
    written: WrittenFacts | None
    events: tuple[tuple[str, str, str], ...]
    """Type, reason and message."""
    error: str | None


def facts_of(
    decision: Decision,
    outcome: Outcome | None = None,
    *,
    scale_error: str | None = None,
    status_error: str | None = None,
    mode: str = "act",
) -> Facts:
    """The facts of a step.

    Args:
        decision: what was decided.
        outcome: how the step ended; None if it was only computed, and nothing was to be written.
        scale_error: why the scale could not be written.
        status_error: why the status could not be stored.
        mode: what the step may change.
    """
    observation = decision.observation
    spec, scale = observation.hpa.spec, observation.scale
    events = decision.events + decision.late_events if outcome is None else outcome.events + outcome.late_events
    written = None
    if decision.scale_to is None:
        scale_error = None
    if outcome is not None:
        written = WrittenFacts(
            decision.scale_to if scale_error is None and mode == "act" else None,
            _shortened(scale_error),
            outcome.status is not None and mode == "act",
            _shortened(status_error),
        )
    tolerance, stand_in, held = decision.tolerance, decision.fallback, decision.blocked
    return Facts(
        now_ms=decision.now_ms,
        mode=mode,
        decided_by=_decided_by(decision),
        current_replicas=decision.current_replicas,
        desired_replicas=_desired(decision),
        reason="" if decision.scale_to is None else decision.rescale_reason,
        bounds=(spec.min_replicas, spec.max_replicas),
        scale=(scale.spec_replicas, scale.status_replicas, _shortened(scale.selector))
        if isinstance(scale, Scale)
        else None,
        tolerance=None if tolerance is None else (tolerance.scale_down, tolerance.scale_up),
        foreign_pods=_names(observation.foreign_pods) if observation.foreign_pods else None,
        metrics=_metrics(decision),
        winner=next((index for index, each in enumerate(decision.evaluations) if each is decision.winner), None),
        fallback=None
        if stand_in is None
        else (stand_in.fallback.replicas, stand_in.fallback.failure_threshold, stand_in.failures),
        normalized=None
        if decision.normalized is None
        else _normalized(decision.normalized, ahead_ms=decision.now_ms - decision.monotonic_ms),
        held_back=None if held is None else (str(held.pause or ""), held.replicas, held.reason, held.stale),
        written=written,
        events=tuple((event.type, event.reason, _shortened(event.message)) for event in events),
        error=_shortened(decision.error if outcome is None else outcome.error),
    )


def _decided_by(decision: Decision) -> DecidedBy | None:
    if decision.failed:
        return None
    if decision.normalized is not None:
        return "metrics" if decision.fallback is None else "fallback"
    return "disabled" if decision.scale_to is None and decision.blocked is None else "bounds"


def _desired(decision: Decision) -> int | None:
    if decision.failed:
        return None
    return decision.current_replicas if decision.scale_to is None else decision.scale_to


# --- metrics -------------------------------------------------------------------------------------------------------


def _metrics(decision: Decision) -> tuple[MetricFacts, ...]:
    answers = decision.observation.responses or (None,) * len(decision.evaluations)
    return tuple(_metric(each, answer) for each, answer in zip(decision.evaluations, answers, strict=True))


def _metric(evaluation: Evaluation, answer: MetricResponse | None) -> MetricFacts:
    spec, proposal, failure = evaluation.spec, evaluation.proposal, evaluation.failure
    type_, name, container, selector, described = _identity(spec.source)
    target, values = _target(spec), _values(spec, answer)
    if failure is not None:
        return MetricFacts(
            type=type_,
            name=name,
            container=container,
            selector=selector,
            described=described,
            target=target,
            values=values,
            failure=(failure.reason, _shortened(failure.message)),
        )
    assert proposal is not None, "an evaluation is a proposal or a failure"
    return MetricFacts(
        type=type_,
        name=name,
        container=container,
        selector=selector,
        described=described,
        target=target,
        values=values,
        failure=None,
        current=_current(evaluation.current),
        total=proposal.total,
        pods=None if proposal.pods is None else _groups(proposal.pods),
        ratio=proposal.ratio,
        rebalanced_ratio=proposal.rebalanced_ratio,
        within_tolerance=proposal.within_tolerance,
        counted=proposal.counted,
        overruled=proposal.overruled,
        proposed_replicas=proposal.replicas,
    )


def _identity(
    source: MetricSource,
) -> tuple[str, str, str | None, dict[str, Any] | None, tuple[str, str, str] | None]:
    """Type, name, container, selector and described object of a metric."""
    described = None
    match source:
        case ResourceMetric(name, container):
            return "Resource" if container is None else "ContainerResource", name, container, None, None
        case InvalidMetric(type_):
            return type_, "", None, None, None
        case PodsMetric(metric):
            type_ = "Pods"
        case ExternalMetric(metric):
            type_ = "External"
        case ObjectMetric(metric, reference):
            type_, described = "Object", (reference.kind, reference.name, reference.api_version)
    selector = None if metric.selector is None else selector_object(metric.selector)
    return type_, metric.name, None, selector, described


def _target(spec: MetricSpec) -> MilliMeasure:
    """The one target that counts, whatever else is set."""
    target = spec.target
    by_value = isinstance(spec.source, ObjectMetric) and target.type == "Value"
    if target.average_value is not None and not by_value:
        return MilliMeasure(None, target.average_value)
    if target.average_utilization is not None and isinstance(spec.source, ResourceMetric):
        return MilliMeasure(None, None, target.average_utilization)
    return MilliMeasure(target.value)


def _current(current: CurrentMetric) -> MilliMeasure:
    return MilliMeasure(current.value, current.average_value, current.average_utilization)


def _values(spec: MetricSpec, answer: MetricResponse | None) -> SomeValues | None:
    match spec.source, answer:
        case InvalidMetric(), _:
            return None
        case _, PodsResponse(samples):
            return _values_of_pods(samples)
        case ResourceMetric() as metric, ResourceResponse():
            read = pod_samples(metric, answer)
            return None if isinstance(read, MetricError) else _values_of_pods(read)
        case _, ValuesResponse():
            return SomeValues(len(answer.values), tuple((None, milli) for milli in answer.values[:_MOST_SHOWN]))
        case _:
            return None


def _values_of_pods(samples: Mapping[str, PodSample]) -> SomeValues:
    highest = heapq.nlargest(_MOST_SHOWN, samples.items(), key=lambda item: item[1].value)
    return SomeValues(len(samples), tuple((name, sample.value) for name, sample in highest))


def _groups(groups: PodGroups) -> GroupFacts:
    return GroupFacts(_names(groups.ready), _names(groups.unready), _names(groups.missing), _names(groups.ignored))


def _names(pods: tuple[str, ...]) -> SomeNames:
    return SomeNames(len(pods), pods[:_MOST_SHOWN])


# --- limits --------------------------------------------------------------------------------------------------------


def _normalized(normalized: Normalized, *, ahead_ms: int) -> NormalizedFacts:
    """`ahead_ms`: by how much the wall clock is ahead of the history's, so that times can be shown."""
    held_by, down = normalized.stabilized_by, normalized.scale_down_limit
    return NormalizedFacts(
        normalized.proposed_replicas,
        normalized.stabilized_replicas,
        normalized.stabilization,
        normalized.window_ms,
        None if held_by is None else (held_by.replicas, held_by.time_ms + ahead_ms),
        _limit(normalized.scale_up_limit),
        None if down is None else _limit(down),
        normalized.desired_replicas,
        normalized.limit,
    )


def _limit(limit: RateLimit) -> LimitFacts:
    policy = limit.policy
    measure = None if policy is None else (policy.type, policy.value, policy.period_ms)
    return LimitFacts(limit.replicas, measure, limit.period_start)


def _shortened(text: _Text) -> _Text:
    if text is None or len(text) <= _MOST_TEXT:
        return text
    return text[: _MOST_TEXT - 3] + "..."
