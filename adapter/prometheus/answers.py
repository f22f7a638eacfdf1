"""What an instant query answers, checked: a proxy, an outage or an impostor can put anything there."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, TypeVar

import msgspec

from adapter.prometheus.errors import PrometheusBadAnswer, PrometheusResultError, refusal
from adapter.turns import leaving_turns

__all__ = ["Answer", "Sample", "Scalar", "Vector", "decode"]

T = TypeVar("T")

_MAX_TIMESTAMP = 253_402_300_799.0  # the end of the year 9999, after which RFC 3339 has no dates


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One series' value; a struct that the garbage collector need not look at, because there can be very many.

    Attributes:
        labels: every label, `__name__` too where the query kept it.
        timestamp: seconds since the epoch.
        value: may be NaN or infinite.
    """

    labels: Mapping[str, str]
    timestamp: float
    value: float


@dataclass(frozen=True, slots=True)
class Vector:
    """The values of any number of series, in the order of their labels; `seconds` is what the query took."""

    samples: tuple[Sample, ...]
    seconds: float = field(default=0.0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number without labels; `seconds` is a Vector's."""

    timestamp: float
    value: float
    seconds: float = field(default=0.0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, and what Prometheus remarked about it."""

    result: Vector | Scalar
    warnings: tuple[str, ...]


class _Turns(Protocol):
    """Goes through things, and may pause."""

    def __call__(self, items: Iterable[T], /) -> Iterator[T]: ...


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Body(msgspec.Struct):
    status: str
    data: _Data | None = None
    warnings: list[str] | None = None


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    # Native histograms have "histogram" in its place, and no single value.
    value: tuple[float, str] | None = None


# How many samples are sorted at once.
_PART = 1_000
_body = msgspec.json.Decoder(_Body)
_raw_vector = msgspec.json.Decoder(list[msgspec.Raw])
_sample = msgspec.json.Decoder(_Sample)
_scalar = msgspec.json.Decoder(tuple[float, str])


def decode(status: int, body: bytes, *, in_thread: bool = False) -> Answer:
    """Read the answer to an instant query.

    Args:
        status: the answer's HTTP status.
        body: the answer's body.
        in_thread: pause now and then, so that the loop has its turns.

    Raises:
        PrometheusError: of the kind that the answer shows.
    """
    if not 200 <= status < 300:
        raise refusal(status, body)
    try:
        answer = _body.decode(body)
        if answer.status != "success" or answer.data is None:
            raise refusal(status, body)
        result = _result(answer.data, leaving_turns if in_thread else iter)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PrometheusBadAnswer(f"Prometheus' answer cannot be read: {error}") from error
    return Answer(result, tuple(answer.warnings or ()))


def _result(data: _Data, turns: _Turns) -> Vector | Scalar:
    if data.result_type == "scalar":
        return Scalar(*_point(_scalar.decode(data.result)))
    if data.result_type != "vector":
        raise PrometheusResultError(f"the query's result is of type {data.result_type[:40]!r}, not a vector")
    # One by one, because a whole list of a hundred thousand would hold the interpreter for longer than others can wait.
    written = (_sample.decode(raw) for raw in turns(_raw_vector.decode(data.result)))
    samples = [Sample(sample.metric, *_point(sample.value)) for sample in written if sample.value is not None]
    # Prometheus promises no order. This one makes answers stable, and "the first" of several well-defined.
    # In parts, for the same reason.
    parts = [sorted(turns(samples[start : start + _PART]), key=_order) for start in range(0, len(samples), _PART)]
    if len(parts) <= 1:
        return Vector(tuple(chain.from_iterable(parts)))
    return Vector(tuple(turns(heapq.merge(*parts, key=_order))))


def _order(sample: Sample) -> str:
    return "\0".join(chain.from_iterable(sorted(sample.labels.items())))


def _point(pair: tuple[float, str]) -> tuple[float, float]:
    timestamp, text = pair
    try:
        value = float(text)
    except ValueError as error:
        raise PrometheusBadAnswer(f"not a sample's value: {text[:40]!r}") from error
    if not 0 <= timestamp <= _MAX_TIMESTAMP:
        raise PrometheusBadAnswer(f"not a sample's time: {timestamp!r}")
    return timestamp, value
