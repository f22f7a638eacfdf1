"""Responses to instant queries: good, bad and hostile ones."""

from __future__ import annotations

import json
import math

import pytest

from adapter.prometheus import (
    PrometheusAccessError,
    PrometheusBadResponse,
    PrometheusError,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusTimeout,
    PrometheusUnavailable,
    Sample,
    Vector,
    scalar,
)
from adapter.prometheus.errors import refusal
from adapter.prometheus.results import VectorReader, decode


def success(kind: str, result: object, **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def test_vector_is_sorted_by_labels() -> None:
    body = success(
        "vector",
        [
            {"metric": {"pod": "b", "verb": "POST"}, "value": [5, "2"]},
            {"metric": {"pod": "a", "verb": "POST"}, "value": [5.5, "1e3"]},
            {"metric": {"verb": "GET", "pod": "a"}, "value": [5, "+Inf"]},
        ],
    )
    assert decode(body) == Vector(
        (
            Sample({"pod": "a", "verb": "GET"}, 5.0, math.inf),
            Sample({"pod": "a", "verb": "POST"}, 5.5, 1000.0),
            Sample({"pod": "b", "verb": "POST"}, 5.0, 2.0),
        )
    )


def test_scalar_has_a_time_and_a_value() -> None:
    assert decode(success("scalar", [1, "5"])) == scalar(1.0, 5.0)


@pytest.mark.parametrize("others", [0, 1, 3_000])  # the last one is decoded while it arrives
def test_native_histograms_are_an_error_that_says_what_to_query(others: int) -> None:
    sample = {"metric": {}, "value": [5, "1"]}
    body = success("vector", [*[sample] * others, {"metric": {}, "histogram": [5, {"count": "3"}]}, sample])
    with pytest.raises(PrometheusResultError, match=r"native histograms, .* histogram_quantile\("):
        decode(body)
    with pytest.raises(PrometheusResultError, match="native histograms"):
        in_pieces(body)


def in_pieces(body: bytes) -> None:
    reader = VectorReader()
    for start in range(0, len(body), 1_000):
        reader.feed(body[start : start + 1_000])
    reader.finish()


@pytest.mark.parametrize("kind", ["matrix", "string", "", "x" * 10_000])
def test_result_of_another_type_is_a_result_error(kind: str) -> None:
    with pytest.raises(PrometheusResultError):
        decode(success(kind, []))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>login</html>",
        b"[]",
        b"{}",
        b'{"status":"success"',
        b'{"status":"success","data":{"resultType":"vector"}}',
        b'{"status":5}',
        b"\xff\xfe",
        success("vector", {}),
        success("vector", [5]),
        success("vector", [{"metric": {"a": 5}, "value": [5, "1"]}]),
        success("vector", [{"value": [5, "1"]}]),
        success("vector", [{"metric": {}, "value": [5, "one"]}]),
        success("vector", [{"metric": {}, "value": [5]}]),
        success("vector", [{"metric": {}, "value": [5, 1]}]),
        success("vector", [{"metric": {}, "value": ["5", "1"]}]),
        success("vector", [{"metric": {}, "value": [-1, "1"]}]),
        success("vector", [{"metric": {}, "value": [1e18, "1"]}]),
        success("scalar", [[], "5"]),
        b"[" * 100_000,
    ],
)
def test_garbage_is_a_bad_response(body: bytes) -> None:
    with pytest.raises(PrometheusBadResponse):
        decode(body)


@pytest.mark.parametrize(
    ("status", "error_type", "error"),
    [
        (400, "bad_data", PrometheusQueryError),
        (422, "execution", PrometheusQueryError),
        (503, "timeout", PrometheusTimeout),
        (503, "canceled", PrometheusTimeout),
        (504, "", PrometheusTimeout),
        (503, "unavailable", PrometheusUnavailable),
        (500, "internal", PrometheusUnavailable),
        (401, "", PrometheusAccessError),
        (403, "", PrometheusAccessError),
        (404, "", PrometheusUnavailable),
        (429, "", PrometheusUnavailable),
    ],
)
def test_refusals_have_distinct_errors(status: int, error_type: str, error: type[PrometheusError]) -> None:
    body = json.dumps({"status": "error", "errorType": error_type, "error": "line\none"}).encode()
    refused = refusal(status, body)
    assert type(refused) is error
    assert str(refused) == f"Prometheus answered with status {status}: line one"


def test_error_with_the_status_of_a_success_is_an_error() -> None:
    with pytest.raises(PrometheusQueryError, match="Prometheus answered with status 200: bad"):
        decode(json.dumps({"status": "error", "errorType": "execution", "error": "bad"}).encode())


def test_message_of_a_server_is_printable_and_has_its_end() -> None:
    text = f'error when executing query="{"x" * 5_000}"\x1b]0;title\x07\x9b2J: the reason'
    refused = refusal(422, json.dumps({"status": "error", "errorType": "422", "error": text}).encode())
    assert isinstance(refused, PrometheusQueryError)
    assert str(refused).endswith('x"\ufffd]0;title\ufffd\ufffd2J: the reason')
    assert "error when executing query=" in str(refused)
    assert len(str(refused)) < 500
