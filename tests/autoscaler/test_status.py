"""The status as JSON in the canonical form of the API server, and the line under TARGETS as kubectl shows it."""

import time
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.metrics import metric_quantity
from autoscaler.core.model import (
    HPA,
    Condition,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    LabelSelectorRequirement,
    LabelSelectorSpec,
    MetricIdentifier,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    Status,
)
from autoscaler.core.quantities import CanonicalQuantity, canonical_quantity
from autoscaler.core.status import report_invalid_spec, rfc3339, status_json, targets_line
from autoscaler.objects.hpa import parse_hpa
from tests.autoscaler.simulated_cluster import NOW, quantity


def read_back(body: dict[str, Any]) -> Status:
    metrics = [{"type": "External", "external": {"metric": {"name": "m"}}}]
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 1, "metrics": metrics}
    return parse_hpa({"metadata": {}, "spec": spec, "status": body}).status


def shown(metric: MetricSpec) -> dict[str, Any]:
    current: dict[str, Any] = status_json(Status(current_metrics=(metric,)))["currentMetrics"][0]
    return current


@pytest.mark.parametrize(
    ("bytes_", "text"), [(98_101_000, "98101k"), (95_801 * 1024, "95801Ki"), (1024**3, "1Gi"), (1001, "1001")]
)
def test_whole_ki_of_memory_have_a_binary_suffix(bytes_: int, text: str) -> None:
    spec = MetricSpec.of(ResourceMetric("memory"))
    value = CanonicalQuantity(metric_quantity(spec, bytes_ * 1000))
    assert canonical_quantity(value) == value
    metric = shown(MetricSpec.of(ResourceMetric("memory", MetricTarget(average_value=value))))
    assert metric == {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": text}}}


SELECTOR = LabelSelectorSpec(
    {"a": "1"}, [LabelSelectorRequirement("b", "In", ["x", "y"]), LabelSelectorRequirement("c", "Exists")]
)
sources: st.SearchStrategy[MetricSource] = st.sampled_from(
    [
        ResourceMetric("cpu"),
        ResourceMetric("memory"),
        ContainerResourceMetric("memory", container="app"),
        PodsMetric(MetricIdentifier("m")),
        PodsMetric(MetricIdentifier("m", LabelSelectorSpec())),
        ObjectMetric(MetricIdentifier("m"), CrossVersionObjectReference("Service", "front", "v1")),
        ObjectMetric(MetricIdentifier("m"), CrossVersionObjectReference("Pod", "front")),
        ExternalMetric(MetricIdentifier("m", SELECTOR)),
    ]
)
quantities = st.none() | st.integers(-(2**63) + 1, 2**63 - 1).map(quantity)
values = st.builds(
    MetricTarget, value=quantities, average_value=quantities, average_utilization=st.none() | st.integers(0, 999)
)
currents = st.builds(lambda source, value: MetricSpec.of(source).with_target(value), sources, values)


@given(st.lists(currents | st.just(MetricSpec()), max_size=3), st.none() | st.just(NOW))
def test_parsed_json_is_the_same_status(metrics: list[MetricSpec], scaled_ms: int | None) -> None:
    status = Status(current_replicas=1, desired_replicas=2, last_scale_ms=scaled_ms, current_metrics=tuple(metrics))
    body = status_json(status)
    assert read_back(body) == status
    assert status_json(read_back(body)) == body


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
        ("Resource", {}, {"averageUtilization": 50}, "cpu: 50%/<auto>"),
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
    assert targets_line([spec] * 3, [status]) == "20/10, <unknown>/10 + 1 more..."


@pytest.mark.parametrize("generation", [0, 7])
def test_invalid_spec_changes_one_condition(generation: int) -> None:
    conditions = tuple(
        Condition(type=kind, status="True", reason="Old", message="old", last_transition_ms=NOW - 1000)
        for kind in ("AbleToScale", "ScalingActive")
    )
    before = Status(current_replicas=2, desired_replicas=3, conditions=conditions, observed_generation=generation or 5)
    hpa = HPA(namespace="shop", name="web", problem="spec.x: no", generation=generation, status=before)
    message = "the HPA is left alone, because its spec is not valid: spec.x: no"
    invalid = Condition(
        type="ScalingActive", status="False", reason="InvalidSpec", message=message, last_transition_ms=NOW
    )
    after = replace(before, conditions=(conditions[0], invalid), observed_generation=generation or None)
    assert report_invalid_spec(hpa, NOW) == (after, message)
    assert report_invalid_spec(replace(hpa, status=after), NOW + 1000) == (None, message)


def test_times_are_utc_wherever_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        text = rfc3339(NOW)
    time.tzset()
    assert text == rfc3339(NOW)
