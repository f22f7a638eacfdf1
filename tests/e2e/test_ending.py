"""How processes end: soon after SIGTERM, with one line for a usage error, and without leaving processes."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from playground.bundle import ChildEndedError, run_bundle
from playground.processes import ChildProcess
from playground.scenario import PERIOD, demo_load
from tests.e2e.tools import processes_with
from tests.eventually import PATIENCE, eventually

pytestmark = pytest.mark.e2e

DEMO = [sys.executable, "-m", "playground", "demo"]


async def test_sigterm_ends_each_process_with_exit_status_0(tmp_path: Path) -> None:
    async with run_bundle(tmp_path, load=demo_load(period=PERIOD)) as bundle:
        for child in (bundle.autoscaler, bundle.adapter):
            async with asyncio.timeout(PATIENCE):
                assert await child.stop(grace=PATIENCE) == 0
            assert "Traceback" not in child.log.read_text()
        with pytest.raises(ChildEndedError, match="adapter ended with exit status 0"):
            bundle.check()
    assert processes_with(str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("rules:\n- seriesQuery: '{__name__=~\"^a\"}'\n  metricQuery: x\n", "metricQuery"),
        ("rules: [", "rules.yaml"),
    ],
    ids=["unknown key", "no YAML"],
)
async def test_invalid_rules_file_is_one_message_and_status_1(tmp_path: Path, rules: str, message: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(rules)
    command = [sys.executable, "-m", "adapter", "serve", f"--config={path}", "--prometheus-url=http://127.0.0.1:9"]
    async with await ChildProcess.start("adapter", command, log=tmp_path / "log") as adapter:
        async with asyncio.timeout(PATIENCE):
            assert await adapter.wait() == 1
    output = (tmp_path / "log").read_text()
    assert message in output
    assert "Traceback" not in output


async def test_demo_ends_after_its_seconds_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [*DEMO, "--seconds=1", f"--folder={folder}"]
    async with await ChildProcess.start("demo", command, log=tmp_path / "log") as demo:
        async with asyncio.timeout(PATIENCE):
            status = await demo.wait()
    output = (tmp_path / "log").read_text()
    assert status == 1, output
    assert "not every HPA has scaled up and down" in output
    for name in ("router", "shop", "worker"):
        assert name in output.partition("scaled up")[2]
    assert "get --raw '/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/packets_per_second'" in output
    assert processes_with(str(folder)) == {}


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGINT, "running"), (signal.SIGTERM, "starting")])
async def test_signal_at_any_time_leaves_no_process(tmp_path: Path, number: signal.Signals, moment: str) -> None:
    folder = tmp_path / "demo"
    command = [*DEMO, "--period=20", f"--folder={folder}"]
    async with await ChildProcess.start("demo", command, log=tmp_path / "log") as demo:

        async def reached() -> bool:
            if demo.exit_status is not None:
                pytest.fail("\n".join(["the demo ended", *demo.last_lines()]))
            if moment == "starting":
                return bool(processes_with("prometheus.yml") and processes_with(str(folder / "prometheus")))
            return "New size" in (tmp_path / "log").read_text()

        await eventually(reached)
        demo.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            assert await demo.wait() == 0
    assert processes_with(str(folder)) == {}
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_killed_demo_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = await ChildProcess.start("demo", [*DEMO, f"--folder={folder}"], log=tmp_path / "log")

    async def all_started() -> bool:
        return len(processes_with(str(folder))) >= 4

    await eventually(all_started, within=60)
    demo.send_signal(signal.SIGKILL)
    await demo.wait()

    async def none_left() -> bool:
        return processes_with(str(folder)) == {}

    assert await eventually(none_left, within=10)


async def test_second_demo_in_the_same_folder_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    async with await ChildProcess.start("first", [*DEMO, f"--folder={folder}"], log=tmp_path / "first.log"):

        async def taken() -> bool:
            return (folder / "demo.log").exists()

        await eventually(taken, within=20)
        async with await ChildProcess.start("second", [*DEMO, f"--folder={folder}"], log=tmp_path / "log") as second:
            async with asyncio.timeout(PATIENCE):
                assert await second.wait() == 1
        assert "a demo is already running" in (tmp_path / "log").read_text()


async def test_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    command = [*DEMO, f"--folder={tmp_path}"]
    async with await ChildProcess.start("demo", command, log=tmp_path.with_suffix(".log")) as demo:
        async with asyncio.timeout(PATIENCE):
            assert await demo.wait() == 1
    assert (tmp_path / "letter.txt").exists()
