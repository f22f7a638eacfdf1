"""autoscaling/v1 HorizontalPodAutoscalers, converted from and to the stored v2.

v1 has a field for the CPU target only. Unlike upstream the rest of v2 is not in annotations: v1 clients do not see it,
and their updates keep it. Upstream: k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

from typing import Final

from playground.apiserver.objects import Object, child
from playground.apiserver.resource_types import ResourceType, storage_type

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
    return {**hpa, "apiVersion": "autoscaling/v1", "spec": v1_spec, "status": v1_status}


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
    status = {**(child(old, "status") if old else {})}
    status |= {key: value for key, value in child(hpa, "status").items() if key in _COPIED_STATUS}
    return {**hpa, "apiVersion": "autoscaling/v2", "spec": v2_spec, "status": status}


def _is_cpu_utilization(metric: Object) -> bool:
    resource = child(metric, "resource")
    return resource.get("name") == "cpu" and child(resource, "target").get("averageUtilization") is not None
