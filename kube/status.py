"""metav1.Status errors: what a Kubernetes API server says when it says no, as an exception.

The same class serves both directions: our adapter raises one and its body goes out; our client raises one for an
answer that came in. The constructors spell the reasons and codes as k8s.io/apimachinery/pkg/api/errors does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = [
    "StatusError",
    "bad_request",
    "conflict",
    "forbidden",
    "gone",
    "internal_error",
    "invalid",
    "method_not_allowed",
    "not_acceptable",
    "not_found",
    "service_unavailable",
    "timeout",
    "too_many_requests",
    "unauthorized",
]

# What a code means where the answer itself gives no reason (a proxy's page, say).
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_MAX_FOREIGN_TEXT = 512


class StatusError(Exception):
    """An API call's failure.

    Attributes:
        code: the HTTP status, 400 to 599.
        reason: the machine-readable reason, such as "NotFound"; may be empty.
        message: the text for people; also `str(error)`.
        details: metav1.StatusDetails as JSON, or None; some answers of Kubernetes have empty ones.
        retry_after: seconds after which the server wants to be asked again, or None.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The metav1.Status object that says this, as JSON."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = None if self.details is None else dict(self.details)
        if self.retry_after is not None:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after}
        if details is not None:
            body["details"] = details
        body["code"] = self.code
        return body

    @classmethod
    def from_body(cls, code: int, body: bytes) -> StatusError:
        """The error of an answer: its Status object, or what can be said where it is none."""
        try:
            decoded = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            decoded = None
        if isinstance(decoded, dict) and decoded.get("kind") == "Status":
            details = decoded.get("details")
            details = details if isinstance(details, dict) else None
            retry_after = details.get("retryAfterSeconds") if details else None
            return cls(
                code,
                str(decoded.get("reason") or ""),
                str(decoded.get("message") or ""),
                details=details,
                retry_after=retry_after if isinstance(retry_after, int) else None,
            )
        text = body.decode("utf-8", "replace").strip()[:_MAX_FOREIGN_TEXT]
        return cls(code, _REASONS.get(code, "Unknown"), text or f"the server answered with status {code}")


def bad_request(message: str) -> StatusError:
    """400: the request is wrong and will stay wrong."""
    return StatusError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    """401: credentials were given and do not hold."""
    return StatusError(401, "Unauthorized", message)


def forbidden(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """403: known, and not allowed."""
    return StatusError(403, "Forbidden", message, details=details)


def not_found(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """404: there is no such thing."""
    return StatusError(404, "NotFound", message, details=details)


def method_not_allowed(message: str) -> StatusError:
    """405: the thing exists, the verb does not."""
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(message: str) -> StatusError:
    """406: none of the wanted media types is served."""
    return StatusError(406, "NotAcceptable", message)


def conflict(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """409: the object has changed since it was read."""
    return StatusError(409, "Conflict", message, details=details)


def gone(message: str) -> StatusError:
    """410: the resource version is too old to watch from."""
    return StatusError(410, "Expired", message)


def invalid(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """422: the object does not validate."""
    return StatusError(422, "Invalid", message, details=details)


def too_many_requests(message: str, retry_after: int) -> StatusError:
    """429: not now; again after `retry_after` seconds."""
    return StatusError(429, "TooManyRequests", message, retry_after=retry_after)


def internal_error(message: str) -> StatusError:
    """500, worded as Kubernetes words it."""
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def service_unavailable(message: str, *, retry_after: int | None = None) -> StatusError:
    """503: something that this server needs is not there."""
    return StatusError(503, "ServiceUnavailable", message, retry_after=retry_after)


def timeout(message: str) -> StatusError:
    """504: the answer did not come within the request's time."""
    return StatusError(504, "Timeout", message)
