"""Decode and check responses to range queries; a proxy or another server can send anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from adapter.prometheus.errors import PrometheusBadResponse, PrometheusResultError, refusal
from adapter.prometheus.list_reader import UNREADABLE, unreadable
from adapter.prometheus.results import HISTOGRAMS, MAX_TIMESTAMP, Notices, ResponseBody, check_number

MAX_BYTES = 4 * 1024 * 1024
"""The longest response that is read: a day of minutes of a hundred series."""


@dataclass(frozen=True, slots=True)
class RangeSeries:
    """The labels of a series, and its points: seconds since the epoch, and a value that may be NaN or infinite."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None  # absent for native histograms


_body = msgspec.json.Decoder(ResponseBody)
_series = msgspec.json.Decoder(list[_Series])


def decode_range(status: int, body: bytes, *, max_samples: int | None = None) -> tuple[list[RangeSeries], Notices]:
    """Decode the response to a range query, by its HTTP status and whole body.

    Raises:
        PrometheusError: it is an error or malformed, or has more than `max_samples` of all series together.
    """
    try:
        response = _body.decode(body)
        if response.status != "success" or response.data is None:
            raise refusal(status, body)
        if response.data.result_type != "matrix":
            raise PrometheusResultError(f"the query's result is of type {response.data.result_type[:40]!r}")
        series = _series.decode(response.data.result)
        check_number(sum(len(one.values or ()) for one in series), max_samples)
        found = [_checked(one) for one in series]
    except UNREADABLE as error:
        raise unreadable(error) from error
    return found, response.alone()


def _checked(series: _Series) -> RangeSeries:
    if series.values is None:
        raise PrometheusResultError(f"Prometheus' result has {HISTOGRAMS}")
    try:
        points = tuple((time, float(text)) for time, text in series.values)
    except ValueError as error:
        raise PrometheusBadResponse(f"not a sample's value: {error}") from error
    if points and not (0 <= points[0][0] <= MAX_TIMESTAMP and 0 <= points[-1][0] <= MAX_TIMESTAMP):
        raise PrometheusBadResponse("not a sample's time")
    return RangeSeries(series.metric, points)
