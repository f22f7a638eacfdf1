"""client-go's messages for errors of the API server, which HPAs have in their conditions and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kube.api.status import UNKNOWN_TEXT, StatusError
from kube.values import fields

# client-go's messages for responses without a Status, by code. None: the server's text.
_GENERIC_MESSAGES: Final[Mapping[int, str | None]] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: None,
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: None,
    409: "the server reported a conflict",
    415: None,
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: ("the server was unable to return a response in the time allotted, but may still be processing the request"),
}
_NOT_ACCEPTABLE = "the server was unable to respond with a content type that the client supports"


def generic_message(error: StatusError, *, resource: str, name: str) -> str:
    """Return client-go's message for the error of a response to a GET request.

    Args:
        error: of the response.
        resource: of the request: "pods.metrics.k8s.io".
        name: of the object; "" if the request was for a list.

    Upstream: errors.NewGenericServerResponse
    """
    text = error.server_text
    if text is None:
        return error.message
    message = f"the server responded with the status code {error.code} but did not return more information"
    if error.code in _GENERIC_MESSAGES:
        generic = _GENERIC_MESSAGES[error.code]
        message = text if generic is None else generic
        if error.code == 406 and text in ("", UNKNOWN_TEXT):
            message = _NOT_ACCEPTABLE
    elif error.code >= 500:
        message = f"an error on the server ({fields.quote(text)}) has prevented the request from succeeding"
    return f"{message} ({' '.join(filter(None, ('get', resource, name)))})"
