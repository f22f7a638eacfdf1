"""autoscaling/v1 HorizontalPodAutoscalers, converted from and to the stored v2.

v1 has a field for the CPU target only; the rest of v2 is in annotations. Annotations of updates are ignored: the stored
values stay. Upstream: k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from playground.apiserver.objects import Object, child
from playground.apiserver.resource_types import ResourceType, storage_type

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS: Final = f"{_PREFIX}metrics"
_CURRENT_METRICS: Final = f"{_PREFIX}current-metrics"
_CONDITIONS: Final = f"{_PREFIX}conditions"
_BEHAVIOR: Final = f"{_PREFIX}behavior"
_ANNOTATIONS: Final = (_METRICS, _CURRENT_METRICS, _CONDITIONS, _BEHAVIOR)
_COPIED_SPEC: Final = ("scaleTargetRef", "minReplicas", "maxReplicas")
_COPIED_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")


def to_version(kind: ResourceType, obj: Object) -> Object:
    """Return a stored object in the version of a request."""
    return obj if kind == storage_type(kind) else _hpa_to_v1(obj)


def from_version(kind: ResourceType, obj: Object, old: Object | None) -> Object:
    """Return an object of a request in the stored version; it replaces `old`, None for a new one."""
    return obj if kind == storage_type(kind) else _hpa_from_v1(obj, old)


def _hpa_to_v1(hpa: Object) -> Object:
    spec, status = child(hpa, "spec"), child(hpa, "status")
    metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    cpu = next((metric for metric in metrics if _is_cpu_utilization(metric)), None)
    cpu_now = next((metric for metric in current if child(metric, "resource").get("name") == "cpu"), None)
    v1_spec: Object = {key: spec[key] for key in _COPIED_SPEC if key in spec}
    v1_status: Object = {"currentReplicas": 0, "desiredReplicas": 0}
    v1_status |= {key: status[key] for key in _COPIED_STATUS if key in status}
    if cpu is not None:
        v1_spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    if cpu_now is not None and "averageUtilization" in child(cpu_now, "resource", "current"):
        v1_status["currentCPUUtilizationPercentage"] = cpu_now["resource"]["current"]["averageUtilization"]
    hidden: dict[str, Any] = {
        _METRICS: [_metric_to_v1(metric, "target") for metric in metrics if metric is not cpu],
        _CURRENT_METRICS: [_metric_to_v1(metric, "current") for metric in current],
        _CONDITIONS: status.get("conditions"),
        _BEHAVIOR: _go_names(spec.get("behavior")),
    }
    annotations = dict(child(hpa, "metadata", "annotations"))
    annotations |= {key: msgspec.json.encode(value).decode() for key, value in hidden.items() if value}
    metadata = {**hpa["metadata"], **({"annotations": annotations} if annotations else {})}
    return {**hpa, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": v1_spec, "status": v1_status}


def _hpa_from_v1(hpa: Object, old: Object | None) -> Object:
    spec = child(hpa, "spec")
    stored = child(old, "spec") if old else {}
    v2_spec: Object = {key: spec[key] for key in _COPIED_SPEC if key in spec}
    if "behavior" in stored:
        v2_spec["behavior"] = stored["behavior"]
    metrics = [metric for metric in stored.get("metrics") or [] if not _is_cpu_utilization(metric)]
    percentage = spec.get("targetCPUUtilizationPercentage")
    if percentage is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    if metrics:
        v2_spec["metrics"] = metrics
    metadata = dict(child(hpa, "metadata"))
    annotations = {key: value for key, value in child(metadata, "annotations").items() if key not in _ANNOTATIONS}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    status = {**(child(old, "status") if old else {})}
    status |= {key: value for key, value in child(hpa, "status").items() if key in _COPIED_STATUS}
    return {**hpa, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": v2_spec, "status": status}


def _is_cpu_utilization(metric: Object) -> bool:
    resource = child(metric, "resource")
    return resource.get("name") == "cpu" and child(resource, "target").get("averageUtilization") is not None


def _metric_to_v1(metric: Object, side: str) -> Object:
    """Return a metric as in v1 annotations: flat, with a field per kind of `side` ("target" or "current")."""
    name = str(metric.get("type") or "")
    key = name[:1].lower() + name[1:]
    source = child(metric, key)
    if not source:
        return {"type": name}
    identifier, values = child(source, "metric"), child(source, side)
    flat: Object = {}
    if "describedObject" in source:
        flat["target"] = source["describedObject"]
    flat |= {"metricName": identifier["name"]} if identifier else {"name": source.get("name")}
    for field, suffix in (
        ("value", "Value"),
        ("averageValue", "AverageValue"),
        ("averageUtilization", "AverageUtilization"),
    ):
        if field in values:
            flat[f"{side}{suffix}"] = values[field]
    if "selector" in identifier:
        flat["metricSelector" if key == "external" else "selector"] = identifier["selector"]
    return {"type": name, key: flat}


def _go_names(value: Any) -> Any:
    """Return JSON with Go's field names as keys, as upstream writes the behavior annotation."""
    if isinstance(value, dict):
        return {key[:1].upper() + key[1:]: _go_names(inner) for key, inner in value.items()}
    return [_go_names(item) for item in value] if isinstance(value, list) else value
