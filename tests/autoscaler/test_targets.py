"""The line under TARGETS, as kubectl shows it for Kubernetes' own HPAs."""

from typing import Any, TypeAlias

import pytest

from autoscaler.core.model import MetricSpec
from autoscaler.core.status import targets_line
from autoscaler.objects.hpa import parse_hpa

JSON: TypeAlias = dict[str, Any]


def metric(kind: str, target: JSON, current: JSON | None = None) -> tuple[MetricSpec, MetricSpec]:
    """A metric of the spec, and of the status."""
    field = kind[:1].lower() + kind[1:]
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    spec["metrics"] = [{"type": kind, field: {"name": "cpu", "target": target}}]
    status = {"currentMetrics": [{"type": kind, field: {"name": "cpu", "current": current}} if current else {}]}
    hpa = parse_hpa({"metadata": {}, "spec": spec, "status": status})
    return hpa.spec.metrics[0], hpa.status.current_metrics[0]


@pytest.mark.parametrize(
    ("kind", "target", "current", "line"),
    [
        ("Resource", {"averageUtilization": 80}, {"averageUtilization": 50, "averageValue": "40m"}, "cpu: 50%/80%"),
        ("Resource", {"averageUtilization": 80}, None, "cpu: <unknown>/80%"),
        ("ContainerResource", {"averageValue": "100m"}, {"averageValue": "40m"}, "cpu: 40m/100m"),
        ("Pods", {"averageValue": "10"}, {"averageValue": "20"}, "20/10"),
        ("Object", {"value": "10"}, {"value": "20"}, "20/10"),
        ("External", {"averageValue": "10"}, {"averageValue": "20"}, "20/10 (avg)"),
        ("External", {"value": "10"}, None, "<unknown>/10"),
    ],
)
def test_each_kind_of_metric(kind: str, target: dict[str, Any], current: dict[str, Any] | None, line: str) -> None:
    spec, status = metric(kind, target, current)
    assert targets_line([spec], [status]) == line


def test_two_are_shown_and_the_others_counted() -> None:
    spec, status = metric("Pods", {"averageValue": "10"}, {"averageValue": "20"})
    assert targets_line([spec] * 2, [status] * 2) == "20/10, 20/10"
    assert targets_line([spec] * 4, [status]) == "20/10, <unknown>/10 + 2 more..."
