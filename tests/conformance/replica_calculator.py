"""Check replica_calculator.jsonl: one computation of the replica calculator per case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from autoscaler.core.metrics import external_metric_text, object_metric_text
from autoscaler.core.model import CrossVersionObjectReference, LabelSelectorSpec, MetricIdentifier
from autoscaler.core.observation import MetricError, Pod, PodSample, ReadError
from autoscaler.core.replica_calculator import Proposal, ReplicaCalculator, Tolerances
from kube.values.selectors import LabelSelector, SelectorError
from tests.conformance.comparison import difference
from tests.conformance.observed import milliseconds, parse_pod


def check(case: dict[str, Any]) -> str | None:
    """Return the differences of our result from the recorded one, but for the timestamp; None if they are equal."""
    expected: dict[str, Any] = case["output"]
    try:
        actual = _outcome(_compute(case))
    except (MetricError, SelectorError) as error:
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
    given, fetched = case["input"], case["metrics"]
    error = MetricError(fetched["error"]) if fetched.get("error") is not None else None
    calculator = ReplicaCalculator(
        pods=_pods(case),
        spec_replicas=given.get("currentReplicas", 0),
        status_replicas=given.get("statusReplicas", 0),
        tolerances=Tolerances(scale_down=given["tolerances"]["scaleDown"], scale_up=given["tolerances"]["scaleUp"]),
        now_ms=0,
        cpu_initialization_period_ms=milliseconds(given["cpuInitializationPeriodSeconds"]),
        initial_readiness_delay_ms=milliseconds(given["delayOfInitialReadinessStatusSeconds"]),
    )
    match case["method"]:
        case "resource_utilization":
            return calculator.get_resource_replicas(
                error or _samples(fetched),
                resource=given["resource"],
                container=given.get("container"),
                target_utilization=given["targetUtilization"],
            )
        case "resource_raw":
            return calculator.get_raw_resource_replicas(
                error or _samples(fetched), resource=given["resource"], target_usage=given["targetUsage"]
            )
        case "pods_metric":
            return calculator.get_metric_replicas(
                error or _samples(fetched), metric_name=given["metricName"], target_usage=given["targetUsage"]
            )
        case "object_value" | "object_average" as method:
            described = given["describedObject"]
            name = object_metric_text(
                MetricIdentifier(given["metricName"]),
                CrossVersionObjectReference(described["kind"], described["name"], described["apiVersion"]),
                given["namespace"],
            )
            compute_object = {
                "object_value": calculator.get_object_metric_replicas,
                "object_average": calculator.get_object_per_pod_metric_replicas,
            }[method]
            return compute_object(error or fetched["value"], metric=name, target_usage=given["targetUsage"])
        case "external_value" | "external_average" as method:
            LabelSelector.from_object(given.get("metricSelector"))
            selector = msgspec.convert(given.get("metricSelector"), LabelSelectorSpec | None)
            name = external_metric_text(MetricIdentifier(given["metricName"], selector), given["namespace"])
            compute_external = {
                "external_value": calculator.get_external_metric_replicas,
                "external_average": calculator.get_external_per_pod_metric_replicas,
            }[method]
            return compute_external(
                error or fetched.get("values") or [], metric=name, target_usage=given["targetUsage"]
            )
        case other:
            raise ValueError(f"unknown method {other}")


def _samples(fetched: dict[str, Any]) -> dict[str, PodSample]:
    return {
        name: PodSample(
            value=sample["value"],
            timestamp_ms=milliseconds(sample["timestamp"]),
            window_ms=milliseconds(sample["windowSeconds"]),
        )
        for name, sample in fetched.get("pods", {}).items()
    }


def _pods(case: dict[str, Any]) -> Sequence[Pod] | ReadError:
    if "podListError" in case:
        return ReadError(case["podListError"])
    selector = LabelSelector.parse(case["input"]["podSelector"])
    pods = [parse_pod(pod, pod) for pod in case["pods"]]
    return [pod for pod in pods if selector.matches(pod.labels)]
