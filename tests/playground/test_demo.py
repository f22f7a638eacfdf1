"""The demo's exit status."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from playground import demo


@pytest.mark.parametrize(("swung", "status"), [(True, 0), (False, 1)])
async def test_exit_status_is_0_if_every_hpa_scaled_up_and_down(
    swung: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def bundle(*_: object, **__: object) -> AsyncIterator[object]:
        paths = {"kubectl": tmp_path / "kubectl", "kubeconfig": tmp_path / "kubeconfig"}
        yield SimpleNamespace(client=None, workload=SimpleNamespace(elapsed=1.0), **paths)

    class Scoreboard:
        all_swung = swung
        standings = ()

        def __init__(self, *_: object) -> None:
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
    output = StringIO()
    assert await demo._demo(seconds=1, period=20, folder=tmp_path, console=Console(file=output)) == status
    assert ("not every HPA has scaled up and down" in output.getvalue()) is not swung
