"""How the HPA's texts name metrics: in conditions, events and errors, word for word as Kubernetes 1.36 prints them.

Dashboards and alerts match on these texts, Go's print form of a label selector included.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from autoscaler.core.model import (
    Condition,
    CrossVersionObjectReference,
    CurrentMetric,
    ExternalMetric,
    InvalidMetric,
    MetricIdentifier,
    MetricSelector,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    Status,
)
from kube.quantity import Format, Quantity


def object_metric(metric: MetricIdentifier, described: CrossVersionObjectReference, namespace: str) -> str:
    """NAME: KIND on NAMESPACE OBJECT."""
    return f"{metric.name}: {described.kind} on {namespace} {described.name}"


def external_metric(metric: MetricIdentifier, namespace: str) -> str:
    """NAMESPACE/NAME/SELECTOR."""
    return f"{namespace}/{metric.name}/{selector_text(metric.selector)}"


def selector_text(selector: MetricSelector | None) -> str:
    """`selector` as Go prints a `*metav1.LabelSelector`."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in selector.match_labels)
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def selector_object(selector: MetricSelector) -> dict[str, Any]:
    """`selector` as metav1.LabelSelector JSON, without what is empty."""
    body: dict[str, Any] = {}
    if selector.match_labels:
        body["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        body["matchExpressions"] = [
            {"key": each.key, "operator": each.operator} | ({"values": list(each.values)} if each.values else {})
            for each in selector.match_expressions
        ]
    return body


_TEXTS_KEPT: Final = 4096


def status_json(status: Status) -> dict[str, Any]:
    """`status` as the `status` field of an autoscaling/v2 HorizontalPodAutoscaler."""
    body: dict[str, Any] = {
        "currentReplicas": status.current_replicas,
        "desiredReplicas": status.desired_replicas,
        "conditions": [_condition(each) for each in status.conditions],
    }
    if status.last_scale_ms is not None:
        body["lastScaleTime"] = rfc3339(status.last_scale_ms)
    if status.observed_generation is not None:
        body["observedGeneration"] = status.observed_generation
    if status.current_metrics:
        body["currentMetrics"] = [_current_metric(each) for each in status.current_metrics]
    return body


def rfc3339(time_ms: int) -> str:
    """A time as metav1.Time writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).replace(tzinfo=None).isoformat() + "Z"


def _condition(condition: Condition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "lastTransitionTime": rfc3339(condition.last_transition_ms),
        "reason": condition.reason,
        "message": condition.message,
    }


def _current_metric(metric: CurrentMetric) -> dict[str, Any]:
    current = _current(metric)
    match metric.source:
        case ResourceMetric(name, None):
            return {"type": "Resource", "resource": {"name": name, "current": current}}
        case ResourceMetric(name, container):
            fields = {"name": name, "container": container, "current": current}
            return {"type": "ContainerResource", "containerResource": fields}
        case PodsMetric(identifier):
            return {"type": "Pods", "pods": {"metric": _identifier(identifier), "current": current}}
        case ObjectMetric(identifier, described):
            fields = {"metric": _identifier(identifier), "current": current, "describedObject": _reference(described)}
            return {"type": "Object", "object": fields}
        case ExternalMetric(identifier):
            return {"type": "External", "external": {"metric": _identifier(identifier), "current": current}}
        case InvalidMetric() | None:
            return {"type": ""}


def _current(metric: CurrentMetric) -> dict[str, Any]:
    binary = isinstance(metric.source, ResourceMetric) and metric.source.name == "memory"
    current: dict[str, Any] = {}
    if metric.value is not None:
        current["value"] = quantity_text(metric.value, binary=binary)
    if metric.average_value is not None:
        current["averageValue"] = quantity_text(metric.average_value, binary=binary)
    if metric.average_utilization is not None:
        current["averageUtilization"] = metric.average_utilization
    return current


@lru_cache(_TEXTS_KEPT)
def quantity_text(milli: int, *, binary: bool) -> str:
    """A milli-value as a quantity, in the form that it has after one trip through the API server."""
    text = str(Quantity.from_milli(milli, Format.BINARY_SI if binary else Format.DECIMAL_SI))
    return str(Quantity.parse(text))


def _identifier(metric: MetricIdentifier) -> dict[str, Any]:
    body: dict[str, Any] = {"name": metric.name}
    if metric.selector is not None:
        body["selector"] = selector_object(metric.selector)
    return body


def _reference(reference: CrossVersionObjectReference) -> dict[str, Any]:
    body = {"kind": reference.kind, "name": reference.name}
    if reference.api_version:
        body["apiVersion"] = reference.api_version
    return body
