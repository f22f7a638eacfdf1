"""`python -m autoscaler run` as a process, for tests of how processes behave."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

LIMIT = 5.0
"""Seconds in which a process must end, whatever it is at, when it is told to."""
PATIENCE = 60.0
"""Seconds to wait for what has no limit, on a machine that is busy."""
ALONE = ("--leader-elect=false", "--state-configmap=")
"""Flags of one that shares nothing with others."""


class Autoscaler:
    """The process, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said: list[str] = []

    async def listen(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.said.append(line.decode().rstrip())

    @property
    def port(self) -> int:
        """Where its endpoint is."""
        found = re.search(r"health and metrics on \S+ port (\d+)", "\n".join(self.said))
        assert found, "not listening yet"
        return int(found[1])

    async def get(self, path: str) -> str:
        """A page of its endpoint."""
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return await response.text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, *, within: float = LIMIT) -> int:
        """Its exit status, once it has ended."""
        return await asyncio.wait_for(self._process.wait(), within)


@asynccontextmanager
async def autoscaler(
    kubeconfig: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Autoscaler]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", "run", f"--kubeconfig={kubeconfig}"),
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
