"""The audit file: whole lines, put aside when large, and never in the way."""

import asyncio
import errno
import logging
import os
import threading
from pathlib import Path

import pytest

from autoscaler.records import audit
from autoscaler.records.audit import AuditFile, AuditLog, AuditLogError, AuditSettings, audit_log
from tests.eventually import eventually


def settings(path: Path, *, max_bytes: int = 1000, backups: int = 2) -> AuditSettings:
    return AuditSettings(path=path, max_bytes=max_bytes, max_backups=backups)


def aside(path: Path) -> list[Path]:
    """The files that were put aside, oldest first."""
    return sorted(each for each in path.parent.iterdir() if each != path)


async def test_each_record_is_a_line_and_all_are_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audit_log(settings(path)) as log:
        for number in range(50):
            log.write(b'{"n":%d}' % number)
    assert path.read_text() == "".join(f'{{"n":{number}}}\n' for number in range(50))


async def test_a_file_that_is_there_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("{}\n")
    async with audit_log(settings(path)) as log:
        log.write(b"[]")
    assert path.read_text() == "{}\n[]\n"


async def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audit_log(settings(path)):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_a_large_file_is_put_aside_and_the_newest_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    (tmp_path / "audit-of-somebody-else.jsonl").touch()
    async with audit_log(settings(path, max_bytes=100, backups=2)) as log:
        for number in range(10):
            log.write(b"%049d" % number)  # two lines a file
    assert [int(line) for line in path.read_text().split()] == [8, 9]
    first, second, other = aside(path)
    assert [int(line) for file in (first, second) for line in file.read_text().split()] == [4, 5, 6, 7]
    assert other.name == "audit-of-somebody-else.jsonl"


async def test_a_file_that_somebody_else_has_put_aside_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(settings(path))
    await log.start()
    log.write(b"first")
    await written(path, 6)
    path.rename(tmp_path / "audit.jsonl.1")
    log.write(b"second")
    assert await log.finish(seconds=10)
    assert (tmp_path / "audit.jsonl.1").read_text() == "first\n"
    assert path.read_text() == "second\n"


async def test_without_a_limit_all_backups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audit_log(settings(path, max_bytes=1, backups=0)) as log:
        for _ in range(5):
            log.write(b"longer than the limit")
    assert len(aside(path)) == 4
    assert path.read_text() == "longer than the limit\n"


async def test_a_file_that_cannot_be_opened_is_named_with_its_flag(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "audit.jsonl"
    with pytest.raises(AuditLogError, match=f"--audit-log={path}: cannot be written: No such file or directory"):
        async with audit_log(settings(path)):
            pass


# --- a disk that fails ---------------------------------------------------------------------------------------------


async def written(path: Path, size: int) -> None:
    """Return when a file has this size."""

    async def is_written() -> bool:
        return path.stat().st_size == size  # noqa: ASYNC240  # of a local file

    await eventually(is_written, within=10, every=0.001)


class Disk:
    """A disk whose writes and openings a test makes fail or hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.room: int | None = None
        """After so many bytes more it is full."""
        self.free = threading.Event()
        self.free.set()
        opened, write = AuditFile.open, audit._WholeRecords.write_some

        def open_here(file: AuditFile) -> None:
            self.free.wait()
            opened(file)

        def write_here(file: audit._WholeRecords, data: memoryview) -> int:
            self.free.wait()
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.room is not None:
                data, self.room, self.full = data[: self.room], None, True
            return write(file, data)

        monkeypatch.setattr(AuditFile, "open", open_here)
        monkeypatch.setattr(audit._WholeRecords, "write_some", write_here)


class Losses:
    """How many records were lost, for those who wait for the next."""

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


async def test_a_full_disk_is_one_warning_and_one_more_when_it_is_over(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="autoscaler.records.audit")
    path, losses = tmp_path / "audit.jsonl", Losses()
    log = AuditLog(settings(path), on_lost=losses)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    disk.full = True
    for _ in range(3):
        log.write(b"lost")
    await losses.wait_for(3)
    disk.full = False
    log.write(b"kept")
    assert await log.finish(seconds=10)
    assert path.read_text() == "first\nkept\n"
    assert losses.count == 3
    assert [each.getMessage() for each in caplog.records] == [
        f"--audit-log={path} cannot be written, decisions are missing from it: No space left on device",
        f"--audit-log={path} is written again; 3 decisions are missing",
    ]


async def test_a_line_is_written_whole_or_not_at_all(tmp_path: Path, disk: Disk) -> None:
    path, losses = tmp_path / "audit.jsonl", Losses()
    log = AuditLog(settings(path), on_lost=losses)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    disk.room = 3
    log.write(b"second")
    await losses.wait_for(1)
    assert path.read_text() == "first\n"
    disk.full = False
    log.write(b"third")
    assert await log.finish(seconds=10)
    assert path.read_text() == "first\nthird\n"


async def test_large_records_that_wait_are_bounded_in_bytes(tmp_path: Path, disk: Disk) -> None:
    path, losses = tmp_path / "audit.jsonl", Losses()
    log = AuditLog(settings(path, max_bytes=10**6), most_bytes_waiting=1000, on_lost=losses)
    await log.start()
    disk.free.clear()
    for _ in range(100):
        log.write(b"x" * 400)
    assert losses.count >= 96, "one is being written, three wait"
    disk.free.set()
    assert await log.finish(seconds=10)
    assert len(path.read_text().split()) == 100 - losses.count


async def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    path, losses = tmp_path / "audit.jsonl", Losses()
    log = AuditLog(settings(path), most_waiting=2, on_lost=losses)
    await log.start()
    disk.free.clear()
    for _ in range(100):
        log.write(b"line")
    assert losses.count >= 97, "one is being written, two wait"
    assert not await log.finish(seconds=0.05)
    assert [each.getMessage() for each in caplog.records] == [
        f"--audit-log={path} cannot be written, decisions are missing from it: the disk does not keep up",
        f"--audit-log={path}: not all decisions could be written",
    ]
    # What `logging` does when the process ends.
    await asyncio.wait_for(asyncio.to_thread(logging.shutdown), 60)
    disk.free.set()
    await written(path, 5 * (100 - losses.count))


async def test_a_file_that_takes_long_to_open_holds_up_nobody(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    disk.free.clear()
    log = AuditLog(settings(path))
    await log.start(seconds=0.01)
    log.write(b"line")
    assert not await log.finish(seconds=0.01)
    assert [each.getMessage() for each in caplog.records] == [
        f"--audit-log={path} is not open after 0.01 seconds; decisions wait for it",
        f"--audit-log={path}: not all decisions could be written",
    ]
    disk.free.set()


async def test_a_folder_that_vanishes_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, losses = tmp_path / "logs" / "audit.jsonl", Losses()
    path.parent.mkdir()
    log = AuditLog(settings(path), on_lost=losses)
    await log.start()
    log.write(b"first")
    await written(path, 6)
    path.unlink()
    path.parent.rmdir()
    log.write(b"second")
    await losses.wait_for(1)
    path.parent.mkdir()
    log.write(b"third")
    assert await log.finish(seconds=10)
    assert path.read_text() == "third\n"
    assert "No such file or directory" in caplog.text


async def test_a_fifo_without_a_reader_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.fifo"
    os.mkfifo(path)
    with pytest.raises(AuditLogError, match=f"--audit-log={path}: cannot be written: it is a FIFO that nobody reads"):
        async with audit_log(settings(path)):
            pass


async def test_a_fifo_with_a_reader_is_written_until_that_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, losses = tmp_path / "audit.fifo", Losses()
    os.mkfifo(path)
    log = AuditLog(settings(path), on_lost=losses)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    await log.start()
    os.set_blocking(reader, True)
    log.write(b"first")
    assert await asyncio.to_thread(os.read, reader, 100) == b"first\n"
    os.close(reader)
    log.write(b"second")
    await losses.wait_for(1)
    log.write(b"third")
    assert await log.finish(seconds=10)
    assert "cannot be written, decisions are missing from it: Broken pipe" in caplog.text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
async def test_a_disk_that_really_is_full_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with audit_log(settings(Path("/dev/full"))) as log:
        for _ in range(5):
            log.write(b"line")
    assert [each.getMessage() for each in caplog.records] == [
        "--audit-log=/dev/full cannot be written, decisions are missing from it: No space left on device"
    ]
