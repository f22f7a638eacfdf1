"""Errors with the texts and details of Kubernetes. Upstream: k8s.io/apimachinery/pkg/api/errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kube.api.mapping import GroupResource
from kube.api.status import StatusError, conflict, invalid, method_not_allowed, not_found
from kube.values import fields

_CAUSES: Final = {
    "Duplicate value": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Too long": "FieldValueTooLong",
    "Unsupported value": "FieldValueNotSupported",
}


def no_such_resource() -> StatusError:
    """Return 404 for an unknown path."""
    return not_found("the server could not find the requested resource", details={})


def unsupported_method() -> StatusError:
    """Return 405 for a verb that a resource does not have."""
    return method_not_allowed("the server does not allow this method on the requested resource")


def gone(message: str) -> StatusError:
    """410: the resource version is too old to watch from."""
    return StatusError(410, "Expired", message)


def no_such_object(resource: GroupResource, name: str) -> StatusError:
    """Return 404 for an object."""
    return not_found(f'{resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: GroupResource, name: str) -> StatusError:
    """Return 409 for a create request."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', details=_details(resource, name))


def modified(resource: GroupResource, name: str, why: str = "") -> StatusError:
    """Return 409 for an update; without `why` for an outdated resourceVersion."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(f'Operation cannot be fulfilled on {resource} "{name}": {why}', details=_details(resource, name))


def invalid_object(group: str, kind: str, name: str, errors: list[str]) -> StatusError:
    """Return 422 with every invalid field; `errors` are texts of `kube.values.fields`."""
    return invalid(
        f'{GroupResource(group, kind)} "{name}" is invalid: {fields.aggregate(errors)}',
        details={**_details(GroupResource(group, kind), name), "causes": [_cause(error) for error in errors]},
    )


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """Return 415 for a body in an unknown format."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )


def not_in_the_demo(what: str) -> StatusError:
    """Return 501 for what upstream has and this server has not; `what` is the rest of the sentence."""
    return StatusError(501, "NotImplemented", f"this is the demo's API server: {what}")


def _details(resource: GroupResource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.resource}
    return {key: value for key, value in details.items() if value}


def _cause(error: str) -> dict[str, str]:
    path, _, message = error.partition(": ")
    return {"reason": _CAUSES.get(message.partition(":")[0], "FieldValueInvalid"), "message": message, "field": path}
