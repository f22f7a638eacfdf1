"""`python -m autoscaler run` as a process, for tests of how processes behave."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.eventually import PATIENCE

ALONE = ("--leader-elect=false", "--state-configmap=")
"""Flags of one that shares nothing with others."""
SAVES_OFTEN = "--setting=history.save_seconds=100ms"
"""So that tests need not wait for the history of one that is killed."""


class Autoscaler:
    """The process and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.log_lines: list[str] = []

    async def listen(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.log_lines.append(line.decode().rstrip())

    @property
    def port(self) -> int:
        """The port of its health and metrics endpoint."""
        found = re.search(r"health and metrics on \S+ port (\d+)", "\n".join(self.log_lines))
        assert found, "not listening yet"
        return int(found[1])

    async def get(self, path: str) -> str:
        """Return a page of its endpoint."""
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return await response.text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process and return its exit status."""
        return await asyncio.wait_for(self._process.wait(), PATIENCE)


@asynccontextmanager
async def autoscaler(
    kubeconfig: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    program: str = "",
    command: Sequence[str] = (),
) -> AsyncIterator[Autoscaler]:
    """Run it from this clone; a program, or another release's command, replaces `python -m autoscaler`."""
    process = await asyncio.create_subprocess_exec(
        *(command or (sys.executable, *(("-c", program) if program else ("-m", "autoscaler")))),
        *("run", f"--kubeconfig={kubeconfig}"),
        *("--bind-address=127.0.0.1", "--metrics-port=0", *arguments),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    running = Autoscaler(process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await listening
