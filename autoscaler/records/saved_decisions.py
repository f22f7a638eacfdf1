"""The form in which the kept decisions are saved for the next process: gzipped lines of JSON, the newest first."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from autoscaler.records.record import VERSION, DecisionRecord

_MAX_DECODED_BYTES: Final = 64 * 2**20  # protects against decompression bombs
_GZIP: Final = 16 + zlib.MAX_WBITS
_decoder = msgspec.json.Decoder(DecisionRecord)


def encode_decisions(newest_first: Sequence[bytes], *, limit_bytes: int) -> bytes:
    """Return as many of the records, which are JSON, as fit; empty: none do."""
    number = len(newest_first)
    while number:
        content = gzip.compress(b"\n".join(newest_first[:number]), compresslevel=6, mtime=0)
        if len(content) <= limit_bytes:
            return content
        number = min(number - 1, number * limit_bytes // len(content))
    return b""


def decode_decisions(content: bytes) -> list[DecisionRecord]:
    """Return the records, the oldest first; without those that this release cannot read."""
    inflating = zlib.decompressobj(_GZIP)
    records: list[DecisionRecord] = []
    with contextlib.suppress(zlib.error):
        for line in reversed(inflating.decompress(content, _MAX_DECODED_BYTES).splitlines()):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                records.append(_decoder.decode(line))
    return [record for record in records if record.version == VERSION]
