"""Refusals in the API server's own words, with the details that clients look at.

The texts are those of k8s.io/apimachinery/pkg/api/errors: tests and users compare them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube.mapping import GroupResource
from kube.status import StatusError, conflict, invalid, not_found

__all__ = ["FieldError", "already_exists", "field_errors", "modified", "no_such_object", "unsupported_media_type"]


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field.

    Attributes:
        reason: the cause's machine-readable reason, such as FieldValueInvalid.
        field: the path, such as spec.replicas.
        message: as Kubernetes words it after the field, such as "Required value".
    """

    reason: str
    field: str
    message: str


def _details(resource: GroupResource, name: str) -> dict[str, str]:
    details = {"name": name, "group": resource.group, "kind": resource.resource}
    return {key: value for key, value in details.items() if value}


def no_such_object(resource: GroupResource, name: str) -> StatusError:
    """404 for one object."""
    return not_found(f'{resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: GroupResource, name: str) -> StatusError:
    """409 for a creation."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', details=_details(resource, name))


def modified(resource: GroupResource, name: str, why: str = "") -> StatusError:
    """409 for an update: by default because somebody else was faster."""
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    return conflict(f'Operation cannot be fulfilled on {resource} "{name}": {why}', details=_details(resource, name))


def field_errors(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """422 that names every field at fault."""
    errors = list(errors)
    texts = [f"{error.field}: {error.message}" for error in errors]
    what = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    details = {"name": name, "group": group, "kind": kind, "causes": causes}
    return invalid(
        f'{GroupResource(group, kind)} "{name}" is invalid: {what}',
        details={key: value for key, value in details.items() if value},
    )


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """415 for a body in a format that is not understood."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )
