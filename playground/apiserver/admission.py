"""What happens to an object of some kind before it is stored: defaults filled in, status set up, errors found.

Only the defaults that somebody here reads (a Deployment's replicas, a Service's port protocol, a pod's phase) and the
mistakes that users make; the generic part, names and versions, is in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from autoscaler.objects.defaults import default_hpa
from autoscaler.objects.fields import ParseError
from autoscaler.objects.validation import validate_hpa
from kube import fields
from kube.selectors import LabelSelector, SelectorError
from kube.status import bad_request
from playground.apiserver.errors import invalid_object
from playground.apiserver.objects import Object, child, name_of
from playground.apiserver.resource_types import ResourceType

_MAX_PORT: Final = 65535
_REPLICAS_MESSAGE: Final = "must be greater than or equal to 0"


def admit(kind: ResourceType, obj: Object, old: Object | None) -> None:
    """Default and check an object that is about to be stored, in place; `old` is what it replaces, None if it is new.

    Raises:
        StatusError: 422, with every field that is wrong.
    """
    if old is None and kind.kind in _INITIAL_STATUS:
        obj["status"] = dict(_INITIAL_STATUS[kind.kind])
    default = _DEFAULTS.get(kind.kind)
    if default is not None:
        default(obj)
    check = _CHECKS.get(kind.kind)
    errors = check(obj) if check is not None else []
    if old is not None:
        errors += [error for path in _IMMUTABLE.get(kind.kind, ()) for error in _unchanged(obj, old, path)]
    if errors:
        raise invalid_object(kind.group, kind.kind, name_of(obj), errors)


def _unchanged(obj: Object, old: Object, path: tuple[str, ...]) -> list[str]:
    value = child(obj, *path[:-1]).get(path[-1])
    if value == child(old, *path[:-1]).get(path[-1]):
        return []
    return [fields.invalid(".".join(path), value, "field is immutable")]


def _spec(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    return spec


def _default_workload(obj: Object) -> None:
    _spec(obj).setdefault("replicas", 1)
    _default_pod_spec(child(obj, "spec", "template", "spec"))


def _default_pod_spec(spec: Object) -> None:
    if not spec:
        return
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in spec.get("containers") or []:
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")


def _default_pod(obj: Object) -> None:
    _default_pod_spec(_spec(obj))


def _default_service(obj: Object) -> None:
    spec = _spec(obj)
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _default_namespace(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name_of(obj)


def _check_workload(obj: Object) -> list[str]:
    spec = _spec(obj)
    errors = []
    replicas = spec["replicas"]
    if not isinstance(replicas, int) or replicas < 0:
        errors.append(fields.invalid("spec.replicas", replicas, _REPLICAS_MESSAGE))
    selector = spec.get("selector")
    if not selector:
        errors.append(fields.required("spec.selector"))
    errors += _template_label_errors(selector, child(spec, "template", "metadata").get("labels"))
    if not child(spec, "template", "spec").get("containers"):
        errors.append(fields.required("spec.template.spec.containers"))
    return errors


def _template_label_errors(selector: Object | None, labels: Object | None) -> list[str]:
    try:
        if LabelSelector.from_object(selector).matches(labels or {}) and selector:
            return []
    except SelectorError as error:
        return [fields.invalid("spec.selector", selector, str(error))]
    message = "`selector` does not match template `labels`"
    return [fields.invalid("spec.template.metadata.labels", labels, message)]


def _default_hpa(obj: Object) -> None:
    try:
        defaulted = default_hpa(obj)
    except ParseError as error:
        version = str(obj["apiVersion"]).rpartition("/")[2]
        raise bad_request(
            f'HorizontalPodAutoscaler in version "{version}" cannot be handled as a HorizontalPodAutoscaler: {error}'
        ) from error
    obj["spec"] = defaulted["spec"]


def _check_hpa(obj: Object) -> list[str]:
    # Kubernetes 1.36 has the feature gate HPAScaleToZero off; an HPA of ours is not under that gate.
    return validate_hpa(obj, scale_to_zero=obj["apiVersion"] != "autoscaling/v2")


def _check_pod(obj: Object) -> list[str]:
    return [] if _spec(obj).get("containers") else [fields.required("spec.containers")]


def _default_api_service(obj: Object) -> None:
    service = _spec(obj).get("service")
    if isinstance(service, dict):
        service.setdefault("port", 443)


def _check_api_service(obj: Object) -> list[str]:
    spec = _spec(obj)
    errors = []
    expected = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
    if name_of(obj) != expected:
        message = f'must be `spec.version+"."+spec.group`: "{expected}"'
        errors.append(fields.invalid("metadata.name", name_of(obj), message))
    service = child(spec, "service")
    if service:
        errors += [
            fields.required(f"spec.service.{field}") for field in ("namespace", "name") if not service.get(field)
        ]
        if not 0 < service["port"] <= _MAX_PORT:
            message = "must be between 1 and 65535, inclusive"
            errors.append(fields.invalid("spec.service.port", service["port"], message))
    for field, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        priority = spec.get(field) or 0
        if not 0 < priority <= limit:
            errors.append(fields.invalid(f"spec.{field}", priority, f"must be positive and less than {limit}"))
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        errors.append(fields.invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
    return errors


def _check_binding(obj: Object) -> list[str]:
    return [] if child(obj, "roleRef").get("name") else [fields.required("roleRef.name")]


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
_CHECKS: Final[dict[str, Callable[[Object], list[str]]]] = {
    "APIService": _check_api_service,
    "ClusterRoleBinding": _check_binding,
    "Deployment": _check_workload,
    "HorizontalPodAutoscaler": _check_hpa,
    "Pod": _check_pod,
    "ReplicaSet": _check_workload,
    "RoleBinding": _check_binding,
    "StatefulSet": _check_workload,
}
_IMMUTABLE: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "ClusterRoleBinding": (("roleRef",),),
    "Deployment": (("spec", "selector"),),
    "ReplicaSet": (("spec", "selector"),),
    "RoleBinding": (("roleRef",),),
    "StatefulSet": (("spec", "selector"),),
}
