"""What the metrics APIs' answers amount to: the values to compute with, or why there are none.

The judgement and the words are those of the metrics client in Kubernetes 1.36: an empty answer is a failure, a pod of
which one container has no value has none itself, and a failed call names the API that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.core.integers import int64
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
    ExternalResponse,
    MetricError,
    MetricResponse,
    ObjectResponse,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    Scale,
)
from autoscaler.core.pods import PodTiming
from autoscaler.core.replica_calculator import (
    Pods,
    Proposal,
    ReplicaError,
    Tolerances,
    Unavailable,
    external_average,
    external_value,
    object_average,
    object_value,
    pods_average,
    resource_average,
    resource_utilization,
)
from autoscaler.core.status import external_metric, object_metric, selector_object, selector_text
from kube.fields import quote
from kube.selectors import LabelSelector, SelectorError


def resource_samples(
    answer: ResourceResponse | MetricError, metric: ResourceMetric
) -> Mapping[str, PodSample] | Unavailable:
    """Each pod's usage of the resource, or that of one container: {pod name: sample}."""
    if isinstance(answer, MetricError):
        return _failed("resource", answer)
    if not answer.pods:
        return _empty("resource")
    samples: dict[str, PodSample] = {}
    for pod in answer.pods:
        value = _pod_value(pod, metric)
        if value is not None:
            samples[pod.name] = PodSample(value=value, timestamp_ms=pod.timestamp_ms, window_ms=pod.window_ms)
    return samples


def pods_samples(answer: PodsResponse | MetricError) -> Mapping[str, PodSample] | Unavailable:
    """Each pod's value of a custom metric: {pod name: sample}."""
    if isinstance(answer, MetricError):
        return _failed("custom", answer)
    return answer.pods or _empty("custom")


def single_value(answer: ObjectResponse | MetricError) -> int | Unavailable:
    """The object's value, in thousandths."""
    return _failed("custom", answer) if isinstance(answer, MetricError) else answer.value


def external_values(answer: ExternalResponse | MetricError) -> tuple[int, ...] | Unavailable:
    """The values of all series, in thousandths."""
    if isinstance(answer, MetricError):
        return _failed("external", answer)
    return answer.values or _empty("external")


def _pod_value(pod: PodUsage, metric: ResourceMetric) -> int | None:
    """The container's value, or the sum over all containers; None if a value that counts is not there.

    Of a container that is named twice the first entry is the container's value, and the sum has both.
    Upstream: metrics.getContainerMetrics, metrics.getPodMetrics
    """
    containers = list(pod.containers)
    if metric.container is not None:
        containers = [each for each in containers if each.name == metric.container][:1]
    values = [each.usage[metric.name] for each in containers if metric.name in each.usage]
    return int64(sum(values)) if values and len(values) == len(containers) else None


def _failed(api: str, error: MetricError) -> Unavailable:
    return Unavailable(f"unable to fetch metrics from {api} metrics API: {error.message}")


def _empty(api: str) -> Unavailable:
    return Unavailable(f"no metrics returned from {api} metrics API")


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
    tolerance: Tolerances
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


def compute_replicas_for_metric(
    spec: MetricSpec, answer: MetricResponse | None, circumstances: Circumstances
) -> Evaluation:
    """What `spec` asks for, given the metrics API's `answer` (None where `validate_metric_source` said so).

    Raises:
        ValueError: the answer is not one to a metric of this type.
    """
    failure = validate_metric_source(spec)
    if failure is not None:
        return Evaluation(spec=spec, failure=failure)
    try:
        proposal = _propose(spec, answer, circumstances)
    except ReplicaError as error:
        return Evaluation(spec=spec, failure=_failure(spec, str(error)))
    return Evaluation(spec=spec, name=_name(spec), proposal=proposal, current=_current(spec, proposal))


def validate_metric_source(spec: MetricSpec) -> Failure | None:
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


def _propose(spec: MetricSpec, answer: MetricResponse | None, given: Circumstances) -> Proposal:
    match spec.source, answer:
        case ResourceMetric() as source, (ResourceResponse() | MetricError()) as read:
            return _propose_resource(spec, source, read, given)
        case PodsMetric(metric), (PodsResponse() | MetricError()) as read:
            assert spec.target.average_value is not None
            return pods_average(
                pods_samples(read),
                given.pods,
                metric_name=metric.name,
                target_usage=spec.target.average_value,
                current_replicas=given.scale.spec_replicas,
                tolerance=given.tolerance,
                timing=given.timing,
            )
        case ObjectMetric() as source, (ObjectResponse() | MetricError()) as read:
            return _propose_object(spec, source, read, given)
        case ExternalMetric() as source, (ExternalResponse() | MetricError()) as read:
            return _propose_external(spec, source, read, given)
        case _:
            raise ValueError(f"{type(spec.source).__name__} has no answer of its kind but {type(answer).__name__}")


def _propose_resource(
    spec: MetricSpec, source: ResourceMetric, answer: ResourceResponse | MetricError, given: Circumstances
) -> Proposal:
    samples = resource_samples(answer, source)
    if spec.target.average_value is not None:
        return resource_average(
            samples,
            given.pods,
            resource=source.name,
            target_usage=spec.target.average_value,
            current_replicas=given.scale.spec_replicas,
            tolerance=given.tolerance,
            timing=given.timing,
        )
    assert spec.target.average_utilization is not None
    return resource_utilization(
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
    spec: MetricSpec, source: ObjectMetric, answer: ObjectResponse | MetricError, given: Circumstances
) -> Proposal:
    name = object_metric(source.metric, source.described_object, given.namespace)
    target = _object_target(spec)
    assert target is not None
    if spec.target.type == "AverageValue":
        return object_average(
            single_value(answer),
            metric=name,
            target_usage=target,
            status_replicas=given.scale.status_replicas,
            tolerance=given.tolerance,
        )
    return object_value(
        single_value(answer),
        given.pods,
        metric=name,
        target_usage=target,
        current_replicas=given.scale.spec_replicas,
        tolerance=given.tolerance,
    )


def _propose_external(
    spec: MetricSpec, source: ExternalMetric, answer: ExternalResponse | MetricError, given: Circumstances
) -> Proposal:
    name = external_metric(source.metric, given.namespace)
    if spec.target.average_value is not None:
        return external_average(
            external_values(answer),
            metric=name,
            target_usage=spec.target.average_value,
            status_replicas=given.scale.status_replicas,
            tolerance=given.tolerance,
        )
    assert spec.target.value is not None
    return external_value(
        external_values(answer),
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
        LabelSelector.from_object(selector_object(metric.selector))


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
            return f"external metric {metric.name}({selector_text(metric.selector)})"
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
