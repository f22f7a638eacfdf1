"""HPAs and load for tests of replays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.core.model import HPA
from replay.hpa_files import parse_hpa_document
from replay.load import Load, Series

START_MS = 1_780_000_000_000
STEP_MS = 15_000
GAP = math.nan


def pods_metric(name: str = "rps", average: str = "100") -> dict[str, Any]:
    return {
        "type": "Pods",
        "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": average}},
    }


def external_metric(name: str = "queue", selector: Mapping[str, str] | None = None, **target: str) -> dict[str, Any]:
    """`value="30"` or `averageValue="30"`."""
    metric: dict[str, Any] = {"name": name}
    if selector:
        metric["selector"] = {"matchLabels": dict(selector)}
    type_ = "Value" if "value" in target else "AverageValue"
    return {"type": "External", "external": {"metric": metric, "target": {"type": type_, **target}}}


def object_metric(name: str = "hits", *, service: str = "front", **target: str) -> dict[str, Any]:
    type_ = "Value" if "value" in target else "AverageValue"
    described = {"apiVersion": "v1", "kind": "Service", "name": service}
    return {
        "type": "Object",
        "object": {"metric": {"name": name}, "describedObject": described, "target": {"type": type_, **target}},
    }


def cpu_metric(utilization: int = 50, container: str | None = None) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": utilization}
    if container is None:
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    return {
        "type": "ContainerResource",
        "containerResource": {"name": "cpu", "container": container, "target": target},
    }


def hpa_document(
    *metrics: dict[str, Any],
    min_replicas: int = 1,
    max_replicas: int = 20,
    behavior: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    kind: str = "Deployment",
    target: str = "web",
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "annotations": dict(annotations or {})},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
            "minReplicas": min_replicas,
            "maxReplicas": max_replicas,
            "metrics": list(metrics) or [pods_metric()],
        },
    }
    if behavior is not None:
        document["spec"]["behavior"] = behavior
    return document


def make_hpa(*metrics: dict[str, Any], **options: Any) -> HPA:
    """Options are those of `hpa_document`."""
    return parse_hpa_document(hpa_document(*metrics, **options), "hpa.yaml").hpa


def series_of(values: Sequence[float], *, step_ms: int = STEP_MS, start_ms: int = START_MS) -> Series:
    times = array("q", range(start_ms, start_ms + len(values) * step_ms, step_ms))
    return Series(times_ms=times, values=array("d", values), hold_ms=step_ms)


def load_of(
    named: Mapping[str, Sequence[float]] | None = None,
    /,
    *,
    requests: Mapping[str, int] | None = None,
    step_ms: int = STEP_MS,
    **values: Sequence[float],
) -> Load:
    """A load whose metrics have a value for each step."""
    metrics = {**(named or {}), **values}
    length = max(map(len, metrics.values()))
    return Load(
        start_ms=START_MS,
        end_ms=START_MS + length * step_ms,
        series={name: series_of(values, step_ms=step_ms) for name, values in metrics.items()},
        requests=requests or {},
    )
