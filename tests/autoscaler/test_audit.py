"""The audit file: whole lines, put aside when large, and never in the way."""

import errno
import logging
import os
import threading
from pathlib import Path

import pytest

from autoscaler.records.audit import AuditLog, AuditLogError, AuditSettings, RotatedFile, audit_log


def settings(path: Path, *, max_bytes: int = 1000, backups: int = 2) -> AuditSettings:
    return AuditSettings(path=path, max_bytes=max_bytes, backups=backups)


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


async def test_a_file_that_somebody_else_has_put_aside_is_made_anew_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = RotatedFile(path, max_bytes=100, backups=2)
    file.append(b"%049d\n" % 0)
    path.rename(tmp_path / "audit.jsonl.1")
    for number in range(1, 4):
        file.append(b"%049d\n" % number)
    file.close()
    assert [int(line) for line in (tmp_path / "audit.jsonl.1").read_text().split()] == [0, 1]
    assert [int(line) for line in path.read_text().split()] == [2, 3]


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


class Disk(RotatedFile):
    """A file on a disk that tests fill, or hold."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, max_bytes=10**9, backups=0)
        self.full = False
        self.held = threading.Event()
        self.held.set()
        self.tried = threading.Semaphore(0)

    def append(self, data: bytes) -> None:
        self.held.wait()
        try:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().append(data)
        finally:
            self.tried.release()

    def wait_for(self, writes: int) -> None:
        for _ in range(writes):
            assert self.tried.acquire(timeout=10)


def test_a_full_disk_is_one_warning_and_one_more_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="autoscaler.records.audit")
    disk = Disk(tmp_path / "audit.jsonl")
    log = AuditLog(disk, name="audit.jsonl")
    log.start()
    disk.full = True
    for _ in range(3):
        log.write(b"lost")
    disk.wait_for(3)
    disk.full = False
    log.write(b"kept")
    assert log.finish(10)
    assert (tmp_path / "audit.jsonl").read_text() == "kept\n"
    assert [each.getMessage() for each in caplog.records] == [
        "--audit-log=audit.jsonl cannot be written, decisions are missing from it: No space left on device",
        "--audit-log=audit.jsonl is written again; 3 decisions are missing",
    ]


def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(tmp_path / "audit.jsonl")
    log = AuditLog(disk, name="audit.jsonl", most_waiting=2)
    log.start()
    disk.held.clear()
    for _ in range(100):
        log.write(b"line")
    assert not log.finish(0.05)
    assert [each.getMessage() for each in caplog.records] == [
        "--audit-log=audit.jsonl cannot be written, decisions are missing from it: the disk does not keep up"
    ]
    disk.held.set()
    assert log.finish(10)


def test_a_line_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    file = RotatedFile(path, max_bytes=10**9, backups=0)
    file.append(b"first\n")
    write, writes = os.write, [3]

    def runs_full(descriptor: int, data: bytes) -> int:
        if not writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: writes.pop()])

    with monkeypatch.context() as patch:
        patch.setattr("autoscaler.records.audit.os.write", runs_full)
        with pytest.raises(OSError, match="No space left"):
            file.append(b"second\n")
    assert path.read_text() == "first\n"
    file.append(b"third\n")
    file.close()
    assert path.read_text() == "first\nthird\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
async def test_a_disk_that_really_is_full_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with audit_log(settings(Path("/dev/full"))) as log:
        for _ in range(5):
            log.write(b"line")
    assert [each.getMessage() for each in caplog.records] == [
        "--audit-log=/dev/full cannot be written, decisions are missing from it: No space left on device"
    ]
