"""The audit file: each decision as one line of JSON, on disk.

Nothing about the file holds up a reconciliation or the end of the process: a disk may be slow, full or gone, a FIFO may
have no reader. So records go through a bounded queue (`QueueHandler`) to a thread that writes them (`QueueListener`).
While the queue is full or the file cannot be written, records are lost. They are counted, and the log says so once, and
again, with their number, when the file can be written once more. The thread is a daemon, and at the end it has half a
second.

Size and backups are limited as kube-apiserver limits its audit log, under the same names: a file that would exceed
`--audit-log-maxsize` is renamed to NAME-TIME.EXTENSION, and of those the newest `--audit-log-maxbackup` are kept.
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
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 10_000
"""Records: at some 2 KB each about 20 MB."""
_MOST_BYTES_WAITING: Final = 32 * 2**20
"""That of an HPA with hundreds of metrics has more than 100 KB."""
_OPEN_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 0.5
# Of JSON in UTF-8 each byte becomes one character and that byte again, so that sizes are right.
_ENCODING: Final = "latin-1"


class AuditLogError(Exception):
    """The audit file cannot be opened; the text names the flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Where the file is and how it is limited."""

    path: Path
    max_bytes: int
    max_backups: int
    """The number of rotated files to keep; 0: all."""


class _WholeRecords(FileIO):
    """A file without a buffer, which takes a record whole or not at all, where the disk lets it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "a", opener=_open_without_waiting)

    def write(self, text: str) -> int:  # type: ignore[override]  # as a text file has it
        data = text.encode(_ENCODING)
        size = os.fstat(self.fileno()).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.write_some(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self.truncate(size)
            raise
        return len(data)

    def write_some(self, data: memoryview) -> int:
        """What `write` of a file does: how many bytes were written."""
        return super().write(data)


class _NoLock(contextlib.nullcontext[None]):
    """A lock that is always free."""

    def acquire(self) -> bool:
        """Do nothing."""
        return True

    def release(self) -> None:
        """Do nothing."""


class AuditFile(RotatingFileHandler):
    """A file that is appended to, and put aside when it is large.

    One thread at a time uses it, so it has no lock: when the process ends `logging` takes the locks of all handlers,
    and a thread that hangs in a write would still hold this one.

    Args:
        settings: which file; its folder must exist. A record that is larger than `max_bytes` gets a file of its own.
        on_written: called after each record that was written.
        on_lost: called with the reason for each that was not.
    """

    stream: _WholeRecords | None  # type: ignore[assignment]  # all that RotatingFileHandler needs of a text file

    def __init__(
        self, settings: AuditSettings, *, on_written: Callable[[], None], on_lost: Callable[[str], None]
    ) -> None:
        # RotatingFileHandler begins a new file where the old one would reach the limit, not where it would exceed it.
        super().__init__(settings.path, maxBytes=settings.max_bytes + 1, delay=True)
        self._path = settings.path
        self._backups = settings.max_backups
        self._on_written = on_written
        self._on_lost = on_lost
        self._failed = False

    def open(self) -> None:
        """Open the file, if it is not open.

        Raises:
            OSError: it cannot be opened for appending; ENXIO: it is a FIFO that nobody reads.
        """
        if self.stream is not None and not self._path.exists():  # somebody else has put it aside
            self.close_stream()
        if self.stream is None:
            self.stream = _WholeRecords(self._path)

    def createLock(self) -> None:  # noqa: N802  # `logging`'s name
        """No lock is needed."""
        self.lock = _NoLock()  # type: ignore[assignment]  # has the interface of a lock

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._failed = False
        try:
            self.open()
        except OSError:
            self.handleError(record)
        else:
            super().emit(record)
        if not self._failed:
            self._on_written()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # as above
        """Lose the record that is just being written, and try the next one with the file opened anew."""
        self._failed = True
        self.close_stream()
        error = sys.exception()
        self._on_lost((error.strerror if isinstance(error, OSError) else None) or str(error))

    def doRollover(self) -> None:  # noqa: N802  # as above
        """Put the file aside and begin a new one."""
        if not self._path.stat().st_size:
            return
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
        self._path.rename(self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}"))
        self.open()
        if self._backups:
            aside = sorted(self._path.parent.glob(f"{self._path.stem}-????-??-??T??-??-??.??????{self._path.suffix}"))
            for old in aside[: -self._backups]:
                with contextlib.suppress(OSError):
                    old.unlink()

    def close(self) -> None:
        """Do nothing: `logging` calls this at the end of the process, and to close a file may hang, too."""

    def close_stream(self) -> None:
        """Close the file, until the next record."""
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None


def _open_without_waiting(path: str, flags: int) -> int:
    """A file that nobody else may read. A FIFO that nobody reads is an error; open() would wait for a reader."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
    os.set_blocking(descriptor, True)
    return descriptor


class _BoundedQueue(QueueHandler):
    """The way to the thread that writes; it never waits."""

    def __init__(
        self, records: queue.Queue[logging.LogRecord], *, is_full: Callable[[], bool], on_lost: Callable[[str], None]
    ) -> None:
        super().__init__(records)
        self._is_full = is_full
        self._on_lost = on_lost
        self.put_bytes = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Nothing to do: the message is text already."""
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put a record into the queue; the queue itself has no limit, for the one entry that ends the thread."""
        if self._is_full():
            raise queue.Full
        self.put_bytes += len(record.msg)
        super().enqueue(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # as above
        """The queue is full: lose the record."""
        self._on_lost("the disk does not keep up")


class _Writer(QueueListener):
    """The thread that writes."""

    taken_bytes = 0

    def handle(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.taken_bytes += len(record.msg)
        super().handle(record)


class AuditLog:
    """Records on their way to a file; `write` never waits. `audit_log` opens and closes it.

    Args:
        settings: which file.
        on_lost: called for each record that is lost, on either thread.
        most_waiting: how many records may wait to be written.
        most_bytes_waiting: the same in bytes; one record more may wait.
    """

    def __init__(
        self,
        settings: AuditSettings,
        *,
        on_lost: Callable[[], None] = lambda: None,
        most_waiting: int = _MOST_WAITING,
        most_bytes_waiting: int = _MOST_BYTES_WAITING,
    ) -> None:
        records: queue.Queue[logging.LogRecord] = queue.Queue()
        self._name = str(settings.path)
        self._most_waiting = most_waiting
        self._most_bytes_waiting = most_bytes_waiting
        self._on_lost = on_lost
        self._records = records
        self._file = AuditFile(settings, on_written=self._written, on_lost=self._lose)
        self._queue = _BoundedQueue(records, is_full=self._is_full, on_lost=self._lose)
        self._listener = _Writer(records, self._file)
        self._begun = False
        self._lost = 0
        self._complained = False

    def write(self, line: bytes) -> None:
        """Write a line, soon. If too many are waiting already, it is lost."""
        self._queue.handle(logging.makeLogRecord({"msg": line.decode(_ENCODING)}))

    async def start(self, *, seconds: float = _OPEN_SECONDS) -> None:
        """Open the file, and begin to write. If opening takes longer than `seconds`, records wait for it.

        Raises:
            AuditLogError: the file cannot be opened for appending.
        """

        def begin() -> None:
            self._file.open()
            self._listener.start()
            self._begun = True

        try:
            if not await _done_within(seconds, begin):
                _log.warning("--audit-log=%s is not open after %g seconds; decisions wait for it", self._name, seconds)
        except OSError as error:
            reason = "it is a FIFO that nobody reads" if error.errno == errno.ENXIO else error.strerror
            raise AuditLogError(f"--audit-log={self._name}: cannot be written: {reason}") from error

    async def finish(self, *, seconds: float = _CLOSE_SECONDS) -> bool:
        """Write what is waiting, and close the file; whether that was done within `seconds`."""

        def finish() -> None:
            self._listener.stop()
            self._file.close_stream()

        if self._begun and await _done_within(seconds, finish):
            return True
        _log.warning("--audit-log=%s: not all decisions could be written", self._name)
        return False

    def _is_full(self) -> bool:
        # Each of the two numbers of bytes is changed on one thread only.
        waiting_bytes = self._queue.put_bytes - self._listener.taken_bytes
        return self._records.qsize() >= self._most_waiting or waiting_bytes >= self._most_bytes_waiting

    def _lose(self, why: str) -> None:
        # Either thread may count here; a number that is one off is good enough for a message.
        self._lost += 1
        self._on_lost()
        if not self._complained:
            self._complained = True
            _log.warning("--audit-log=%s cannot be written, decisions are missing from it: %s", self._name, why)

    def _written(self) -> None:
        if self._complained and self._records.qsize() <= self._most_waiting // 2:
            _log.warning("--audit-log=%s is written again; %d decisions are missing", self._name, self._lost)
            self._lost, self._complained = 0, False


@contextlib.asynccontextmanager
async def audit_log(settings: AuditSettings, *, on_lost: Callable[[], None] = lambda: None) -> AsyncIterator[AuditLog]:
    """An audit file that is written while the context lasts; `on_lost` is called for each record that is not.

    Raises:
        AuditLogError: the file cannot be opened for appending.
    """
    log = AuditLog(settings, on_lost=on_lost)
    await log.start()
    try:
        yield log
    finally:
        await log.finish()


async def _done_within(seconds: float, work: Callable[[], None]) -> bool:
    """Do work that may never end, on a thread that does not keep the process from ending; whether it was done in time.

    Raises:
        OSError: that of `work`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[OSError | None] = loop.create_future()

    def run() -> None:
        failure: OSError | None = None
        try:
            work()
        except OSError as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(done.set_result, failure)

    threading.Thread(target=run, name="audit-log", daemon=True).start()
    finished, _ = await asyncio.wait([done], timeout=seconds)
    if finished and (failure := done.result()) is not None:
        raise failure
    return bool(finished)
