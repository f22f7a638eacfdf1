"""Children end with the playground: by SIGTERM, then SIGKILL, and by the kernel if it was itself killed."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from playground.processes import ChildProcess
from tests.eventually import eventually

STUBBORN = "trap '' TERM; echo started; while :; do sleep 0.1; done"


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie that merely waits for its parent to look."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def started(process: ChildProcess) -> bool:
    return process.last_lines() == ["started"]


async def test_context_stops_the_process_group(tmp_path: Path) -> None:
    script = "sleep 1000 & echo $!; wait"
    async with await ChildProcess.start("shell", ["sh", "-c", script], log=tmp_path / "log") as process:

        async def grandchild() -> int:
            return int((process.last_lines() or ["0"])[0])

        pids = [process.pid, await eventually(grandchild, within=10)]
        assert all(running(pid) for pid in pids)
    assert process.exit_status == -signal.SIGTERM

    async def gone() -> bool:
        return not any(running(pid) for pid in pids)

    assert await eventually(gone, within=10)


async def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process = await ChildProcess.start("deaf", ["sh", "-c", STUBBORN], log=tmp_path / "log")
    await eventually(lambda: started(process), within=10)
    assert await asyncio.wait_for(process.stop(grace=0.1), 60) == -signal.SIGKILL


async def test_cancelled_stop_kills_at_once(tmp_path: Path) -> None:
    process = await ChildProcess.start("deaf", ["sh", "-c", STUBBORN], log=tmp_path / "log")
    await eventually(lambda: started(process), within=10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await process.stop(grace=1000)
    assert process.exit_status == -signal.SIGKILL


async def test_last_lines_are_the_end_of_the_log(tmp_path: Path) -> None:
    script = "echo one; echo two >&2; exit 3"
    process = await ChildProcess.start("failing", ["sh", "-c", script], log=tmp_path / "log")
    assert await process.wait() == 3
    assert process.last_lines() == ["one", "two"]
    assert process.last_lines(1) == ["two"]
    assert await process.stop() == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_children_of_a_killed_parent_are_killed(tmp_path: Path) -> None:
    parent_script = """
import asyncio, sys
from pathlib import Path
from playground.processes import ChildProcess
async def main():
    child = await ChildProcess.start("sleep", ["sleep", "1000"], log=Path(sys.argv[1]) / "child.log")
    print(child.pid, flush=True)
    await child.wait()
asyncio.run(main())
"""
    command = [sys.executable, "-c", parent_script, str(tmp_path)]
    parent = await ChildProcess.start("parent", command, log=tmp_path / "parent.log")

    async def child_pid() -> int:
        return int((parent.last_lines() or ["0"])[0])

    child = await eventually(child_pid, within=20)
    assert running(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()

    async def gone() -> bool:
        return not running(child)

    assert await eventually(gone, within=10)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
async def test_child_exits_if_its_parent_died_before_prctl(tmp_path: Path) -> None:
    orphan_script = """
import os
from playground.processes import die_with
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    os.sched_yield()
die_with(parent)
print("outlived its parent", flush=True)
"""
    orphan = await asyncio.create_subprocess_exec(
        sys.executable, "-c", orphan_script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await orphan.communicate()
    assert output == b""
