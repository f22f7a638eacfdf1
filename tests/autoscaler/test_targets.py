"""The line under TARGETS, as kubectl shows it for Kubernetes' own HPAs."""

from typing import Any

import pytest

from autoscaler.objects.targets import targets_line


def metric(kind: str, target: dict[str, Any], current: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """A metric of the spec, and of the status."""
    field = kind[:1].lower() + kind[1:]
    name = {"name": "cpu"}
    return (
        {"type": kind, field: {**name, "target": target}},
        {} if current is None else {"type": kind, field: {**name, "current": current}},
    )


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


def test_no_metrics_are_shown_as_none() -> None:
    assert targets_line([], []) == "<none>"
