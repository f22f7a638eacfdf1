"""The audit file: each decision as one line of JSON, on disk.

A disk may be slow, full or gone, and a FIFO may have no reader; none of this may delay a reconciliation or the end of
the process. So records wait in a bounded queue for a daemon thread that writes them (`QueueListener`). While the queue
is full or the file cannot be written, records are dropped. They are counted, and the log reports that once, and their
number once the file can be written again. At the end of the process the thread has half a second.

Files are rotated as kube-apiserver rotates its audit log: a file that would exceed `--audit-log-maxsize` is renamed to
NAME-TIME.EXTENSION, and the newest `--audit-log-maxbackup` of these are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from logging.handlers import QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_MAX_QUEUED_BYTES: Final = 32 * 2**20
_OPEN_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 0.5
_ENCODING: Final = "latin-1"
"""Maps each byte of the UTF-8 JSON to one character and back, so that lengths are right."""


class AuditLogError(Exception):
    """The audit file cannot be opened; the text names the flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The file and its limits."""

    path: Path
    max_bytes: int
    max_backups: int
    """The number of rotated files to keep; 0: all."""


class _UnbufferedFile(FileIO):
    """A file that appends a text completely or, if the disk allows, not at all."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", opener=_open_without_waiting)

    def write(self, text: str) -> int:  # type: ignore[override]  # has the interface of a text file
        data = text.encode(_ENCODING)
        size = os.fstat(self.fileno()).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.write_bytes(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self.truncate(size)
            raise
        return len(data)

    def write_bytes(self, data: memoryview) -> int:
        """Write some of the bytes; return their number."""
        return super().write(data)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file that only its owner may read; ENXIO for a FIFO without a reader, for which open() would wait."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
    os.set_blocking(descriptor, True)
    return descriptor


class _NoLock(contextlib.nullcontext[None]):
    """A lock that is always free."""

    def acquire(self) -> bool:
        """Do nothing."""
        return True

    def release(self) -> None:
        """Do nothing."""


class AuditFile(RotatingFileHandler):
    """A file that is appended to and rotated.

    Only one thread uses it, and it has no lock: at the end of the process `logging` takes the locks of all handlers,
    and a thread that hangs in a write would hold this one.

    Args:
        settings: the file and its limits; a record that is larger than `max_bytes` gets a file of its own.
        on_done: called after each record with its size in bytes, and with the error if it was dropped.
    """

    stream: _UnbufferedFile | None  # type: ignore[assignment]  # has the methods that RotatingFileHandler uses

    def __init__(self, settings: AuditSettings, *, on_done: Callable[[int, str | None], None]) -> None:
        # RotatingFileHandler rotates a file that would reach the limit; ours may reach but not exceed it.
        super().__init__(settings.path, maxBytes=settings.max_bytes + 1, delay=True)
        self._path = settings.path
        self._max_backups = settings.max_backups
        self._on_done = on_done
        self._error: str | None = None

    def open(self) -> None:
        """Open the file if it is not open, or if another program has renamed it.

        Raises:
            OSError: it cannot be opened for appending; ENXIO: it is a FIFO without a reader.
        """
        if self.stream is not None and not self._path.exists():
            self.close_stream()
        if self.stream is None:
            self.stream = _UnbufferedFile(self._path)

    def close_stream(self) -> None:
        """Close the file until the next record."""
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None

    def createLock(self) -> None:  # noqa: N802  # the name of logging.Handler
        """Use no lock."""
        self.lock = _NoLock()  # type: ignore[assignment]  # has the interface of a lock

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._error = None
        super().emit(record)
        self._on_done(len(record.msg), self._error)

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  # as above
        """Open the file, and check its size."""
        self.open()
        return bool(super().shouldRollover(record))

    def doRollover(self) -> None:  # noqa: N802  # as above
        """Rotate the file."""
        if not self._path.stat().st_size:
            return
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
        self._path.rename(self._path.with_name(f"{self._path.stem}-{time}{self._path.suffix}"))
        self.open()
        if self._max_backups:
            backups = sorted(self._path.parent.glob(f"{self._path.stem}-????-??-??T??-??-??.??????{self._path.suffix}"))
            for old in backups[: -self._max_backups]:
                with contextlib.suppress(OSError):
                    old.unlink()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # as above
        """Drop the current record, and reopen the file for the next one."""
        self.close_stream()
        error = sys.exception()
        self._error = (error.strerror if isinstance(error, OSError) else None) or str(error)

    def close(self) -> None:
        """Do nothing: `logging` calls this at the end of the process, and closing a file may hang."""


class AuditLog:
    """Writes records to the audit file on a thread; `audit_log` opens and closes it.

    Args:
        settings: the file and its limits.
        on_dropped: called for each dropped record, on either thread.
        max_queued_bytes: the memory for records that wait; one more record may wait.
    """

    def __init__(
        self,
        settings: AuditSettings,
        *,
        on_dropped: Callable[[], None] = lambda: None,
        max_queued_bytes: int = _MAX_QUEUED_BYTES,
    ) -> None:
        self._name = str(settings.path)
        self._max_queued_bytes = max_queued_bytes
        self._on_dropped = on_dropped
        self._queue: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._file = AuditFile(settings, on_done=self._done)
        self._listener = QueueListener(self._queue, self._file)
        self._started = False
        # Each of these two is changed on one thread only.
        self._queued_bytes = 0
        self._done_bytes = 0
        # Changed on both threads; an inexact number is good enough for a message.
        self._dropped = 0
        self._failing = False

    def write(self, line: bytes) -> None:
        """Queue a line, or drop it if too many are queued."""
        if self._waiting_bytes() >= self._max_queued_bytes:
            self._drop("the disk is too slow")
            return
        self._queued_bytes += len(line)
        self._queue.put(logging.makeLogRecord({"msg": line.decode(_ENCODING)}))

    async def start(self, *, seconds: float = _OPEN_SECONDS) -> None:
        """Open the file and start the thread. If opening takes longer than `seconds`, it continues in the background.

        Raises:
            AuditLogError: the file cannot be opened for appending.
        """

        def start() -> None:
            self._file.open()
            self._listener.start()
            self._started = True

        try:
            if not await _run_within(seconds, start):
                _log.warning("--audit-log=%s is not open after %g seconds; decisions wait for it", self._name, seconds)
        except OSError as error:
            reason = "it is a FIFO without a reader" if error.errno == errno.ENXIO else error.strerror
            raise AuditLogError(f"--audit-log={self._name}: cannot be written: {reason}") from error

    async def finish(self, *, seconds: float = _CLOSE_SECONDS) -> bool:
        """Write the queued records and close the file; return True if that was done within `seconds`."""

        def finish() -> None:
            self._listener.stop()
            self._file.close_stream()

        if self._started and await _run_within(seconds, finish):
            return True
        _log.warning("--audit-log=%s: not all decisions could be written", self._name)
        return False

    def _waiting_bytes(self) -> int:
        return self._queued_bytes - self._done_bytes

    def _done(self, size: int, error: str | None) -> None:
        self._done_bytes += size
        if error is not None:
            self._drop(error)
        elif self._failing and self._waiting_bytes() <= self._max_queued_bytes // 2:
            _log.warning("--audit-log=%s is written again; %d decisions were dropped", self._name, self._dropped)
            self._dropped, self._failing = 0, False

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        self._on_dropped()
        if not self._failing:
            self._failing = True
            _log.warning("--audit-log=%s cannot be written, decisions are dropped: %s", self._name, reason)


@contextlib.asynccontextmanager
async def audit_log(
    settings: AuditSettings, *, on_dropped: Callable[[], None] = lambda: None
) -> AsyncIterator[AuditLog]:
    """Write an audit file for the duration of the context; `on_dropped` is called for each dropped record.

    Raises:
        AuditLogError: the file cannot be opened for appending.
    """
    log = AuditLog(settings, on_dropped=on_dropped)
    await log.start()
    try:
        yield log
    finally:
        await log.finish()


async def _run_within(seconds: float, function: Callable[[], None]) -> bool:
    """Run a function that may hang on a daemon thread; return True if it has returned within `seconds`.

    Raises:
        OSError: from the function.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[OSError | None] = loop.create_future()

    def run() -> None:
        result: OSError | None = None
        try:
            function()
        except OSError as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(done.set_result, result)

    threading.Thread(target=run, name="audit-log", daemon=True).start()
    finished, _ = await asyncio.wait([done], timeout=seconds)
    if finished and (error := done.result()) is not None:
        raise error
    return bool(finished)
