"""Evaluate one entry of `spec.metrics`: the metrics API's response becomes a proposed replica count, or an error.

This module has the differences between metric types: the target, the metric's name in messages, the entry in
`status.currentMetrics`, and the messages of failures in condition, event and error. All messages are Kubernetes'.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from autoscaler.core.integers import int64
from autoscaler.core.model import (
    CrossVersionObjectReference,
    ExternalMetric,
    InvalidMetric,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    ValuesResponse,
)
from autoscaler.core.quantities import CanonicalQuantity, quantity_text
from autoscaler.core.replica_calculator import Proposal, ReplicaCalculator
from autoscaler.core.status import selector_text
from kube.values.fields import quote
from kube.values.selectors import SelectorError

_NO_TARGET = {
    ResourceMetric: "invalid resource metric source: "
    "neither an average utilization target nor an average value (usage) target was set",
    PodsMetric: "invalid pods metric source: no average value target was set",
    ObjectMetric: "invalid object metric source: neither a value target nor an average value target was set",
    ExternalMetric: "invalid external metric source: neither a value target nor an average value target was set",
}


class Evaluation(Struct, frozen=True, kw_only=True):
    """One metric's proposal or failure, never both."""

    spec: MetricSpec
    name: str = ""
    """The metric's name in the reason for a scale."""
    proposal: Proposal | None = None
    failure: MetricError | None = None
    current: MetricSpec = MetricSpec()
    """The entry in `status.currentMetrics`."""


def compute_replicas_for_metric(
    spec: MetricSpec, response: MetricResponse | None, calculator: ReplicaCalculator, *, namespace: str
) -> Evaluation:
    """Evaluate one metric. Upstream: podautoscaler.computeReplicasForMetric.

    Args:
        spec: the entry of `spec.metrics`.
        response: the metrics API's response; None if `validate_metric_source` failed.
        calculator: the calculator of the HPA.
        namespace: the HPA's.

    Raises:
        ValueError: the response is of another metric type.
    """
    failure = validate_metric_source(spec)
    if failure is not None:
        return Evaluation(spec=spec, failure=failure)
    try:
        proposal = _compute(spec, response, calculator, namespace)
    except MetricError as error:
        return Evaluation(spec=spec, failure=_failure(spec, str(error)))
    return Evaluation(spec=spec, name=_name(spec), proposal=proposal, current=_current(spec, proposal))


def validate_metric_source(spec: MetricSpec) -> MetricError | None:
    """Return the error of an invalid `spec`, whose metric is not fetched; None if it is valid."""
    source = spec.source
    if isinstance(source, InvalidMetric):
        return _failure(spec, f"unknown metric source type {quote(spec.type)}")
    no_target = None
    if _target(spec) is None:
        text = next(text for type_, text in _NO_TARGET.items() if isinstance(source, type_))
        no_target = _failure(spec, text, invalid_source=True)
    # Upstream validates an External metric's target before its selector; for other types the selector first.
    if isinstance(source, ResourceMetric) or (isinstance(source, ExternalMetric) and no_target):
        return no_target
    try:
        _ = source.metric.label_selector
    except SelectorError as error:
        return _failure(spec, str(error), invalid_selector=True)
    return no_target


def _target(spec: MetricSpec) -> int | None:
    """Return the effective target: percent or a milli-value. For Object metrics, `type` selects it."""
    target, quantity = spec.target, spec.target.average_value
    match spec.source:
        case ResourceMetric() if quantity is None:
            return target.average_utilization
        case ObjectMetric():
            quantity = {"Value": target.value, "AverageValue": target.average_value}.get(target.type)
        case ExternalMetric() if quantity is None:
            quantity = target.value
    return None if quantity is None else quantity.milli


def _compute(
    spec: MetricSpec, response: MetricResponse | None, calculator: ReplicaCalculator, namespace: str
) -> Proposal:
    target, per_pod = _target(spec), spec.target.average_value is not None
    assert target is not None
    match spec.source, response:
        case ResourceMetric(name=name, container=container) as source, ResourceResponse() | MetricError():
            samples = pod_samples(source, response)
            if per_pod:
                return calculator.get_raw_resource_replicas(samples, resource=name, target_usage=target)
            return calculator.get_resource_replicas(
                samples, resource=name, container=container, target_utilization=target
            )
        case PodsMetric(metric=metric) as source, PodsResponse() | MetricError():
            samples = pod_samples(source, response)
            return calculator.get_metric_replicas(samples, metric_name=metric.name, target_usage=target)
        case ObjectMetric(metric=metric, described_object=described), ValuesResponse() | MetricError():
            values = _values("custom", response)
            value = values if isinstance(values, MetricError) else values[0]
            name = object_metric_text(metric, described, namespace)
            if spec.target.type == "AverageValue":
                return calculator.get_object_per_pod_metric_replicas(value, metric=name, target_usage=target)
            return calculator.get_object_metric_replicas(value, metric=name, target_usage=target)
        case ExternalMetric(metric=metric), ValuesResponse() | MetricError():
            values = _values("external", response)
            name = external_metric_text(metric, namespace)
            if per_pod:
                return calculator.get_external_per_pod_metric_replicas(values, metric=name, target_usage=target)
            return calculator.get_external_metric_replicas(values, metric=name, target_usage=target)
        case _:
            raise ValueError(f"{type(spec.source).__name__} has no response of its kind but {type(response).__name__}")


# --- responses -----------------------------------------------------------------------------------------------------


def pod_samples(
    source: ResourceMetric | PodsMetric, response: ResourceResponse | PodsResponse | MetricError
) -> Mapping[str, PodSample] | MetricError:
    """Return each pod's value: {pod name: sample}.

    A pod has no value of a resource if one of its containers lacks it. Of several items for one pod, the last one that
    has a value counts. An empty response is an error.
    Upstream: podautoscaler/metrics.GetResourceMetric, podautoscaler/metrics.GetRawMetric.
    """
    api = "resource" if isinstance(source, ResourceMetric) else "custom"
    if isinstance(response, MetricError):
        return _fetch_failed(api, response)
    if not response.pods:
        return _no_metrics(api)
    if isinstance(response, PodsResponse):
        return response.pods
    assert isinstance(source, ResourceMetric)
    resource, container = source.name, source.container
    return {
        name: PodSample(value=value, timestamp_ms=item.timestamp_ms, window_ms=item.window_ms)
        for name, pod in response.pods.items()
        for item in reversed((pod, *pod.earlier))
        if (value := _pod_value(item, resource, container)) is not None
    }


def _pod_value(pod: PodUsage, resource: str, container: str | None) -> int | None:
    """Return the value of one container, or the sum over all.

    Of two containers with the same name, a container metric uses the first, and the sum includes both.
    Upstream: podautoscaler/metrics.getContainerMetrics, podautoscaler/metrics.getPodMetrics.
    """
    found = False
    value = 0
    for name, usage in pod.containers:
        if container is None or name == container:
            if resource not in usage:
                return None
            found = True
            value += usage[resource]
            if container is not None:
                break
    return int64(value) if found else None


def _values(api: str, response: ValuesResponse | MetricError) -> tuple[int, ...] | MetricError:
    if isinstance(response, MetricError):
        return _fetch_failed(api, response)
    return response.values or _no_metrics(api)


def _fetch_failed(api: str, error: MetricError) -> MetricError:
    return MetricError(f"unable to fetch metrics from {api} metrics API: {error}")


def _no_metrics(api: str) -> MetricError:
    return MetricError(f"no metrics returned from {api} metrics API")


# --- texts ---------------------------------------------------------------------------------------------------------


def object_metric_text(metric: MetricIdentifier, described: CrossVersionObjectReference, namespace: str) -> str:
    """Return NAME: KIND on NAMESPACE OBJECT."""
    return f"{metric.name}: {described.kind} on {namespace} {described.name}"


def external_metric_text(metric: MetricIdentifier, namespace: str) -> str:
    """Return NAMESPACE/NAME/SELECTOR."""
    return f"{namespace}/{metric.name}/{selector_text(metric.selector)}"


def _name(spec: MetricSpec) -> str:
    match spec.source:
        case ResourceMetric(name=resource) if spec.target.average_value is not None:
            return f"{resource} resource"
        case ResourceMetric(name=resource, container=None):
            return f"{resource} resource utilization (percentage of request)"
        case ResourceMetric(name=resource):
            return f"{resource} container resource utilization (percentage of request)"
        case PodsMetric(metric=metric):
            return f"pods metric {metric.name}"
        case ObjectMetric(metric=metric, described_object=described) if spec.target.type == "Value":
            return f"{described.kind} metric {metric.name}"
        case ObjectMetric(metric=metric) | ExternalMetric(metric=metric):
            return f"external metric {metric.name}({selector_text(metric.selector)})"
        case InvalidMetric(type_):
            return type_


def _current(spec: MetricSpec, proposal: Proposal) -> MetricSpec:
    """Return the metric with its current value, as the API server returns it after a write."""
    total = isinstance(spec.source, ObjectMetric) and spec.target.type == "Value"
    total = total or (isinstance(spec.source, ExternalMetric) and spec.target.average_value is None)
    usage = None if proposal.usage is None else CanonicalQuantity(metric_quantity(spec, proposal.usage))
    return spec.with_target(
        MetricTarget(
            value=usage if total else None,
            average_value=None if total else usage,
            average_utilization=proposal.utilization,
        )
    )


def metric_quantity(spec: MetricSpec, milli: int) -> str:
    """Return a metric's milli-value as a quantity; whole Ki of memory have a binary suffix."""
    is_memory = isinstance(spec.source, ResourceMetric) and spec.source.name == "memory"
    return quantity_text(milli, binary=is_memory)


def _failure(
    spec: MetricSpec, message: str, *, invalid_source: bool = False, invalid_selector: bool = False
) -> MetricError:
    """Return the error, with the reason of the condition and the text of the reconciliation's error."""
    has_average = spec.target.average_value is not None
    match spec.source:
        case InvalidMetric():
            return MetricError(message, "InvalidMetricSourceType", message)
        case ResourceMetric(name=resource, container=container):
            if not invalid_source:
                message = f"failed to get {resource} {'usage' if has_average else 'utilization'}: {message}"
            if container is None:
                error = f"failed to get {resource} resource metric value: {message}"
                return MetricError(message, "FailedGetResourceMetric", error)
            error = f"failed to get {container} container metric value: {message}"
            return MetricError(message, "FailedGetContainerResourceMetric", error)
        case PodsMetric():
            return MetricError(message, "FailedGetPodsMetric", f"failed to get pods metric value: {message}")
        case ObjectMetric(metric=metric):
            cause = message
            if spec.target.type == "AverageValue" and not invalid_source and not invalid_selector:
                cause = f"failed to get {metric.name} object metric: {message}"
            return MetricError(message, "FailedGetObjectMetric", f"failed to get object metric value: {cause}")
        case ExternalMetric(metric=metric):
            cause = message
            if not invalid_source and has_average:
                cause = f"failed to get {metric.name} external metric: {message}"
            elif not invalid_source:
                cause = f"failed to get external metric {metric.name}: {message}"
            error = f"failed to get {metric.name} external metric value: {cause}"
            return MetricError(message, "FailedGetExternalMetric", error)
