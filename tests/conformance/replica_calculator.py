"""Judges the replica arithmetic against replica_calculator.jsonl: one computation for one metric a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.core.model import CrossVersionObjectReference, MetricIdentifier
from autoscaler.core.observation import Pod, PodListError, PodSample
from autoscaler.core.pods import PodTiming
from autoscaler.core.replica_calculator import (
    Pods,
    Proposal,
    ReplicaError,
    Tolerances,
    Unavailable,
    external_average,
    external_value,
    object_average,
    object_value,
    pods_average,
    resource_average,
    resource_utilization,
)
from autoscaler.core.status import external_metric, object_metric
from autoscaler.objects.parse import metric_selector
from kube.selectors import LabelSelector, SelectorError
from tests.conformance.comparison import difference
from tests.conformance.observed import milliseconds, parse_pod


def judge(case: dict[str, Any]) -> str | None:
    """What is wrong with our answer to `case`; None if nothing is.

    The timestamp is not compared: nothing is decided by it.
    """
    expected: dict[str, Any] = case["output"]
    try:
        actual = _outcome(_compute(case))
    except (ReplicaError, SelectorError) as error:
        actual = {"error": str(error)}
    wanted = {key: value for key, value in expected.items() if key != "timestamp"}
    if case.get("platformDependent"):
        for key in [key for key, value in wanted.items() if value in (-(2**31), -(2**63))]:
            del wanted[key], actual[key]
    return difference(wanted, actual)


def _outcome(proposal: Proposal) -> dict[str, Any]:
    outcome: dict[str, Any] = {"replicas": proposal.replicas, "usage": proposal.usage}
    if proposal.utilization is not None:
        outcome["utilization"] = proposal.utilization
    return outcome


def _compute(case: dict[str, Any]) -> Proposal:
    given = case["input"]
    tolerance = Tolerances(scale_down=given["tolerances"]["scaleDown"], scale_up=given["tolerances"]["scaleUp"])
    timing = PodTiming(
        now_ms=0,
        cpu_initialization_period_ms=milliseconds(given["cpuInitializationPeriodSeconds"]),
        initial_readiness_delay_ms=milliseconds(given["delayOfInitialReadinessStatusSeconds"]),
    )
    pods = _pods(case)
    match case["method"]:
        case "resource_utilization":
            return resource_utilization(
                _samples(case),
                pods,
                resource=given["resource"],
                container=given.get("container"),
                target_utilization=given["targetUtilization"],
                current_replicas=given["currentReplicas"],
                tolerance=tolerance,
                timing=timing,
            )
        case "resource_raw":
            return resource_average(
                _samples(case),
                pods,
                resource=given["resource"],
                target_usage=given["targetUsage"],
                current_replicas=given["currentReplicas"],
                tolerance=tolerance,
                timing=timing,
            )
        case "pods_metric":
            return pods_average(
                _samples(case),
                pods,
                metric_name=given["metricName"],
                target_usage=given["targetUsage"],
                current_replicas=given["currentReplicas"],
                tolerance=tolerance,
                timing=timing,
            )
        case "object_value" | "object_average":
            return _compute_object(case, pods, tolerance)
        case "external_value" | "external_average":
            return _compute_external(case, pods, tolerance)
        case other:
            raise ValueError(f"unknown method {other}")


def _compute_object(case: dict[str, Any], pods: Pods, tolerance: Tolerances) -> Proposal:
    given = case["input"]
    described = given["describedObject"]
    name = object_metric(
        MetricIdentifier(given["metricName"]),
        CrossVersionObjectReference(described["kind"], described["name"], described["apiVersion"]),
        given["namespace"],
    )
    value: int | Unavailable = _unavailable(case) or case["metrics"]["value"]
    if case["method"] == "object_average":
        return object_average(
            value,
            metric=name,
            target_usage=given["targetUsage"],
            status_replicas=given["statusReplicas"],
            tolerance=tolerance,
        )
    return object_value(
        value,
        pods,
        metric=name,
        target_usage=given["targetUsage"],
        current_replicas=given["currentReplicas"],
        tolerance=tolerance,
    )


def _compute_external(case: dict[str, Any], pods: Pods, tolerance: Tolerances) -> Proposal:
    given = case["input"]
    LabelSelector.from_object(given.get("metricSelector"))
    metric = MetricIdentifier(given["metricName"], metric_selector(given.get("metricSelector"), "metric.selector"))
    name = external_metric(metric, given["namespace"])
    values: Sequence[int] | Unavailable = _unavailable(case) or case["metrics"].get("values") or []
    if case["method"] == "external_average":
        return external_average(
            values,
            metric=name,
            target_usage=given["targetUsage"],
            status_replicas=given["statusReplicas"],
            tolerance=tolerance,
        )
    return external_value(
        values,
        pods,
        metric=name,
        target_usage=given["targetUsage"],
        current_replicas=given["currentReplicas"],
        tolerance=tolerance,
    )


def _unavailable(case: dict[str, Any]) -> Unavailable | None:
    error = case["metrics"].get("error")
    return None if error is None else Unavailable(error)


def _samples(case: dict[str, Any]) -> Mapping[str, PodSample] | Unavailable:
    samples: dict[str, PodSample] = {
        name: PodSample(
            value=sample["value"],
            timestamp_ms=milliseconds(sample["timestamp"]),
            window_ms=milliseconds(sample["windowSeconds"]),
        )
        for name, sample in case["metrics"].get("pods", {}).items()
    }
    return _unavailable(case) or samples


def _pods(case: dict[str, Any]) -> Sequence[Pod] | PodListError:
    if "podListError" in case:
        return PodListError(case["podListError"])
    selector = LabelSelector.parse(case["input"]["podSelector"])
    pods = [parse_pod(pod, pod) for pod in case["pods"]]
    return [pod for pod in pods if selector.matches(pod.labels)]
