"""Defaults and validation of objects before they are stored.

Only defaults that something here reads, such as a Deployment's replicas or a pod's phase. HorizontalPodAutoscalers are
validated as upstream validates them; other kinds are stored as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from kube.api.objects import ParseError
from kube.api.status import bad_request
from playground.apiserver.errors import invalid_object
from playground.apiserver.objects import Object, child, name_of
from playground.apiserver.resource_types import ResourceType


def admit(kind: ResourceType, obj: Object, *, new: bool) -> None:
    """Default and validate an object that is about to be stored, in place.

    Raises:
        StatusError: 400 or 422, with every invalid field.
    """
    if new and kind.kind in _INITIAL_STATUS:
        obj["status"] = dict(_INITIAL_STATUS[kind.kind])
    default = _DEFAULTS.get(kind.kind)
    if default is not None:
        default(obj)
    if kind.kind == "HorizontalPodAutoscaler":
        # Kubernetes 1.36 has the feature gate HPAScaleToZero off; HPAs of milliscale.io are not under that gate.
        errors = validate_hpa(obj, scale_to_zero=obj["apiVersion"] != "autoscaling/v2")
        if errors:
            raise invalid_object(kind.group, kind.kind, name_of(obj), errors)


def _spec(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    return spec


def _default_workload(obj: Object) -> None:
    _spec(obj).setdefault("replicas", 1)
    _default_pod_spec(child(obj, "spec", "template", "spec"))


def _default_pod(obj: Object) -> None:
    _default_pod_spec(_spec(obj))


def _default_pod_spec(spec: Object) -> None:
    if spec:
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", 30)


def _default_service(obj: Object) -> None:
    _spec(obj).setdefault("type", "ClusterIP")


def _default_namespace(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name_of(obj)


def _default_hpa(obj: Object) -> None:
    try:
        defaulted = default_hpa(obj)
    except ParseError as error:
        version = str(obj["apiVersion"]).rpartition("/")[2]
        raise bad_request(
            f'HorizontalPodAutoscaler in version "{version}" cannot be handled as a HorizontalPodAutoscaler: {error}'
        ) from error
    obj["spec"] = defaulted["spec"]


def _default_api_service(obj: Object) -> None:
    service = _spec(obj).get("service")
    if isinstance(service, dict):
        service.setdefault("port", 443)


_INITIAL_STATUS: Final[dict[str, Object]] = {
    "HorizontalPodAutoscaler": {"desiredReplicas": 0, "currentMetrics": None},
    "Namespace": {"phase": "Active"},
    "Pod": {"phase": "Pending"},
}
_DEFAULTS: Final[dict[str, Callable[[Object], None]]] = {
    "APIService": _default_api_service,
    "Deployment": _default_workload,
    "HorizontalPodAutoscaler": _default_hpa,
    "Namespace": _default_namespace,
    "Pod": _default_pod,
    "ReplicaSet": _default_workload,
    "Service": _default_service,
    "StatefulSet": _default_workload,
}
