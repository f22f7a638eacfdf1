"""The HPA's status as autoscaling/v2 JSON, exactly as the API server returns it.

So an unchanged status stays unchanged: times have whole seconds, quantities are canonical. A memory value becomes
binary where it is a whole number of Ki, as `kubectl` users expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from autoscaler.core.model import (
    Condition,
    CurrentMetric,
    ExternalMetric,
    InvalidMetric,
    MetricIdentifier,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    Status,
)
from kube.quantity import Format, Quantity

_QUANTITY_TEXTS: Final = 4096


def status_json(status: Status) -> dict[str, Any]:
    """Return the `status` field of an autoscaling/v2 HorizontalPodAutoscaler."""
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
    """Format a time as metav1.Time does: UTC, whole seconds."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).replace(tzinfo=None).isoformat() + "Z"


@lru_cache(_QUANTITY_TEXTS)
def quantity_text(milli: int, *, binary: bool) -> str:
    """Format a milli-value as the API server would return it after a write."""
    text = str(Quantity.from_milli(milli, Format.BINARY_SI if binary else Format.DECIMAL_SI))
    return str(Quantity.parse(text))


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """Format a metric's selector as Go prints a `*metav1.LabelSelector`: conditions and events contain that text."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


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
            reference = {"kind": described.kind, "name": described.name}
            if described.api_version:
                reference["apiVersion"] = described.api_version
            fields = {"metric": _identifier(identifier), "current": current, "describedObject": reference}
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


def _identifier(metric: MetricIdentifier) -> dict[str, Any]:
    body: dict[str, Any] = {"name": metric.name}
    if metric.selector is not None:
        body["selector"] = metric.selector
    return body
