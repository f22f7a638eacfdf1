"""Send series to a Prometheus by remote write, native histograms, too, which OpenMetrics text cannot hold.

The messages are few and small, so they are encoded by hand. Upstream: prometheus/prompb/remote.proto and types.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


@dataclass(frozen=True, slots=True)
class NativeHistogram:
    """A native histogram of schema 0, whose bucket `i` holds values above 2**(i-1) and up to 2**i.

    `counts` are those of adjacent buckets, from `first` on.
    """

    first: int
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class WrittenSeries:
    """A series; `labels` include `__name__`, `points` are (unix seconds, number or histogram), in order of time."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float | NativeHistogram]]


async def remote_write(url: str, series: Iterable[WrittenSeries]) -> None:
    """Write the series to the Prometheus at `url`, which needs --web.enable-remote-write-receiver."""
    body = _snappy(b"".join(_field(1, _series(one)) for one in series))
    async with (
        aiohttp.ClientSession(headers=_HEADERS) as session,
        session.post(f"{url}/api/v1/write", data=body) as response,
    ):
        assert response.status in (200, 204), await response.text()


def _series(series: WrittenSeries) -> bytes:
    labels = (_field(1, _text(1, name) + _text(2, value)) for name, value in sorted(series.labels.items()))
    points = (
        _field(4, _histogram(value, time)) if isinstance(value, NativeHistogram) else _field(2, _sample(value, time))
        for time, value in series.points
    )
    return b"".join((*labels, *points))


def _sample(value: float, time: float) -> bytes:
    return _key(1, _DOUBLE) + struct.pack("<d", value) + _integer(2, round(time * 1000))


def _histogram(histogram: NativeHistogram, time: float) -> bytes:
    counts = histogram.counts
    deltas = [count - before for count, before in zip(counts, (0, *counts), strict=False)]
    return (
        _integer(1, sum(counts))
        + _key(3, _DOUBLE)
        + struct.pack("<d", 0.0)
        + _field(11, _integer(1, _zigzag(histogram.first)) + _integer(2, len(counts)))
        + _field(12, b"".join(_varint(_zigzag(delta)) for delta in deltas))
        + _integer(15, round(time * 1000))
    )


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _integer(number: int, value: int) -> bytes:
    return _key(number, _VARINT) + _varint(value)


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _snappy(content: bytes) -> bytes:
    """Return content in Snappy's block format, as one literal: not compressed. Its length takes four bytes."""
    return _varint(len(content)) + bytes((63 << 2,)) + struct.pack("<I", len(content) - 1) + content
