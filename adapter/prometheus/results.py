"""Decode and check responses to queries; a proxy or another server can send anything.

A response has warnings beside its result. Prometheus marks what its engine says with "PromQL". Any other warning is
about what could not be read: of a store, of a server for remote read, or beyond a limit. VictoriaMetrics has
`isPartial` instead.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from adapter.gil import releasing_gil
from adapter.prometheus.errors import PrometheusBadResponse, PrometheusResultError, refusal
from adapter.prometheus.long_responses import UNREADABLE, ListReader, unreadable

MAX_TIMESTAMP = 253_402_300_799.0
"""The end of the year 9999, after which RFC 3339 has no dates."""
HISTOGRAMS = (
    "native histograms, which have no single value: query histogram_quantile(0.9, ...), histogram_avg(...),"
    " histogram_sum(...) or histogram_count(...) of them"
)


_OF_THE_ENGINE = re.compile(r"PromQL (?:warning|info): |[0-9]+ more (?:warning|info) annotations omitted$")


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The value of one series; not tracked by the garbage collector, because there can be very many.

    `labels` includes `__name__` if the query keeps it. `timestamp` is in seconds since the epoch. `value` may be NaN or
    infinite.
    """

    labels: Mapping[str, str]
    timestamp: float
    value: float


class Notices(msgspec.Struct, rename="camel"):
    """The warnings and notes of a response; others in its place are malformed."""

    warnings: list[str] | None = None
    infos: list[str] | None = None
    is_partial: bool | None = None

    @property
    def partial(self) -> str:
        """Why the response is partial; "" if it is complete."""
        if self.is_partial:
            return "isPartial is true"
        return next((text for text in self.warnings or () if not _OF_THE_ENGINE.match(text)), "")

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings and notes."""
        return (*(self.warnings or ()), *(self.infos or ()))

    def alone(self) -> Notices:
        """Return the notices without the response."""
        return Notices(self.warnings, self.infos, self.is_partial)


@dataclass(frozen=True, slots=True)
class Vector:
    """The values of any number of series, in the order of their labels.

    A scalar is a sample without labels, with `is_scalar`. `memory` is the approximate size in bytes (0: unknown),
    `seconds` the duration of the query, `notices` what the server says of it.
    """

    samples: tuple[Sample, ...]
    memory: int = field(default=0, compare=False)
    is_scalar: bool = field(default=False, kw_only=True)
    seconds: float = field(default=0.0, compare=False, kw_only=True)
    notices: Notices = field(default_factory=Notices, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class RangeSeries:
    """The labels of a series, and its points: seconds since the epoch, and a value that may be NaN or infinite."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


def scalar(timestamp: float, value: float) -> Vector:
    """Return the result of a query that makes a number."""
    return Vector((Sample({}, timestamp, value),), is_scalar=True)


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Body(Notices, kw_only=True):
    """A response of Prometheus to a query."""

    status: str
    data: _Data | None = None


class _Sample(msgspec.Struct, gc=False):
    metric: dict[str, str]
    # Absent for native histograms, which have "histogram" instead.
    value: tuple[float, str] | None = None


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] | None = None  # absent for native histograms


_OK = 200
# How many samples are sorted at once.
_PART = 1_000
# The bytes of a sample without its text, and those of each label; measured with tracemalloc.
_SAMPLE_BYTES = 150
_LABEL_BYTES = 80
_body = msgspec.json.Decoder(_Body)
_samples = msgspec.json.Decoder(list[_Sample])
_matrix = msgspec.json.Decoder(list[_Series])
_scalar = msgspec.json.Decoder(tuple[float, str])
_TYPE = re.compile(rb'"resultType"\s*:\s*"([^"\\]{0,40})"')


def decode(body: bytes, *, max_samples: float = math.inf) -> Vector:
    """Decode the whole body of a successful response to an instant query.

    Raises:
        PrometheusError: it is an error or malformed, or has more than `max_samples`.
    """
    notices, found, is_scalar = _read(body)
    _check_number(len(found), max_samples)
    memory = _memory(found, len(body))
    return Vector(tuple(sorted(found, key=sample_order)), memory, is_scalar=is_scalar, notices=notices)


def decode_range(body: bytes, *, max_samples: float = math.inf) -> tuple[list[RangeSeries], Notices]:
    """Decode the whole body of a successful response to a range query.

    Raises:
        PrometheusError: it is an error or malformed, or has more than `max_samples` of all series together.
    """
    try:
        notices, kind, result = _opened(body)
        if kind != "matrix":
            raise PrometheusResultError(f"the query's result is of type {kind[:40]!r}")
        series = _matrix.decode(result)
        _check_number(sum(len(one.values or ()) for one in series), max_samples)
        found = []
        for one in series:
            if one.values is None:
                raise PrometheusResultError(f"Prometheus' result has {HISTOGRAMS}")
            found.append(RangeSeries(one.metric, tuple(map(_point, one.values))))
    except UNREADABLE as error:
        raise unreadable(error) from error
    return found, notices


class VectorReader(ListReader[Vector]):
    """Decodes a vector."""

    start = re.compile(rb'"result"\s*:\s*\[')
    # Inside a string this cannot match: a quote there follows a backslash, and no word follows a closing quote.
    next = re.compile(rb'\}\s*,\s*(\{)\s*"(?:metric|value|histogram)"\s*:')

    def __init__(self, *, max_samples: float = math.inf) -> None:
        """A result of more than `max_samples` is a PrometheusResultError."""
        super().__init__()
        self._samples: list[Sample] = []
        self._memory = 0
        self._max_samples = max_samples

    def check_head(self, head: bytes) -> None:
        """Raise PrometheusResultError unless it is the head of a vector."""
        kind = _TYPE.search(head)
        if kind is not None and kind[1] != b"vector":
            raise _no_vector(kind[1].decode(errors="replace"))

    def take(self, entries: bytes) -> int:
        """See ListReader.take."""
        samples = _decoded(entries)
        self._samples += samples
        _check_number(len(self._samples), self._max_samples)
        taken = _memory(samples, len(entries))
        self._memory += taken
        return taken

    def clear(self) -> None:
        """See ListReader.clear."""
        super().clear()
        self._samples = []

    def finish(self) -> Vector:
        """Return the whole result; see ListReader.finish."""
        text = self.rest
        notices, found, is_scalar = _read(text)
        samples, memory = self._samples + found, self._memory + _memory(found, len(text))
        self._samples = []
        _check_number(len(samples), self._max_samples)
        parts = [
            sorted(releasing_gil(samples[start : start + _PART]), key=sample_order)
            for start in range(0, len(samples), _PART)
        ]
        del samples
        ordered = tuple(releasing_gil(heapq.merge(*parts, key=sample_order)))
        return Vector(ordered, memory, is_scalar=is_scalar, notices=notices)


def _read(body: bytes) -> tuple[Notices, list[Sample], bool]:
    """Return the notices of a body, its samples in the order in which they arrived, and whether it is a scalar."""
    try:
        notices, kind, result = _opened(body)
        if kind == "scalar":
            return notices, [Sample({}, *_point(_scalar.decode(result)))], True
        if kind != "vector":
            raise _no_vector(kind)
        return notices, _decoded(result), False
    except UNREADABLE as error:
        raise unreadable(error) from error


def _opened(body: bytes) -> tuple[Notices, str, msgspec.Raw]:
    """Return the notices of a response, the type of its result, and the result."""
    response = _body.decode(body)
    if response.status != "success" or response.data is None:
        raise refusal(_OK, body)
    return response.alone(), response.data.result_type, response.data.result


def _decoded(entries: bytes | msgspec.Raw) -> list[Sample]:
    samples = []
    for entry in _samples.decode(entries):
        if entry.value is None:
            raise PrometheusResultError(f"Prometheus' result has {HISTOGRAMS}")
        samples.append(Sample(entry.metric, *_point(entry.value)))
    return samples


def _check_number(samples: int, most: float) -> None:
    """Raise PrometheusResultError if a result has more samples than it may have."""
    if samples > most:
        raise PrometheusResultError(
            f"the result has more than {most} samples, the limit of --tenant-max-samples; aggregate more, as by sum()"
        )


def _no_vector(kind: str) -> PrometheusResultError:
    return PrometheusResultError(f"the query's result is of type {kind[:40]!r}, not a vector")


def _memory(samples: Iterable[Sample], text: int) -> int:
    """Return the bytes of memory that samples take, about; `text` is the length of their JSON."""
    return text + sum(_SAMPLE_BYTES + _LABEL_BYTES * len(sample.labels) for sample in samples)


def sample_order(sample: Sample) -> str:
    """Return the key that sorts samples by their labels: Prometheus promises no order, and responses must be stable."""
    return "\0".join(chain.from_iterable(sorted(sample.labels.items())))


def _point(pair: tuple[float, str]) -> tuple[float, float]:
    timestamp, text = pair
    try:
        value = float(text)
    except ValueError as error:
        raise PrometheusBadResponse(f"not a sample's value: {text[:40]!r}") from error
    if not 0 <= timestamp <= MAX_TIMESTAMP:
        raise PrometheusBadResponse(f"not a sample's time: {timestamp!r}")
    return timestamp, value
