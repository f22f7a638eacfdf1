"""The audit file: each decision as one line of JSON, on disk.

Writing must never hold up the loop: a disk may be slow, full, or gone. So a thread of its own writes, and what it has
to write waits in a queue that holds a bounded number of lines; while the queue is full, lines are lost. The log says so
once, and again, with the number of lost lines, when the file can be written once more. The thread is a daemon, so that
a disk that hangs does not keep the process from ending.

Size and backups are limited as kube-apiserver limits its audit log, under the same names: a file that would exceed
`--audit-log-maxsize` is renamed to NAME-TIME.EXTENSION, and of those the newest `--audit-log-maxbackup` are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["AuditLog", "AuditLogError", "AuditSettings", "RotatedFile", "audit_log"]

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 10_000
"""Lines: at some 2 KB each about 20 MB."""
_CLOSE_SECONDS: Final = 0.5


class AuditLogError(Exception):
    """The audit file cannot be opened; the text names the flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Where the file is and how it is limited."""

    path: Path
    max_bytes: int
    backups: int
    """How many files that were put aside are kept; 0: all."""


class RotatedFile:
    """A file that is appended to, and put aside when it is large. Not for several threads or processes.

    Args:
        path: the file; its folder must exist.
        max_bytes: how large it may become. A single larger piece is written all the same, into a file of its own.
        backups: how many files that were put aside are kept; 0: all.

    Raises:
        OSError: the file cannot be opened for appending.
    """

    def __init__(self, path: Path, *, max_bytes: int, backups: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._file = self._open()

    def append(self, data: bytes) -> None:
        """Write all of `data`, or nothing.

        Raises:
            OSError: it could not be written.
        """
        size = os.fstat(self._file).st_size
        if size and size + len(data) > self._max_bytes:
            self._rotate()
            size = 0
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # no half lines, where the disk lets us
                os.ftruncate(self._file, size)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _rotate(self) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
        with contextlib.suppress(FileNotFoundError):  # somebody else has put it aside
            self._path.rename(self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}"))
        opened = self._open()
        os.close(self._file)
        self._file = opened
        if self._backups:
            aside = sorted(self._path.parent.glob(f"{self._path.stem}-????-??-??T??-??-??.??????{self._path.suffix}"))
            for old in aside[: -self._backups]:
                with contextlib.suppress(OSError):
                    old.unlink()


class AuditLog:
    """Lines on their way to a file. `write` never waits; `audit_log` owns the thread that does."""

    def __init__(self, file: RotatedFile, *, name: str, most_waiting: int = _MOST_WAITING) -> None:
        self._file = file
        self._name = name
        self._waiting: queue.Queue[bytes | None] = queue.Queue()
        self._most_waiting = most_waiting
        self._thread = threading.Thread(target=self._write_all, name="audit-log", daemon=True)
        self._lost = 0
        self._complained = False

    def write(self, line: bytes) -> None:
        """Write a line, soon. If too many are waiting already, it is lost."""
        if self._waiting.qsize() >= self._most_waiting:
            self._lose("the disk does not keep up")
        else:
            self._waiting.put(line)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def finish(self, seconds: float) -> bool:
        """Write what is waiting, and close the file; whether that was done in time. Blocks."""
        self._waiting.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._file.append(line + b"\n")
            except OSError as error:
                self._lose(error.strerror or str(error))
            else:
                self._recovered()
        self._file.close()

    def _lose(self, why: str) -> None:
        # Either thread may count here; a number that is one off is good enough for a message.
        self._lost += 1
        if not self._complained:
            self._complained = True
            _log.warning("--audit-log=%s cannot be written, decisions are missing from it: %s", self._name, why)

    def _recovered(self) -> None:
        if self._complained and self._waiting.qsize() <= self._most_waiting // 2:
            _log.warning("--audit-log=%s is written again; %d decisions are missing", self._name, self._lost)
            self._lost, self._complained = 0, False


@contextlib.asynccontextmanager
async def audit_log(settings: AuditSettings) -> AsyncIterator[AuditLog]:
    """An audit file that is written while the context lasts.

    Raises:
        AuditLogError: the file cannot be opened for appending.
    """
    path = settings.path
    try:
        file = await asyncio.to_thread(RotatedFile, path, max_bytes=settings.max_bytes, backups=settings.backups)
    except OSError as error:
        raise AuditLogError(f"--audit-log={path}: cannot be written: {error.strerror}") from error
    log = AuditLog(file, name=str(path))
    log.start()
    try:
        yield log
    finally:
        if not await asyncio.to_thread(log.finish, _CLOSE_SECONDS):
            _log.warning("--audit-log=%s: not all decisions could be written", path)
