"""metav1.Status errors as exceptions: the adapter sends them, the API client raises them.

Codes and reasons are those of k8s.io/apimachinery/pkg/api/errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# Of responses without a reason, such as a proxy's error page.
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
UNKNOWN_TEXT = "unknown"
"""`server_text` of a response whose body is no text. Upstream: rest.Request.newUnstructuredResponseError"""
_MAX_SERVER_TEXT = 2048
_STATUS_MEDIA_TYPES = ("", "application/json", "application/yaml")


class StatusError(Exception):
    """A failed API call. Upstream: errors.StatusError.

    Attributes:
        code: the HTTP status, 400 to 599.
        reason: machine-readable, such as "NotFound"; may be empty.
        message: for people; also `str(error)`.
        details: metav1.StatusDetails as JSON, or None; some responses of Kubernetes have empty ones.
        retry_after: seconds until the client may retry, or None.
        server_text: the text of a response without a failed Status, for client-go's messages; None if there was one.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
        server_text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.server_text = server_text

    def body(self) -> dict[str, Any]:
        """Return the metav1.Status object as JSON."""
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
    def from_body(cls, code: int, body: bytes, *, content_type: str = "") -> StatusError:
        """Return the error of a response, from its Status object or its text.

        Args:
            code: the HTTP status.
            body: of the response.
            content_type: its header; "" if it has none, and the body may be anything.

        Upstream: rest.Request.transformResponse
        """
        media_type = content_type.partition(";")[0].strip().lower()
        text = body[:_MAX_SERVER_TEXT].decode("utf-8", "replace").strip()
        server_text = text if not media_type or media_type.startswith("text/") else UNKNOWN_TEXT
        decoded = _decoded(body) if media_type in _STATUS_MEDIA_TYPES else None
        if isinstance(decoded, dict) and decoded.get("kind") == "Status":
            details = _readable_details(decoded.get("details"))
            retry_after = details.get("retryAfterSeconds") if details else None
            return cls(
                code,
                str(decoded.get("reason") or ""),
                str(decoded.get("message") or ""),
                details=details,
                retry_after=retry_after,
                # client-go ignores one that is no failure.
                server_text=None if decoded.get("status") == "Failure" else server_text,
            )
        message = text[:_MAX_FOREIGN_TEXT] or f"the server responded with status {code}"
        return cls(code, _REASONS.get(code, "Unknown"), message, server_text=server_text)


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _readable_details(raw: object) -> dict[str, Any] | None:
    """Return metav1.StatusDetails without fields of another type: the error may be sent on, also as protobuf."""
    if not isinstance(raw, dict):
        return None
    details: dict[str, Any] = {}
    for name, value in raw.items():
        is_text = name in ("name", "group", "kind", "uid") and isinstance(value, str)
        if is_text or (name == "retryAfterSeconds" and type(value) is int and 0 <= value < 2**31):
            details[name] = value
        elif name == "causes" and isinstance(value, list):
            details[name] = [_cause(cause) for cause in value if isinstance(cause, dict)]
    return details


def _cause(raw: Mapping[str, object]) -> dict[str, str]:
    names = ("reason", "message", "field")
    return {name: value for name, value in raw.items() if name in names and isinstance(value, str)}


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: the credentials are invalid."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """403: the user is authenticated, but not allowed to."""
    return StatusError(403, "Forbidden", message, details=details)


def not_found(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """404."""
    return StatusError(404, "NotFound", message, details=details)


def method_not_allowed(message: str) -> StatusError:
    """405: the resource does not support the verb."""
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(message: str) -> StatusError:
    """406: none of the accepted media types is served."""
    return StatusError(406, "NotAcceptable", message)


def conflict(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """409: the object has changed since it was read."""
    return StatusError(409, "Conflict", message, details=details)


def invalid(message: str, *, details: Mapping[str, Any] | None = None) -> StatusError:
    """422: the object is invalid."""
    return StatusError(422, "Invalid", message, details=details)


def too_many_requests(message: str, retry_after: int | None = None) -> StatusError:
    """429: retry after `retry_after` seconds; None: client-go does not retry, and its caller does not wait."""
    return StatusError(429, "TooManyRequests", message, retry_after=retry_after)


def internal_error(message: str) -> StatusError:
    """500, with Kubernetes' message."""
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def service_unavailable(message: str, *, retry_after: int | None = None) -> StatusError:
    """503: the server, or something that it needs, is not available."""
    return StatusError(503, "ServiceUnavailable", message, retry_after=retry_after)


def timeout(message: str) -> StatusError:
    """504: the request's timeout has passed."""
    return StatusError(504, "Timeout", message)
