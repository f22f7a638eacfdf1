"""A process whose wall clock a test sets: libfaketime, which Debian's package has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from playground.binaries import HOME
from playground.debian import unpack

_PACKAGE = "libfaketime"
_LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"


class FakeClock:
    """The wall clock of a process, which starts with `variables` in its environment; other clocks stay real."""

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self._library = library
        self.set(0)

    @classmethod
    async def create(cls, file: Path) -> FakeClock:
        """Return a clock that `file` controls. Raises DebianError if libfaketime cannot be downloaded."""
        return cls(file, await asyncio.to_thread(_library))

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of the process."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: int) -> None:
        """Set the clock so many seconds ahead of the real one; negative: behind."""
        scratch = self._file.with_suffix(".new")
        scratch.write_text(f"{seconds:+d}\n")
        scratch.replace(self._file)


def _library() -> Path:
    installed = next(Path("/").glob(_LIBRARY), None)
    return installed or next(unpack(_PACKAGE, HOME).glob(_LIBRARY))
