"""The scale subresource: autoscaling/v1 Scale."""

from __future__ import annotations

from kube.values import fields
from kube.values.selectors import LabelSelector
from playground.apiserver.errors import invalid_object
from playground.apiserver.objects import Object, child, copy_of, name_of

_SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Object) -> Object:
    """Return the Scale of a workload. As upstream, spec.replicas is omitted if it is 0."""
    replicas = child(obj, "spec").get("replicas", 1)
    status: Object = {"replicas": child(obj, "status").get("replicas", 0)}
    selector = str(LabelSelector.from_object(child(obj, "spec").get("selector")))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _SCALE_METADATA if key in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def apply_scale(obj: Object, scale: Object) -> Object:
    """Return a copy of the workload with the replicas of a Scale, and its resourceVersion if it has one.

    Raises:
        StatusError: 422, replicas is negative or no integer.
    """
    replicas = child(scale, "spec").get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        error = fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_object("autoscaling", "Scale", name_of(obj), [error])
    scaled = copy_of(obj)
    scaled["spec"]["replicas"] = replicas
    scaled["metadata"].pop("resourceVersion", None)
    for field in ("resourceVersion", "uid"):
        if child(scale, "metadata").get(field):
            scaled["metadata"][field] = scale["metadata"][field]
    return scaled
