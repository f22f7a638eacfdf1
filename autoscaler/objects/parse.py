"""HorizontalPodAutoscalers from Kubernetes JSON into the model, as the API server serves them.

What Kubernetes ignores is ignored. HPAs are expected to be defaulted, as every API server serves them; give one that
never passed an API server to `autoscaler.objects.defaults` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from autoscaler.core.annotations import parse_annotations
from autoscaler.core.model import (
    HPA,
    Behavior,
    Condition,
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
    PodsMetric,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    SelectorRequirement,
    Spec,
    Status,
)
from autoscaler.objects import wire
from autoscaler.objects.fields import ParseError, convert, once, optional_milli, quantity, time_ms, what_is


def parse_hpa(raw: Mapping[str, Any]) -> HPA:
    """One HorizontalPodAutoscaler, of either API.

    Raises:
        ParseError: a field has the wrong type or an impossible value.
    """
    hpa = convert(raw, wire.HPA, what_is("HorizontalPodAutoscaler", raw))
    meta = hpa.metadata
    what = f"HorizontalPodAutoscaler {meta.namespace}/{meta.name}"
    return HPA(
        namespace=once(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        api_version=once(hpa.api_version),
        spec=_spec(hpa.spec, what),
        status=_status(hpa.status),
        overrides=parse_annotations(meta.annotations or {}),
    )


def parse_invalid_hpa(raw: Mapping[str, Any], problem: str) -> InvalidHPA:
    """One HorizontalPodAutoscaler whose spec is not looked at, because of a `problem`.

    Raises:
        ParseError: a field of the metadata has the wrong type.
    """
    what = what_is("HorizontalPodAutoscaler", raw)
    hpa = convert(raw, wire.HPAWithoutSpec, what)
    meta = hpa.metadata
    return InvalidHPA(
        namespace=once(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        api_version=once(hpa.api_version),
        status=_status(hpa.status),
        overrides=parse_annotations(meta.annotations or {}),
        problem=problem,
    )


def metric_selector(raw: Mapping[str, Any] | None, what: str) -> MetricSelector | None:
    """A metric's label selector, unvalidated as the API server leaves it; `what` names it in errors.

    Raises:
        ParseError: a field has the wrong type.
    """
    return None if raw is None else _selector(convert(raw, wire.LabelSelector, what))


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
            value=optional_milli(target.value, f"{what}: target.value"),
            average_value=optional_milli(target.average_value, f"{what}: target.averageValue"),
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
    return CrossVersionObjectReference(once(reference.kind), reference.name, once(reference.api_version))


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
        tolerance=None if rules.tolerance is None else quantity(rules.tolerance, f"{what}.tolerance").as_float(),
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
        type=once(condition.type),
        status=once(condition.status),
        reason=once(condition.reason),
        message=once(condition.message),
        last_transition_ms=_readable_time_ms(condition.last_transition_time) or 0,
    )


def _current_metric(raw: object) -> CurrentMetric:
    try:
        source, field = _source(convert(raw, wire.Metric, ""), "")
        current = (field and field.current) or wire.MetricTarget()
        return CurrentMetric(
            source=source if field else None,
            value=optional_milli(current.value, ""),
            average_value=optional_milli(current.average_value, ""),
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
