"""The end of the demo: its exit status, and the replay of its recording."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from playground import demo
from playground.bundle import Timing


@pytest.mark.parametrize(("swung", "status"), [(True, 0), (False, 1)])
async def test_exit_status_is_0_if_every_hpa_scaled_up_and_down(
    swung: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def bundle(*_: object, **__: object) -> AsyncIterator[object]:
        paths = {"kubectl": tmp_path / "kubectl", "kubeconfig": tmp_path / "kubeconfig"}
        prometheus = SimpleNamespace(url="http://127.0.0.1:1")
        urls = {"autoscaler_ui_url": "http://127.0.0.1:2/", "adapter_ui_url": "http://127.0.0.1:3/"}
        urls["autoscaler_url"] = "http://127.0.0.1:4"
        yield SimpleNamespace(
            client=None, workload=SimpleNamespace(elapsed=1.0), prometheus=prometheus, **paths, **urls
        )

    class Scoreboard:
        all_swung = swung
        swinging = ()

        def __init__(self, *_: object, **__: object) -> None:
            pass

        async def run(self) -> None:
            pass

        async def wait_synced(self) -> None:
            pass

    async def found(_: object) -> None:
        pass

    monkeypatch.setattr(demo, "is_installed", lambda _: True)
    monkeypatch.setattr(demo, "find_async", found)
    monkeypatch.setattr(demo, "run_bundle", bundle)
    monkeypatch.setattr(demo, "Scoreboard", Scoreboard)
    monkeypatch.setattr(demo, "replay_recording", lambda *_, **__: None)
    monkeypatch.setattr(demo, "write_html", lambda _, path: path.touch())
    output = StringIO()
    assert await demo._demo(seconds=1, period=20, folder=tmp_path, console=Console(file=output)) == status
    addresses = text(output).partition("For another terminal")[0]
    assert "http://127.0.0.1:2/" in addresses
    assert "http://127.0.0.1:3/" in addresses
    assert ("not every HPA has scaled up and down" in output.getvalue()) is not swung
    assert f"The recording is replayed, with each decision of the HPA router: {tmp_path}/replay.html" in text(output)
    assert (tmp_path / "replay.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("seconds", "status"), [(90.0, 128), (None, 0)])
async def test_signal_while_the_demo_starts_ends_what_is_started_once(
    number: signal.Signals, seconds: float | None, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, ended = asyncio.Event(), list[str]()

    @asynccontextmanager
    async def bundle(*_: object, **__: object) -> AsyncIterator[object]:
        try:
            started.set()
            await asyncio.Event().wait()  # as for the cluster
            yield None
        finally:
            signal.raise_signal(number)  # a second Ctrl-C
            await asyncio.sleep(0.01)
            ended.append("cluster")

    async def found(_: object) -> None:
        pass

    monkeypatch.setattr(demo, "is_installed", lambda _: True)
    monkeypatch.setattr(demo, "find_async", found)
    monkeypatch.setattr(demo, "run_bundle", bundle)
    console = Console(file=StringIO())
    running = asyncio.create_task(
        demo._until_signal(seconds=seconds, period=20, folder=tmp_path, console=console), name="demo"
    )
    await started.wait()
    signal.raise_signal(number)
    assert await running == (status and status + number)
    assert ended == ["cluster"]


async def test_recording_that_cannot_be_replayed_is_reported(tmp_path: Path) -> None:
    bundle: Any = SimpleNamespace(prometheus=SimpleNamespace(url="http://127.0.0.1:1"))
    output = StringIO()
    await demo._replay(bundle, Timing(), start=time.time() - 60, folder=tmp_path, console=Console(file=output))
    assert text(output).startswith("The recording cannot be replayed: http://127.0.0.1:1 cannot be reached (Connection")


def text(output: StringIO) -> str:
    return " ".join(output.getvalue().split())
