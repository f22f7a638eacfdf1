"""The status of an HPA: its conditions during a decision, and its JSON exactly as the API server returns it.

`kubectl describe` shows the conditions, and alerts match on them; the messages are Kubernetes'. The JSON has times in
whole seconds and canonical quantities, so an unchanged status is recognized. A memory value has a binary suffix if it
is a whole number of Ki, as `kubectl` users expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from autoscaler.core.model import (
    HPA,
    Condition,
    ExternalMetric,
    LabelSelectorSpec,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    ResourceMetric,
    Status,
)
from autoscaler.core.stabilization import Normalized

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"

INVALID_SPEC = "InvalidSpec"
"""Reason of the ScalingActive condition, and of the event, of an HPA that cannot be decoded."""

_MESSAGES = {
    "DesiredWithinRange": "the desired count is within the acceptable range",
    "NotScaledToZero": "the HPA controller did not scale the workload to zero",
    "ReadyForNewScale": "recommended size matches current size",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
    "ScaleDownStabilized": (
        "recent recommendations were higher than current one, applying the highest recent recommendation"
    ),
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleUpStabilized": (
        "recent recommendations were lower than current one, applying the lowest recent recommendation"
    ),
    "ScaledToZero": "the HPA controller scaled the workload to zero",
    "ScalingDisabled": "scaling is disabled since the replica count of the target is zero",
    "SucceededGetScale": "the HPA controller was able to get the target's current scale",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
}


class Conditions:
    """A list of conditions that can be changed.

    A condition keeps its position, and its transition time until its status changes.
    """

    def __init__(self, conditions: tuple[Condition, ...], now_ms: int) -> None:
        self._conditions = list(conditions)
        self._now_ms = now_ms

    def set(
        self, type_: str, status: bool, reason: str, message: str = "", *, stored: tuple[Condition, ...] = ()
    ) -> None:
        """Set one condition; without `message`, the message of `reason`. Upstream: podautoscaler.setConditionInList.

        With `stored`, the transition time is relative to those conditions, not to what this reconciliation set before.
        """
        new = Condition(
            type=type_,
            status="True" if status else "False",
            reason=reason,
            message=message or _MESSAGES[reason],
            last_transition_ms=self._now_ms,
        )
        for index, old in enumerate(self._conditions):
            if old.type == type_:
                before = next((each for each in stored if each.type == type_), old)
                if before.status == new.status:
                    new = replace(new, last_transition_ms=before.last_transition_ms)
                self._conditions[index] = new
                return
        self._conditions.append(new)

    def set_normalized(self, normalized: Normalized) -> None:
        """Set the conditions about stabilization and limits."""
        self.set(ABLE_TO_SCALE, True, normalized.stabilization)
        self.set(SCALING_LIMITED, normalized.limited, normalized.limit)

    def remove(self, type_: str, *reasons: str) -> None:
        """Remove one condition, if present (with one of the reasons). Upstream: podautoscaler.removeCondition."""
        self._conditions = [
            each for each in self._conditions if each.type != type_ or (reasons and each.reason not in reasons)
        ]

    @property
    def all(self) -> tuple[Condition, ...]:
        """The current conditions."""
        return tuple(self._conditions)


def report_invalid_spec(hpa: HPA, now_ms: int) -> tuple[Status | None, str]:
    """Return the status (None: it did not change) and the event's message for an HPA that cannot be decoded."""
    conditions = Conditions(hpa.status.conditions, now_ms)
    message = f"the HPA is left alone, because its spec is not valid: {hpa.problem}"
    conditions.set(SCALING_ACTIVE, False, INVALID_SPEC, message)
    status = replace(hpa.status, conditions=conditions.all, observed_generation=hpa.generation or None)
    return None if status == hpa.status else status, message


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
