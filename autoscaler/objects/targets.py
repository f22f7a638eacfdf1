"""The TARGETS column of `kubectl get hpa`: an HPA's metrics, each as "current/target".

kube-apiserver computes it for its own kind. A column of a custom resource can only show a field, so the controller
writes it into the status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autoscaler.core.model import (
    ExternalMetric,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    ResourceMetric,
)

_SHOWN: Final = 2
_UNKNOWN: Final = "<unknown>"


def targets_line(metrics: Sequence[MetricSpec], current: Sequence[MetricSpec]) -> str:
    """Return the line, in the words of kubectl's printers.

    Args:
        metrics: `spec.metrics`.
        current: `status.currentMetrics`; may be shorter.
    """
    texts = [
        _text(metric, current[index].target if index < len(current) else MetricTarget())
        for index, metric in enumerate(metrics)
    ]
    more = len(texts) - _SHOWN
    shown = ", ".join(texts[:_SHOWN])
    return f"{shown} + {more} more..." if more > 0 else shown


def _text(metric: MetricSpec, current: MetricTarget) -> str:
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
