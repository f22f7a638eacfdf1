"""One entry of `spec.metrics` against what was observed: how many replicas it asks for, or why it cannot say.

This is where the five metric types differ: which target counts, how the metric is named when it decides, what goes
into `status.currentMetrics`, and how its failure is worded in the condition, the event and the error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.core import describe, readings, replicas, totals
from autoscaler.core.model import (
    CurrentMetric,
    ExternalMetric,
    InvalidMetric,
    MetricIdentifier,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import (
    AnswerError,
    ExternalAnswer,
    MetricAnswer,
    ObjectAnswer,
    PodsAnswer,
    ResourceAnswer,
    Scale,
)
from autoscaler.core.pod_groups import PodTiming
from autoscaler.core.proposal import Pods, Proposal, ReplicaError, Tolerance
from kube.fields import quote
from kube.selectors import LabelSelector, SelectorError

_NO_RESOURCE_TARGET = (
    "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
)
_NO_OBJECT_TARGET = "invalid object metric source: neither a value target nor an average value target was set"
_NO_EXTERNAL_TARGET = "invalid external metric source: neither a value target nor an average value target was set"
_NO_PODS_TARGET = "invalid pods metric source: no average value target was set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What all metrics of one HPA are judged by."""

    namespace: str
    scale: Scale
    pods: Pods
    tolerance: Tolerance
    timing: PodTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a metric gave no replica count, in the words that Kubernetes uses in each place."""

    reason: str
    """Of the ScalingActive condition and of the event."""
    message: str
    """Of the event; the condition puts its own beginning before it."""
    error: str
    """In the error that the step returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one metric came to: a proposal or a failure, never both."""

    spec: MetricSpec
    name: str = ""
    """What texts call the metric when it decides."""
    proposal: Proposal | None = None
    failure: Failure | None = None
    current: CurrentMetric = field(default_factory=CurrentMetric)
    """Its entry in `status.currentMetrics`."""


class _InvalidSourceError(ValueError):
    """The metric cannot be asked for as it is specified."""


def evaluate(spec: MetricSpec, answer: MetricAnswer | None, circumstances: Circumstances) -> Evaluation:
    """What `spec` asks for, given the metrics API's `answer` (None where `unanswerable` said so).

    Raises:
        ValueError: the answer is not one to a metric of this type.
    """
    failure = unanswerable(spec)
    if failure is not None:
        return Evaluation(spec=spec, failure=failure)
    try:
        proposal = _propose(spec, answer, circumstances)
    except ReplicaError as error:
        return Evaluation(spec=spec, failure=_failure(spec, str(error)))
    return Evaluation(spec=spec, name=_name(spec), proposal=proposal, current=_current(spec, proposal))


def unanswerable(spec: MetricSpec) -> Failure | None:
    """Why no metrics API needs to be asked about `spec`: it is wrong in itself. None if it is not."""
    try:
        match spec.source:
            case InvalidMetric(type_):
                raise _InvalidSourceError(f"unknown metric source type {quote(type_)}")
            case ResourceMetric():
                if spec.target.average_value is None and spec.target.average_utilization is None:
                    raise _InvalidSourceError(_NO_RESOURCE_TARGET)
            case PodsMetric(metric):
                _check_selector(metric)
                if spec.target.average_value is None:
                    raise _InvalidSourceError(_NO_PODS_TARGET)
            case ObjectMetric(metric):
                _check_selector(metric)
                if _object_target(spec) is None:
                    raise _InvalidSourceError(_NO_OBJECT_TARGET)
            case ExternalMetric(metric):
                if spec.target.average_value is None and spec.target.value is None:
                    raise _InvalidSourceError(_NO_EXTERNAL_TARGET)
                _check_selector(metric)
    except _InvalidSourceError as error:
        return _failure(spec, str(error), source_is_invalid=True)
    except SelectorError as error:
        return _failure(spec, str(error), selector_is_invalid=True)
    return None


# --- proposals -----------------------------------------------------------------------------------------------------


def _propose(spec: MetricSpec, answer: MetricAnswer | None, given: Circumstances) -> Proposal:
    match spec.source, answer:
        case ResourceMetric() as source, (ResourceAnswer() | AnswerError()) as read:
            return _propose_resource(spec, source, read, given)
        case PodsMetric(metric), (PodsAnswer() | AnswerError()) as read:
            assert spec.target.average_value is not None
            return replicas.pods_average(
                readings.pods_samples(read),
                given.pods,
                metric_name=metric.name,
                target_usage=spec.target.average_value,
                current_replicas=given.scale.spec_replicas,
                tolerance=given.tolerance,
                timing=given.timing,
            )
        case ObjectMetric() as source, (ObjectAnswer() | AnswerError()) as read:
            return _propose_object(spec, source, read, given)
        case ExternalMetric() as source, (ExternalAnswer() | AnswerError()) as read:
            return _propose_external(spec, source, read, given)
        case _:
            raise ValueError(f"{type(spec.source).__name__} has no answer of its kind but {type(answer).__name__}")


def _propose_resource(
    spec: MetricSpec, source: ResourceMetric, answer: ResourceAnswer | AnswerError, given: Circumstances
) -> Proposal:
    samples = readings.resource_samples(answer, source)
    if spec.target.average_value is not None:
        return replicas.resource_average(
            samples,
            given.pods,
            resource=source.name,
            target_usage=spec.target.average_value,
            current_replicas=given.scale.spec_replicas,
            tolerance=given.tolerance,
            timing=given.timing,
        )
    assert spec.target.average_utilization is not None
    return replicas.resource_utilization(
        samples,
        given.pods,
        resource=source.name,
        container=source.container,
        target_utilization=spec.target.average_utilization,
        current_replicas=given.scale.spec_replicas,
        tolerance=given.tolerance,
        timing=given.timing,
    )


def _propose_object(
    spec: MetricSpec, source: ObjectMetric, answer: ObjectAnswer | AnswerError, given: Circumstances
) -> Proposal:
    name = describe.object_metric(source.metric, source.described_object, given.namespace)
    target = _object_target(spec)
    assert target is not None
    if spec.target.type == "AverageValue":
        return totals.object_average(
            readings.object_value(answer),
            metric=name,
            target_usage=target,
            status_replicas=given.scale.status_replicas,
            tolerance=given.tolerance,
        )
    return totals.object_value(
        readings.object_value(answer),
        given.pods,
        metric=name,
        target_usage=target,
        current_replicas=given.scale.spec_replicas,
        tolerance=given.tolerance,
    )


def _propose_external(
    spec: MetricSpec, source: ExternalMetric, answer: ExternalAnswer | AnswerError, given: Circumstances
) -> Proposal:
    name = describe.external_metric(source.metric, given.namespace)
    if spec.target.average_value is not None:
        return totals.external_average(
            readings.external_values(answer),
            metric=name,
            target_usage=spec.target.average_value,
            status_replicas=given.scale.status_replicas,
            tolerance=given.tolerance,
        )
    assert spec.target.value is not None
    return totals.external_value(
        readings.external_values(answer),
        given.pods,
        metric=name,
        target_usage=spec.target.value,
        current_replicas=given.scale.spec_replicas,
        tolerance=given.tolerance,
    )


def _object_target(spec: MetricSpec) -> int | None:
    """The target that counts: for Object metrics alone, the one that the target's type names."""
    return {"Value": spec.target.value, "AverageValue": spec.target.average_value}.get(spec.target.type)


def _check_selector(metric: MetricIdentifier) -> None:
    if metric.selector is not None:
        LabelSelector.from_object(describe.selector_object(metric.selector))


# --- words ---------------------------------------------------------------------------------------------------------


def _name(spec: MetricSpec) -> str:
    match spec.source:
        case ResourceMetric(resource) if spec.target.average_value is not None:
            return f"{resource} resource"
        case ResourceMetric(resource, None):
            return f"{resource} resource utilization (percentage of request)"
        case ResourceMetric(resource):
            return f"{resource} container resource utilization (percentage of request)"
        case PodsMetric(metric):
            return f"pods metric {metric.name}"
        case ObjectMetric(metric, described) if spec.target.type == "Value":
            return f"{described.kind} metric {metric.name}"
        case ObjectMetric(metric) | ExternalMetric(metric):
            return f"external metric {metric.name}({describe.selector_text(metric.selector)})"
        case InvalidMetric(type_):
            return type_


def _current(spec: MetricSpec, proposal: Proposal) -> CurrentMetric:
    totals = isinstance(spec.source, ObjectMetric) and spec.target.type == "Value"
    totals = totals or (isinstance(spec.source, ExternalMetric) and spec.target.average_value is None)
    return CurrentMetric(
        source=spec.source,
        value=proposal.usage if totals else None,
        average_value=None if totals else proposal.usage,
        average_utilization=proposal.utilization,
    )


def _failure(
    spec: MetricSpec, problem: str, *, source_is_invalid: bool = False, selector_is_invalid: bool = False
) -> Failure:
    match spec.source:
        case InvalidMetric():
            return Failure(reason="InvalidMetricSourceType", message=problem, error=problem)
        case ResourceMetric(resource, container):
            if not source_is_invalid:
                measure = "usage" if spec.target.average_value is not None else "utilization"
                problem = f"failed to get {resource} {measure}: {problem}"
            if container is None:
                reason, error = "FailedGetResourceMetric", f"failed to get {resource} resource metric value: {problem}"
            else:
                reason = "FailedGetContainerResourceMetric"
                error = f"failed to get {container} container metric value: {problem}"
            return Failure(reason=reason, message=problem, error=error)
        case PodsMetric():
            return Failure(
                reason="FailedGetPodsMetric", message=problem, error=f"failed to get pods metric value: {problem}"
            )
        case ObjectMetric(metric):
            cause = problem
            if spec.target.type == "AverageValue" and not source_is_invalid and not selector_is_invalid:
                cause = f"failed to get {metric.name} object metric: {problem}"
            return Failure(
                reason="FailedGetObjectMetric", message=problem, error=f"failed to get object metric value: {cause}"
            )
        case ExternalMetric(metric):
            cause = problem
            if not source_is_invalid and spec.target.average_value is not None:
                cause = f"failed to get {metric.name} external metric: {problem}"
            elif not source_is_invalid:
                cause = f"failed to get external metric {metric.name}: {problem}"
            return Failure(
                reason="FailedGetExternalMetric",
                message=problem,
                error=f"failed to get {metric.name} external metric value: {cause}",
            )
