"""The HPA's status as autoscaling/v2 JSON, exactly as the API server returns it.

So an unchanged status is recognized: times have whole seconds, quantities are canonical. A memory value has a binary
suffix if it is a whole number of Ki, as `kubectl` users expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from autoscaler.core.model import (
    Condition,
    ExternalMetric,
    LabelSelectorSpec,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    ResourceMetric,
    Status,
)

_TARGETS_SHOWN: Final = 2
_UNKNOWN: Final = "<unknown>"


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


def selector_text(selector: LabelSelectorSpec | None) -> str:
    """Format a metric's selector as Go prints a `*metav1.LabelSelector`: conditions and events contain that text."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in selector.match_expressions
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


def _current_metric(metric: MetricSpec) -> dict[str, Any]:
    """Return the metric's JSON with `current` for `target`."""
    body: dict[str, Any] = msgspec.to_builtins(metric, enc_hook=str)
    for field, source in body.items():
        if field != "type":
            source["current"] = source.pop("target")
            del source["current"]["type"]
    return body


def targets_line(metrics: Sequence[MetricSpec], current: Sequence[MetricSpec]) -> str:
    """Return the TARGETS column of `kubectl get hpa`, in the words of kubectl's printers.

    kube-apiserver computes it for its own kind; the column of a custom resource can only show a field of the status.

    Args:
        metrics: `spec.metrics`.
        current: `status.currentMetrics`; may be shorter.
    """
    texts = [
        _target_text(metric, current[index].target if index < len(current) else MetricTarget())
        for index, metric in enumerate(metrics)
    ]
    more = len(texts) - _TARGETS_SHOWN
    shown = ", ".join(texts[:_TARGETS_SHOWN])
    return f"{shown} + {more} more..." if more > 0 else shown


def _target_text(metric: MetricSpec, current: MetricTarget) -> str:
    source, target = metric.source, metric.target
    prefix = f"{source.name}: " if isinstance(source, ResourceMetric) else ""
    if target.average_value is not None:
        suffix = " (avg)" if isinstance(source, ObjectMetric | ExternalMetric) else ""
        return f"{prefix}{current.average_value or _UNKNOWN}/{target.average_value}{suffix}"
    if isinstance(source, ResourceMetric):
        shown = _UNKNOWN if current.average_utilization is None else f"{current.average_utilization}%"
        goal = "<auto>" if target.average_utilization is None else f"{target.average_utilization}%"
        return f"{prefix}{shown}/{goal}"
    return f"{current.value or _UNKNOWN}/{target.value}"
