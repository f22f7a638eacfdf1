"""The audit file: each decision as one line of JSON, on disk.

A disk may be slow, full or missing, and a FIFO may have no reader. None of this may delay a reconciliation or the end
of the process. So a daemon thread writes the records from a bounded queue. While the queue is full or the file cannot
be written, records are dropped and counted. The log reports the start of the problem once, and the number of dropped
records when the file is written again. At the end of the process the thread gets half a second (AuditLimits).

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
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, NoReturn, Self

from autoscaler.settings import DEFAULTS, AuditLimits

_log = logging.getLogger(__name__)

_ENCODING: Final = "latin-1"
"""Maps each byte of the UTF-8 JSON to one character and back, so that lengths are right."""


class AuditLogError(Exception):
    """The audit file cannot be opened; the text names the flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The file and its limits; a record that is larger than `max_bytes` gets a file of its own."""

    path: Path
    max_bytes: int
    max_backups: int
    """The number of rotated files to keep; 0: all."""


class _RotatingFile(RotatingFileHandler):
    """A rotating file that raises errors, where `logging` would print them."""

    def handleError(self, record: logging.LogRecord) -> NoReturn:  # noqa: ARG002, N802  # the name of logging.Handler
        raise  # called while an exception is handled


class AuditLog:
    """Writes records to the audit file on a thread; a context, in which the file is open.

    Args:
        settings: the file.
        limits: see AuditLimits; one record may exceed the queue's.
        on_dropped: called for each dropped record, on either thread.
    """

    def __init__(
        self,
        settings: AuditSettings,
        limits: AuditLimits = DEFAULTS.audit,
        *,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._path = settings.path
        self._limits = limits
        self._on_dropped = on_dropped
        # RotatingFileHandler rotates files that would reach the limit; here files may reach but not exceed it.
        self._file = _RotatingFile(
            settings.path, maxBytes=settings.max_bytes + 1, backupCount=1, encoding=_ENCODING, delay=True
        )
        self._file.rotator = self._rotate
        # Only the thread uses the file, so no lock: `logging` takes all handlers' locks at exit, and a thread that
        # hangs in a write would hold this one.
        self._file.lock = None
        self._hanging: TextIOWrapper | None = None
        self._queue: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._opened: Future[None] = Future()
        self._finished: Future[None] = Future()
        # Each of these two is modified on one thread only.
        self._queued_bytes = 0
        self._done_bytes = 0
        # Modified on both threads; an approximate number is sufficient for a message.
        self._dropped = 0
        self._failing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.finish()

    def write(self, line: bytes) -> None:
        """Queue a line, or drop it if too many are queued."""
        if self._queued_bytes - self._done_bytes >= self._limits.queue_bytes:
            self._drop("the disk is too slow")
            return
        self._queued_bytes += len(line)
        self._queue.put(logging.makeLogRecord({"msg": line.decode(_ENCODING)}))

    async def start(self) -> None:
        """Open the file and start the thread. If opening takes long, it continues in the background.

        Raises:
            AuditLogError: the file cannot be opened for appending.
        """
        seconds = self._limits.open_seconds
        threading.Thread(target=self._run, name="audit-log", daemon=True).start()
        try:
            if not await _done_within(seconds, self._opened):
                _log.warning("--audit-log=%s is not open after %g seconds; decisions wait for it", self._path, seconds)
        except OSError as error:
            reason = "it is a FIFO without a reader" if error.errno == errno.ENXIO else error.strerror
            raise AuditLogError(f"--audit-log={self._path}: cannot be written: {reason}") from error

    async def finish(self) -> bool:
        """Write the queued records and close the file; return True if that was done in time."""
        self._queue.put(None)
        if await _done_within(self._limits.close_seconds, self._finished):
            return True
        # At exit `logging` flushes the streams of all handlers, and this one may hang.
        self._hanging, self._file.stream = self._file.stream, None
        _log.warning("--audit-log=%s: not all decisions could be written", self._path)
        return False

    # --- on the thread

    def _run(self) -> None:
        try:
            self._open()
        except OSError as error:
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        for record in iter(self._queue.get, None):
            problem = self._emit(record)
            self._done_bytes += len(record.msg)
            if problem is not None:
                self._drop(problem)
            elif self._failing and self._queued_bytes - self._done_bytes <= self._limits.queue_bytes // 2:
                _log.warning("--audit-log=%s is written again; %d decisions were dropped", self._path, self._dropped)
                self._dropped, self._failing = 0, False
        self._close()
        self._finished.set_result(None)

    def _open(self) -> None:
        """Open the file for its owner only; ENXIO for a FIFO without a reader, for which open() would wait."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            self._file.stream = self._path.open("a", encoding=_ENCODING)
        finally:
            os.close(descriptor)

    def _close(self) -> None:
        streams = self._file.stream, self._hanging
        self._file.stream = self._hanging = None
        for stream in filter(None, streams):
            with contextlib.suppress(OSError):
                stream.close()

    def _emit(self, record: logging.LogRecord) -> str | None:
        """Write a record completely, or if possible not at all; return the error."""
        size: int | None = None
        try:
            if self._file.stream is None or not self._path.exists():  # another program may have renamed it
                self._close()
                self._open()
            size = self._path.stat().st_size
            self._file.emit(record)
        except OSError as error:
            self._close()
            with contextlib.suppress(OSError):
                if size is not None and self._path.stat().st_size > size:
                    os.truncate(self._path, size)
            return error.strerror or str(error)
        return None

    def _rotate(self, source: str, _: str) -> None:
        path = Path(source)
        if not path.stat().st_size:
            return
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
        path.rename(path.with_name(f"{path.stem}-{time}{path.suffix}"))
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        if self._settings.max_backups:
            backups = sorted(path.parent.glob(f"{path.stem}-????-??-??T??-??-??.??????{path.suffix}"))
            for old in backups[: -self._settings.max_backups]:
                with contextlib.suppress(OSError):
                    old.unlink()

    # --- on both threads

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        self._on_dropped()
        if not self._failing:
            self._failing = True
            _log.warning("--audit-log=%s cannot be written, decisions are dropped: %s", self._path, reason)


async def _done_within(seconds: float, result: Future[None]) -> bool:
    done, _ = await asyncio.wait([asyncio.wrap_future(result)], timeout=seconds)
    return any(each.result() is None for each in done)
