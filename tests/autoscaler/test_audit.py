"""The audit file: whole lines, rotation, and a disk that fails or hangs."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import io
import logging
import os
import signal
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from autoscaler.records.audit import AuditLog, AuditLogError, AuditSettings
from autoscaler.settings import AuditLimits
from tests.autoscaler.cluster import Cluster
from tests.autoscaler.process import ALONE, autoscaler
from tests.eventually import PATIENCE, eventually

PATIENT = AuditLimits(close_seconds=10)


def settings(path: Path, *, max_bytes: int = 1000, backups: int = 2) -> AuditSettings:
    return AuditSettings(path=path, max_bytes=max_bytes, max_backups=backups)


def backups_of(path: Path) -> list[Path]:
    """Return the rotated files, oldest first."""
    return sorted(each for each in path.parent.iterdir() if each != path)


async def test_queued_records_are_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with AuditLog(settings(path)) as log:
        for number in range(50):
            log.write(b'{"n":%d}' % number)
    assert path.read_text() == "".join(f'{{"n":{number}}}\n' for number in range(50))


async def test_existing_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("{}\n")
    async with AuditLog(settings(path)) as log:
        log.write(b"[]")
    assert path.read_text() == "{}\n[]\n"


async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with AuditLog(settings(path)):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_large_file_is_rotated_and_the_newest_backups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    (tmp_path / "audit-of-somebody-else.jsonl").touch()
    async with AuditLog(settings(path, max_bytes=100, backups=2)) as log:
        for number in range(10):
            log.write(b"%049d" % number)  # two lines a file
    assert [int(line) for line in path.read_text().split()] == [8, 9]
    first, second, other = backups_of(path)
    assert [int(line) for file in (first, second) for line in file.read_text().split()] == [4, 5, 6, 7]
    assert other.name == "audit-of-somebody-else.jsonl"


async def test_file_renamed_by_another_program_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(settings(path), PATIENT)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    path.rename(tmp_path / "audit.jsonl.1")
    log.write(b"second")
    assert await log.finish()
    assert (tmp_path / "audit.jsonl.1").read_text() == "first\n"
    assert path.read_text() == "second\n"


async def test_all_backups_are_kept_without_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with AuditLog(settings(path, max_bytes=1, backups=0)) as log:
        for _ in range(5):
            log.write(b"longer than the limit")
    assert len(backups_of(path)) == 4
    assert path.read_text() == "longer than the limit\n"


async def test_error_of_opening_names_file_and_flag(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "audit.jsonl"
    with pytest.raises(AuditLogError, match=f"--audit-log={path}: cannot be written: No such file or directory"):
        async with AuditLog(settings(path)):
            pass


# --- a disk that fails ---------------------------------------------------------------------------------------------


async def written(path: Path, size: int) -> None:
    """Return when a file has this size."""

    async def is_written() -> bool:
        return path.stat().st_size == size  # noqa: ASYNC240  # of a local file

    await eventually(is_written, within=10, every=0.001)


class Disk:
    """A disk that fails or hangs on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.remaining: int | None = None
        """After so many bytes more it is full."""
        self.free = threading.Event()
        self.free.set()
        opened, path_open = AuditLog._open, Path.open

        def open_here(log: AuditLog) -> None:
            self.free.wait()
            opened(log)

        def open_disk(path: Path, mode: str = "r", **_: Any) -> Any:
            if mode != "a":
                return path_open(path, mode)
            return io.TextIOWrapper(io.BufferedWriter(DiskFile(path, self)), "latin-1")

        monkeypatch.setattr(AuditLog, "_open", open_here)
        monkeypatch.setattr(Path, "open", open_disk)


class DiskFile(io.FileIO):
    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path, "a")
        self._disk = disk

    def write(self, data: Any) -> int:
        self._disk.free.wait()
        if self._disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._disk.remaining is not None:
            data, self._disk.remaining, self._disk.full = bytes(data)[: self._disk.remaining], None, True
        return super().write(data)


class Drops:
    """Counts dropped records."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._each: asyncio.Queue[None] = asyncio.Queue()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self._loop.call_soon_threadsafe(self._each.put_nowait, None)

    async def wait_for(self, number: int) -> None:
        for _ in range(number):
            await asyncio.wait_for(self._each.get(), 60)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_full_disk_is_logged_once_and_its_end_once(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="autoscaler.records.audit")
    path, drops = tmp_path / "audit.jsonl", Drops()
    log = AuditLog(settings(path), PATIENT, on_dropped=drops)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    disk.full = True
    for _ in range(3):
        log.write(b"drop")
    await drops.wait_for(3)
    disk.full = False
    log.write(b"second")
    await written(path, 13)
    disk.full = True
    log.write(b"drop")
    await drops.wait_for(1)
    disk.full = False
    log.write(b"third")
    assert await log.finish()
    assert path.read_text() == "first\nsecond\nthird\n"
    assert drops.count == 4
    assert [each.getMessage() for each in caplog.records] == [
        f"--audit-log={path} cannot be written, decisions are dropped: No space left on device",
        f"--audit-log={path} is written again; 3 decisions were dropped",
        f"--audit-log={path} cannot be written, decisions are dropped: No space left on device",
        f"--audit-log={path} is written again; 1 decisions were dropped",
    ]


async def test_partially_written_line_is_removed(tmp_path: Path, disk: Disk) -> None:
    path, drops = tmp_path / "audit.jsonl", Drops()
    log = AuditLog(settings(path), PATIENT, on_dropped=drops)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    disk.remaining = 3
    log.write(b"second")
    await drops.wait_for(1)
    assert path.read_text() == "first\n"
    disk.full = False
    log.write(b"third")
    assert await log.finish()
    assert path.read_text() == "first\nthird\n"


async def test_queued_bytes_are_limited(tmp_path: Path, disk: Disk) -> None:
    path, drops = tmp_path / "audit.jsonl", Drops()
    log = AuditLog(settings(path, max_bytes=10**6), AuditLimits(queue_bytes=1000, close_seconds=10), on_dropped=drops)
    await log.start()
    disk.free.clear()
    for _ in range(100):
        log.write(b"x" * 400)
    assert drops.count >= 96, "one is being written, three wait"
    disk.free.set()
    assert await log.finish()
    assert len(path.read_text().split()) == 100 - drops.count


async def test_hanging_disk_delays_neither_writes_nor_the_end(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    path, drops = tmp_path / "audit.jsonl", Drops()
    log = AuditLog(settings(path), AuditLimits(queue_bytes=8, close_seconds=0.05), on_dropped=drops)
    await log.start()
    disk.free.clear()
    for _ in range(100):
        log.write(b"line")
    assert drops.count >= 97, "one is being written, two wait"
    assert not await log.finish()
    assert [each.getMessage() for each in caplog.records] == [
        f"--audit-log={path} cannot be written, decisions are dropped: the disk is too slow",
        f"--audit-log={path}: not all decisions could be written",
    ]
    # What `logging` does when the process ends.
    await asyncio.wait_for(asyncio.to_thread(logging.shutdown), 60)
    disk.free.set()
    await written(path, 5 * (100 - drops.count))


async def test_hanging_open_delays_neither_start_nor_end(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    disk.free.clear()
    log = AuditLog(settings(path), AuditLimits(open_seconds=0.01, close_seconds=0.01))
    await log.start()
    log.write(b"line")
    assert not await log.finish()
    assert [each.getMessage() for each in caplog.records] == [
        f"--audit-log={path} is not open after 0.01 seconds; decisions wait for it",
        f"--audit-log={path}: not all decisions could be written",
    ]
    disk.free.set()


async def test_file_is_created_again_when_its_folder_exists_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, drops = tmp_path / "logs" / "audit.jsonl", Drops()
    path.parent.mkdir()
    log = AuditLog(settings(path), PATIENT, on_dropped=drops)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    path.unlink()
    path.parent.rmdir()
    log.write(b"second")
    await drops.wait_for(1)
    path.parent.mkdir()
    log.write(b"third")
    assert await log.finish()
    assert path.read_text() == "third\n"
    assert "No such file or directory" in caplog.text


async def test_fifo_without_a_reader_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "audit.fifo"
    os.mkfifo(path)
    with pytest.raises(AuditLogError, match=f"--audit-log={path}: cannot be written: it is a FIFO without a reader"):
        async with AuditLog(settings(path)):
            pass


async def test_fifo_is_written_until_its_reader_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, drops = tmp_path / "audit.fifo", Drops()
    os.mkfifo(path)
    log = AuditLog(settings(path), PATIENT, on_dropped=drops)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    await log.start()
    os.set_blocking(reader, True)
    log.write(b"first")
    assert await asyncio.to_thread(os.read, reader, 100) == b"first\n"
    os.close(reader)
    log.write(b"second")
    await drops.wait_for(1)
    log.write(b"third")
    assert await log.finish()
    assert "cannot be written, decisions are dropped: Broken pipe" in caplog.text


def waiting(reader: int) -> int:
    """How many bytes a pipe holds."""
    number = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, number)
    return number[0]


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the pipe cannot be made small")
async def test_a_fifo_that_is_full_holds_up_neither_reconciliation_nor_the_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    fifo = tmp_path / "audit"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        size = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        often = "--horizontal-pod-autoscaler-sync-period=20ms"
        async with autoscaler(cluster.kubeconfig, *ALONE, often, f"--audit-log={fifo}") as process:

            async def begun() -> bool:
                return waiting(reader) > 0

            await eventually(begun, within=PATIENCE, every=0.01)
            syncs = cluster.syncs()

            async def goes_on() -> bool:
                return cluster.syncs() >= syncs + 10

            await eventually(goes_on, within=PATIENCE, every=0.01)
            assert 0 < waiting(reader) <= size, "ten records are more than fit in"
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    finally:
        os.close(reader)
    assert any(f"--audit-log={fifo}: not all decisions could be written" in line for line in process.log_lines)
