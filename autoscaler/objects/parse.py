"""Kubernetes JSON into the autoscaler's model: HPAs, scales and pods, as the API server serves them.

This is the edge where dicts end. The shapes are declared as msgspec structs, so a wrong type is an error that names the
field; what Kubernetes ignores is ignored. HPAs are expected to be defaulted, as every API server serves them; give one
that never passed an API server to `autoscaler.objects.defaults` first.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from autoscaler.core.knobs import parse_knobs
from autoscaler.core.model import (
    HPA,
    Behavior,
    Condition,
    Container,
    CrossVersionObjectReference,
    CurrentMetric,
    ExternalMetric,
    InvalidHPA,
    InvalidMetric,
    MetricIdentifier,
    MetricSelector,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    Owned,
    Owner,
    Pod,
    PodsMetric,
    ReadyCondition,
    ResourceMetric,
    Scale,
    ScalingPolicy,
    ScalingRules,
    SelectorRequirement,
    Spec,
    Status,
)
from autoscaler.objects import wire
from kube.quantity import Quantity, QuantityError
from kube.selectors import LabelSelector, SelectorError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ParseError",
    "metric_selector",
    "milli_value",
    "parse_hpa",
    "parse_invalid_hpa",
    "parse_owned",
    "parse_pod",
    "parse_scale",
    "parse_workload",
    "time_ms",
]

_T = TypeVar("_T")

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


class ParseError(ValueError):
    """A Kubernetes object is not of the shape that its API promises; the text names the object and the field."""


def parse_hpa(raw: Mapping[str, Any]) -> HPA:
    """One HorizontalPodAutoscaler, of either API.

    Raises:
        ParseError: a field has the wrong type or an impossible value.
    """
    hpa = _convert(raw, wire.HPA, _what("HorizontalPodAutoscaler", raw))
    meta = hpa.metadata
    what = f"HorizontalPodAutoscaler {meta.namespace}/{meta.name}"
    return HPA(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        api_version=hpa.api_version,
        spec=_spec(hpa.spec, what),
        status=_status(hpa.status),
        knobs=parse_knobs(meta.annotations or {}),
    )


def parse_invalid_hpa(raw: Mapping[str, Any], problem: str) -> InvalidHPA:
    """One HorizontalPodAutoscaler whose spec is not looked at, because of a `problem`.

    Raises:
        ParseError: a field of the metadata has the wrong type.
    """
    what = _what("HorizontalPodAutoscaler", raw)
    hpa = _convert(raw, wire.HPAWithoutSpec, what)
    meta = hpa.metadata
    return InvalidHPA(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        api_version=hpa.api_version,
        status=_status(hpa.status),
        knobs=parse_knobs(meta.annotations or {}),
        problem=problem,
    )


def parse_scale(raw: Mapping[str, Any]) -> Scale:
    """The scale subresource (autoscaling/v1 Scale).

    Raises:
        ParseError: a field has the wrong type.
    """
    scale = _convert(raw, wire.Scale, _what("Scale", raw))
    status = scale.status or wire.ScaleStatus()
    return Scale(
        spec_replicas=scale.spec.replicas if scale.spec else 0,
        status_replicas=status.replicas,
        selector=status.selector,
        target_uid=scale.metadata.uid if scale.metadata else "",
    )


def parse_workload(raw: Mapping[str, Any]) -> Scale:
    """The scale of a Deployment or a StatefulSet, as its scale subresource shows it.

    Raises:
        ParseError: a field has the wrong type or is missing, or the selector is not valid.
    """
    what = _what("workload", raw)
    workload = _convert(raw, wire.Workload, what)
    try:
        selector = LabelSelector.from_object(raw["spec"]["selector"])
    except SelectorError as error:
        raise ParseError(f"{what}: spec.selector: {error}") from None
    return Scale(
        spec_replicas=workload.spec.replicas,
        status_replicas=workload.status.replicas if workload.status else 0,
        selector=str(selector),
        target_uid=workload.metadata.uid,
    )


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """One pod.

    Raises:
        ParseError: a field has the wrong type or is not a quantity or time.
    """
    what = _what("Pod", raw)
    pod = _convert(raw, wire.Pod, what)
    status = pod.status or wire.PodStatus()
    ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
    pod_level = pod.spec.resources
    return Pod(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels or {},
        phase=status.phase,
        deleted=pod.metadata.deletion_timestamp is not None,
        start_ms=_optional_time_ms(status.start_time, f"{what}: status.startTime"),
        ready=None
        if ready is None
        else ReadyCondition(
            status=ready.status,
            last_transition_ms=_optional_time_ms(ready.last_transition_time, f"{what}: status.conditions") or 0,
        ),
        containers=(
            *(_container(each, what, init=False) for each in pod.spec.containers or ()),
            *(_container(each, what, init=True) for each in pod.spec.init_containers or ()),
        ),
        requests=_requests(pod_level.requests, what) if pod_level and pod_level.requests else None,
        overhead=_requests(pod.spec.overhead, what) if pod.spec.overhead else None,
        owner=_owner(pod.metadata),
    )


def parse_owned(raw: Mapping[str, Any]) -> Owned:
    """Any object, or its metadata alone.

    Raises:
        ParseError: a field of the metadata has the wrong type.
    """
    metadata = _convert(raw, wire.Owned, _what("object", raw)).metadata
    return Owned(metadata.uid, _owner(metadata))


def metric_selector(raw: Mapping[str, Any] | None, what: str) -> MetricSelector | None:
    """A metric's label selector, unvalidated as the API server leaves it; `what` names it in errors.

    Raises:
        ParseError: a field has the wrong type.
    """
    return None if raw is None else _selector(_convert(raw, wire.LabelSelector, what))


def milli_value(text: str, what: str) -> int:
    """The quantity `text` in thousandths, rounded away from zero; `what` names it in errors.

    Raises:
        ParseError: it is not a quantity.
    """
    return _quantity(text, what).milli_value()


def time_ms(text: str, what: str) -> int:
    """The RFC 3339 time `text` in milliseconds since the Unix epoch; `what` names it in errors.

    Raises:
        ParseError: it is not a time, or has no offset.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ParseError(f"{what}: {text!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
    return (time - _EPOCH) // _MILLISECOND


# --- HPA -----------------------------------------------------------------------------------------------------------


def _spec(spec: wire.Spec, what: str) -> Spec:
    if not spec.metrics:
        raise ParseError(f"{what}: spec.metrics is empty; the API server would fill in a default")
    return Spec(
        scale_target_ref=_reference(spec.scale_target_ref),
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        max_replicas=spec.max_replicas,
        metrics=tuple(
            _metric_spec(metric, f"{what}: spec.metrics[{index}]") for index, metric in enumerate(spec.metrics)
        ),
        behavior=None if spec.behavior is None else _behavior(spec.behavior, f"{what}: spec.behavior"),
    )


def _metric_spec(metric: wire.Metric, what: str) -> MetricSpec:
    source, field = _source(metric, what)
    if field is None:
        return MetricSpec(source, MetricTarget(type=""))
    target = field.target or wire.MetricTarget()
    return MetricSpec(
        source,
        MetricTarget(
            type=target.type,
            value=_optional_milli(target.value, f"{what}: target.value"),
            average_value=_optional_milli(target.average_value, f"{what}: target.averageValue"),
            average_utilization=target.average_utilization,
        ),
    )


def _source(metric: wire.Metric, what: str) -> tuple[MetricSource, wire.MetricFields | None]:
    """The metric's identity, and the fields that its type points to (None: an unknown type)."""
    fields = {
        "Resource": metric.resource,
        "ContainerResource": metric.container_resource,
        "Pods": metric.pods,
        "Object": metric.object,
        "External": metric.external,
    }
    if metric.type not in fields:
        return InvalidMetric(metric.type), None
    field = fields[metric.type]
    if field is None:
        raise ParseError(f"{what}: type is {metric.type}, but the field of that metric type is not set")
    if metric.type == "Resource":
        return ResourceMetric(field.name), field
    if metric.type == "ContainerResource":
        return ResourceMetric(field.name, field.container), field
    if field.metric is None:
        raise ParseError(f"{what}: a metric of type {metric.type} must have the field metric")
    identifier = MetricIdentifier(
        field.metric.name, None if field.metric.selector is None else _selector(field.metric.selector)
    )
    if metric.type == "Pods":
        return PodsMetric(identifier), field
    if metric.type == "External":
        return ExternalMetric(identifier), field
    if field.described_object is None:
        raise ParseError(f"{what}: a metric of type Object must have the field describedObject")
    return ObjectMetric(identifier, _reference(field.described_object)), field


def _selector(selector: wire.LabelSelector) -> MetricSelector:
    return MetricSelector(
        match_labels=tuple(sorted((selector.match_labels or {}).items())),
        match_expressions=tuple(
            SelectorRequirement(each.key, each.operator, tuple(each.values or ()))
            for each in selector.match_expressions or ()
        ),
    )


def _reference(reference: wire.Reference) -> CrossVersionObjectReference:
    return CrossVersionObjectReference(reference.kind, reference.name, reference.api_version)


def _behavior(behavior: wire.Behavior, what: str) -> Behavior:
    return Behavior(
        scale_up=_rules(behavior.scale_up or wire.ScalingRules(), f"{what}.scaleUp"),
        scale_down=_rules(behavior.scale_down or wire.ScalingRules(), f"{what}.scaleDown"),
    )


def _rules(rules: wire.ScalingRules, what: str) -> ScalingRules:
    window = rules.stabilization_window_seconds
    return ScalingRules(
        policies=tuple(
            ScalingPolicy(type=each.type, value=each.value, period_ms=each.period_seconds * 1000)
            for each in rules.policies or ()
        ),
        select_policy=rules.select_policy or "Max",
        stabilization_window_ms=None if window is None else window * 1000,
        tolerance=None if rules.tolerance is None else _quantity(rules.tolerance, f"{what}.tolerance").as_float(),
    )


def _status(raw: object) -> Status:
    """An HPA's status, without what cannot be read in it: anybody may write it, and the next step writes it anew."""
    status = raw if isinstance(raw, dict) else {}
    conditions = (_hpa_condition(each) for each in _items(status.get("conditions")))
    return Status(
        current_replicas=_readable(status.get("currentReplicas"), wire.Int32) or 0,
        desired_replicas=_readable(status.get("desiredReplicas"), wire.Int32) or 0,
        last_scale_ms=_readable_time_ms(status.get("lastScaleTime")),
        current_metrics=tuple(_current_metric(each) for each in _items(status.get("currentMetrics"))),
        conditions=tuple(each for each in conditions if each is not None),
        observed_generation=_readable(status.get("observedGeneration"), int),
    )


def _hpa_condition(raw: object) -> Condition | None:
    condition = _readable(raw, wire.Condition)
    if condition is None:
        return None
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_ms=_readable_time_ms(condition.last_transition_time) or 0,
    )


def _current_metric(raw: object) -> CurrentMetric:
    try:
        source, field = _source(_convert(raw, wire.Metric, ""), "")
        current = (field and field.current) or wire.MetricTarget()
        return CurrentMetric(
            source=source if field else None,
            value=_optional_milli(current.value, ""),
            average_value=_optional_milli(current.average_value, ""),
            average_utilization=current.average_utilization,
        )
    except ParseError:
        return CurrentMetric()


def _items(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _readable(raw: object, shape: Any) -> Any:
    """`raw` as `shape`; None where it is something else."""
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError:
        return None


def _readable_time_ms(raw: object) -> int | None:
    try:
        return time_ms(raw, "") if isinstance(raw, str) else None
    except ParseError:
        return None


# --- pods ----------------------------------------------------------------------------------------------------------


def _container(container: wire.Container, what: str, *, init: bool) -> Container:
    requests = container.resources.requests if container.resources else None
    return Container(
        name=container.name,
        requests=_requests(requests or {}, what),
        init=init,
        restartable=init and container.restart_policy == "Always",
    )


def _requests(requests: Mapping[str, str | int | float], what: str) -> dict[str, int]:
    return {
        resource: _quantity(text, f"{what}: request for {resource}").milli_value()
        for resource, text in requests.items()
    }


# --- shared --------------------------------------------------------------------------------------------------------


def _convert(raw: object, shape: type[_T], what: str) -> _T:
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        raise ParseError(f"{what}: {error}") from None


def _what(kind: str, raw: Mapping[str, Any]) -> str:
    """The object's name for errors, from data that may be anything."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(metadata, dict):
        return kind
    return f"{kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _owner(metadata: wire.Metadata) -> Owner | None:
    """The controller, the one owner that looks after the object; other owners only share in its end."""
    return next((Owner(each.kind, each.uid) for each in metadata.owner_references or () if each.controller), None)


def _quantity(text: str | float, what: str) -> Quantity:
    try:
        return Quantity.parse(str(text))
    except QuantityError as error:
        raise ParseError(f"{what}: {text!r}: {error}") from None


def _optional_milli(text: str | float | None, what: str) -> int | None:
    return None if text is None else _quantity(text, what).milli_value()


def _optional_time_ms(text: str | None, what: str) -> int | None:
    return None if text is None else time_ms(text, what)
