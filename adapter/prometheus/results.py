"""Decode and check responses to instant queries; a proxy or another server can send anything."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from adapter.gil import releasing_gil
from adapter.prometheus.errors import PrometheusBadResponse, PrometheusResultError, refusal

_MAX_TIMESTAMP = 253_402_300_799.0  # the end of the year 9999, after which RFC 3339 has no dates


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The value of one series; not tracked by the garbage collector, because there can be very many.

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
    """The values of any number of series, in the order of their labels.

    Attributes:
        samples: the values.
        memory: the bytes that they take, about; 0 where unknown.
        seconds: the duration of the query.
    """

    samples: tuple[Sample, ...]
    memory: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number without labels; `seconds` as of a Vector."""

    timestamp: float
    value: float
    seconds: float = field(default=0.0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Result:
    """A result with Prometheus' warnings."""

    value: Vector | Scalar
    warnings: tuple[str, ...]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Body(msgspec.Struct):
    status: str
    data: _Data | None = None
    warnings: list[str] | None = None


class _Sample(msgspec.Struct, gc=False):
    metric: dict[str, str]
    # Native histograms have "histogram" in its place, and no single value.
    value: tuple[float, str] | None = None


# How many samples are sorted at once.
_PART = 1_000
# What a sample takes in memory beside its text, and what each of its labels takes; measured with tracemalloc.
_SAMPLE_BYTES = 150
_LABEL_BYTES = 80
_MAX_HEAD = 64 * 1024
_MAX_ENTRY = 256 * 1024
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_body = msgspec.json.Decoder(_Body)
_samples = msgspec.json.Decoder(list[_Sample])
_scalar = msgspec.json.Decoder(tuple[float, str])
_RESULT = re.compile(rb'"result"\s*:\s*\[')
_TYPE = re.compile(rb'"resultType"\s*:\s*"([^"\\]{0,40})"')
# The end of one entry and the beginning of the next. It cannot be inside a string: there the quote would follow a
# backslash, or end the string, and then no word could follow it.
_NEXT = re.compile(rb'\}\s*,\s*(\{)\s*"(?:metric|value|histogram)"\s*:')


def decode(status: int, body: bytes) -> Result:
    """Decode the response to an instant query.

    Args:
        status: the HTTP status.
        body: the whole body.

    Raises:
        PrometheusError: see the package.
    """
    if not 200 <= status < 300:
        raise refusal(status, body)
    envelope, found = _read(status, body)
    if isinstance(found, Scalar):
        return Result(found, envelope)
    return Result(Vector(tuple(sorted(found, key=sample_order)), memory=_memory(found, len(body))), envelope)


class VectorReader:
    """Decodes a vector while it arrives, so its text is never in memory as a whole."""

    def __init__(self) -> None:
        self._head: bytes | None = None  # up to the bracket of the list
        self._rest = b""
        self._samples: list[Sample] = []
        self._memory = 0

    def feed(self, piece: bytes) -> int:
        """Decode the next piece; return the bytes of memory that its samples take, about.

        Raises:
            PrometheusError: it is no part of a vector.
        """
        self._rest += piece
        if self._head is None and not self._find_list():
            return 0
        position, end = 0, 0
        # One by one: what finditer leaves behind in Python 3.11 keeps memory from being given back.
        while (found := _NEXT.search(self._rest, position)) is not None:
            end, position = found.start() + 1, found.start(1)
        if not end:
            if len(self._rest) > _MAX_ENTRY:
                raise PrometheusBadResponse("Prometheus' response cannot be read: an entry is too long")
            return 0
        block, self._rest = self._rest[:end], self._rest[position:]
        try:
            samples = _decoded(b"[" + block + b"]")
        except _UNREADABLE as error:
            raise PrometheusBadResponse(f"Prometheus' response cannot be read: {error}") from error
        self._samples += samples
        taken = _memory(samples, len(block))
        self._memory += taken
        return taken

    def clear(self) -> None:
        """Drop the samples, which tracebacks of errors would keep."""
        self._samples, self._rest = [], b""

    def finish(self) -> Result:
        """Return the whole result after the last piece. It takes long and releases the GIL: call it in a thread.

        Raises:
            PrometheusError: see the package.
        """
        text = (self._head or b"") + self._rest
        warnings, found = _read(200, text)
        if isinstance(found, Scalar):
            return Result(found, warnings)
        samples, memory = self._samples + found, self._memory + _memory(found, len(text))
        self._samples = []
        parts = [
            sorted(releasing_gil(samples[start : start + _PART]), key=sample_order)
            for start in range(0, len(samples), _PART)
        ]
        del samples
        ordered = tuple(releasing_gil(heapq.merge(*parts, key=sample_order)))
        return Result(Vector(ordered, memory=memory), warnings)

    def _find_list(self) -> bool:
        """Look for the beginning of the list; return whether it has arrived."""
        found = _RESULT.search(self._rest, 0, _MAX_HEAD)
        if found is None:
            if len(self._rest) > _MAX_HEAD:
                raise PrometheusBadResponse("Prometheus' response cannot be read: it begins with no result")
            return False
        self._head, self._rest = self._rest[: found.end()], self._rest[found.end() :]
        kind = _TYPE.search(self._head)
        if kind is not None and kind[1] != b"vector":
            raise _no_vector(kind[1].decode(errors="replace"))
        return True


def _read(status: int, body: bytes) -> tuple[tuple[str, ...], list[Sample] | Scalar]:
    """Return the warnings and the result of a body; samples in the order in which they arrived."""
    try:
        response = _body.decode(body)
        if response.status != "success" or response.data is None:
            raise refusal(status, body)
        warnings = tuple(response.warnings or ())
        if response.data.result_type == "scalar":
            return warnings, Scalar(*_point(_scalar.decode(response.data.result)))
        if response.data.result_type != "vector":
            raise _no_vector(response.data.result_type)
        return warnings, _decoded(response.data.result)
    except _UNREADABLE as error:
        raise PrometheusBadResponse(f"Prometheus' response cannot be read: {error}") from error


def _decoded(entries: bytes | msgspec.Raw) -> list[Sample]:
    return [Sample(entry.metric, *_point(entry.value)) for entry in _samples.decode(entries) if entry.value is not None]


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
    if not 0 <= timestamp <= _MAX_TIMESTAMP:
        raise PrometheusBadResponse(f"not a sample's time: {timestamp!r}")
    return timestamp, value
