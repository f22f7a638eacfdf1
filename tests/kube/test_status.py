"""StatusError and generic_message()."""

import json
from typing import Any

import pytest

from autoscaler.loop.client_messages import generic_message
from kube.api import status
from kube.api.status import StatusError

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "it is so"}


def message_of(
    code: int, body: str | dict[str, Any], content_type: str = "text/plain; charset=utf-8", name: str = ""
) -> str:
    content = body if isinstance(body, str) else json.dumps(body)
    error = StatusError.from_body(code, content.encode(), content_type=content_type)
    assert error.code == code
    return generic_message(error, resource="pods.metrics.k8s.io", name=name)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", ""])
def test_failed_status_keeps_its_message(content_type: str) -> None:
    assert message_of(503, STATUS, content_type) == "it is so"
    assert message_of(503, {**STATUS, "message": ""}, content_type) == ""


NO_MORE = "the server responded with the status code 418 but did not return more information"
NOT_IN_TIME = "the server was unable to return a response in the time allotted, but may still be processing the request"
UNABLE = "the server is currently unable to handle the request (get pods.metrics.k8s.io)"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (STATUS, "text/plain"),
        (STATUS, "application/octet-stream"),
        ({**STATUS, "status": "Success"}, "application/json"),
        ({**STATUS, "kind": "Pod"}, "application/json"),
        ("service unavailable\n", "text/plain"),
        ("", ""),
    ],
    ids=str,
)
def test_response_without_a_status_has_client_gos_message(body: str | dict[str, Any], content_type: str) -> None:
    assert message_of(503, body, content_type) == UNABLE


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (400, "the server rejected our request for an unknown reason (get pods.metrics.k8s.io)"),
        (401, "the server has asked for the client to provide credentials (get pods.metrics.k8s.io)"),
        (403, "boom (get pods.metrics.k8s.io)"),
        (404, "the server could not find the requested resource (get pods.metrics.k8s.io)"),
        (405, "the server does not allow this method on the requested resource (get pods.metrics.k8s.io)"),
        (406, "boom (get pods.metrics.k8s.io)"),
        (409, "the server reported a conflict (get pods.metrics.k8s.io)"),
        (415, "boom (get pods.metrics.k8s.io)"),
        (418, f"{NO_MORE} (get pods.metrics.k8s.io)"),
        (422, "the server rejected our request due to an error in our request (get pods.metrics.k8s.io)"),
        (
            429,
            "the server has received too many requests and has asked us to try again later (get pods.metrics.k8s.io)",
        ),
        (
            500,
            'an error on the server ("boom") has prevented the request from succeeding (get pods.metrics.k8s.io)',
        ),
        (504, f"{NOT_IN_TIME} (get pods.metrics.k8s.io)"),
    ],
)
def test_all_codes_of_client_go_have_messages(code: int, message: str) -> None:
    assert message_of(code, " boom\n") == message


def test_binary_body_is_unknown() -> None:
    assert message_of(403, "{}", "application/json") == "unknown (get pods.metrics.k8s.io)"
    assert message_of(406, "{}", "application/json") == (
        "the server was unable to respond with a content type that the client supports (get pods.metrics.k8s.io)"
    )


def test_message_names_the_object() -> None:
    assert message_of(403, "boom", name="*") == "boom (get pods.metrics.k8s.io *)"


def test_long_server_text_is_cut() -> None:
    assert message_of(403, "x" * 5000) == "x" * 2048 + " (get pods.metrics.k8s.io)"


def test_status_survives_encoding() -> None:
    import json

    error = status.too_many_requests("busy", 7)
    back = StatusError.from_body(429, json.dumps(error.body()).encode())
    assert (back.code, back.reason, back.message, back.retry_after) == (429, "TooManyRequests", "busy", 7)
    assert error.body()["details"] == {"retryAfterSeconds": 7}


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"kind": "Pod"}', b"\xff\xfe", b"[" * 100_000])
def test_any_body_gives_a_status(body: bytes) -> None:
    error = StatusError.from_body(503, body)
    assert (error.code, error.reason) == (503, "ServiceUnavailable")
    assert len(error.message) <= 600
    assert error.message


def test_internal_error_has_kubernetes_body() -> None:
    assert status.internal_error("disk on fire").body() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Internal error occurred: disk on fire",
        "reason": "InternalError",
        "details": {"causes": [{"message": "disk on fire"}]},
        "code": 500,
    }
