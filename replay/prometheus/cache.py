"""Chunks of range queries on disk, so that a replay that was interrupted, or is repeated, continues from there.

A file holds the values of one chunk: a checksum, and doubles, NaN where there is no value. Files are written under
another name and renamed. One that is damaged counts as missing. The least recently used ones are removed when all
together exceed the limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import zlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".chunk"
_VERSION: Final = "1"
_CHECKSUM_BYTES: Final = 4
_LIMIT: Final = 256 * 1024 * 1024


def default_folder() -> Path:
    """Return the folder for cached files, by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "milliscale" / "replay"


class ChunkCache:
    """The cached chunks in a folder, which is created when the first one is stored; `limit` is in bytes.

    A folder that cannot be written is no error: nothing is cached then, and `problem` says why.
    """

    def __init__(self, folder: Path, *, limit: int = _LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self.problem = ""

    def get(self, key: Iterable[object], count: int) -> array[float] | None:
        """Return the `count` values of a chunk; None if it is not cached, or damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        checksum, packed = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
        values: array[float] = array("d")
        if len(packed) != count * values.itemsize or checksum != _checksum(packed):
            return None
        values.frombytes(packed)
        return values

    def put(self, key: Iterable[object], values: array[float]) -> None:
        """Store a chunk."""
        packed = values.tobytes()
        scratch = ""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as file:
                scratch = file.name
                file.write(_checksum(packed) + packed)
            Path(scratch).replace(self._path(key))
        except OSError as error:
            self.problem = f"{self._folder} cannot be written: {error.strerror or error}"
            with contextlib.suppress(OSError):
                Path(scratch).unlink()

    def prune(self) -> None:
        """Remove the least recently used chunks beyond the limit."""
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size

    def _path(self, key: Iterable[object]) -> Path:
        text = "\0".join(map(str, (_VERSION, sys.byteorder, *key)))
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}{_SUFFIX}"


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")
