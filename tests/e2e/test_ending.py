"""How the demo ends: soon after a signal, with one line for a usage error, and without leaving processes."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from playground.cli import demo
from playground.processes import ChildProcess
from tests.e2e.tools import processes_with
from tests.eventually import PATIENCE, eventually

pytestmark = pytest.mark.e2e

DEMO = [sys.executable, "-m", "milliscale", "demo"]


async def test_second_demo_in_the_same_folder_is_an_error_and_ctrl_c_ends_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [*DEMO, "--period=20", f"--folder={folder}"]
    async with await ChildProcess.start("first", command, log=tmp_path / "first.log") as first:

        async def scales() -> bool:
            fail_if_ended(first)
            return "New size" in first.log.read_text()

        await eventually(scales)
        second = CliRunner().invoke(demo, [f"--folder={folder}"])
        assert (second.exit_code, "a demo is already running" in second.output) == (1, True)
        assert first.exit_status is None
        await ends_without_traces(first, signal.SIGINT, folder)


async def test_sigterm_while_the_demo_starts_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    async with await ChildProcess.start("demo", [*DEMO, f"--folder={folder}"], log=tmp_path / "log") as starting:

        async def prometheus_runs() -> bool:
            fail_if_ended(starting)
            return bool(processes_with("prometheus.yml") and processes_with(str(folder / "prometheus")))

        await eventually(prometheus_runs)
        await ends_without_traces(starting, signal.SIGTERM, folder)


def fail_if_ended(running: ChildProcess) -> None:
    """Fail at once, where `eventually` would go on waiting."""
    if running.exit_status is not None:
        pytest.fail("\n".join(["the demo ended", *running.last_lines()]))


async def ends_without_traces(running: ChildProcess, number: signal.Signals, folder: Path) -> None:
    """Send a signal, and see that the demo ends with status 0 and leaves nothing."""
    running.send_signal(number)
    async with asyncio.timeout(PATIENCE):
        assert await running.wait() == 0
    assert processes_with(str(folder)) == {}
    assert "Traceback" not in running.log.read_text()


async def test_killed_demo_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    killed = await ChildProcess.start("demo", [*DEMO, f"--folder={folder}"], log=tmp_path / "log")

    async def all_started() -> bool:
        return len(processes_with(str(folder))) >= 4

    await eventually(all_started, within=60)
    killed.send_signal(signal.SIGKILL)
    await killed.wait()

    async def none_left() -> bool:
        return processes_with(str(folder)) == {}

    assert await eventually(none_left, within=10)


def test_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert CliRunner().invoke(demo, [f"--folder={tmp_path}"]).exit_code == 1
    assert (tmp_path / "letter.txt").exists()
