"""A process of milliscale, and what it uses: tasks, file descriptors, memory; and its own metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.figures import peak_mib, rss_mib
from playground.processes import ChildProcess
from tests.chaos.process import TASKS_FILE
from tests.eventually import eventually

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT = aiohttp.ClientTimeout(total=10)
Samples = Mapping[str, float]
"""Values by name with labels, as in the text format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process uses; memory in MiB, `peak_mib` since its start."""

    tasks: Counter[str]
    """By name."""
    files: int
    memory_mib: float
    peak_mib: float


class MeasuredProcess:
    """The adapter or the autoscaler. `url` is that of /metrics and the health endpoints."""

    def __init__(
        self, child: ChildProcess, *, url: str, tasks: Path, headers: Mapping[str, str], tls: ssl.SSLContext | None
    ) -> None:
        self.child = child
        self.url = url
        self._tasks = tasks
        self._headers = headers
        self._tls = tls

    @classmethod
    async def start(
        cls,
        name: str,
        arguments: Sequence[str],
        *,
        module: str,
        url: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> MeasuredProcess:
        """Start `python -m module arguments`, with its log in `folder`/`name`.log.

        `environment` is added to this process's; `headers` and `tls` are those of requests to `url`.
        """
        tasks = folder / f"{name}.tasks"
        variables = {TASKS_FILE: str(tasks), **(environment or {})}
        command = ["/usr/bin/env", *(f"{key}={value}" for key, value in variables.items())]
        command += [sys.executable, "-m", "tests.chaos.process", module, *arguments]
        child = await ChildProcess.start(name, command, log=folder / f"{name}.log", directory=_ROOT)
        return cls(child, url=url, tasks=tasks, headers=headers or {}, tls=tls)

    @property
    def is_alive(self) -> bool:
        """True until the process has ended."""
        return self.child.exit_status is None

    async def get(self, path: str) -> tuple[int, str]:
        """GET a path of its health and metrics endpoint; status 0 if there is no response."""
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(self.url + path, headers=dict(self._headers), ssl=self._tls or False) as response,
            ):
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, str(error)

    async def metrics(self) -> Samples:
        """Return its own metrics; empty if there is no response."""
        status, text = await self.get("/metrics")
        if status != 200:
            return {}
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    async def is_ready(self) -> bool:
        """Return whether /readyz is 200."""
        return (await self.get("/readyz"))[0] == 200

    async def usage(self) -> Usage:
        """Measure it."""
        pid = self.child.pid
        self._tasks.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)

        async def written() -> bool:
            return self._tasks.exists()

        await eventually(written, every=0.02)
        tasks = Counter((await asyncio.to_thread(self._tasks.read_text)).splitlines())
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - the names are not needed
        return Usage(tasks=tasks, files=files, memory_mib=rss_mib(pid), peak_mib=peak_mib(pid))

    def errors_logged(self) -> list[str]:
        """Return lines of its log that no fault justifies: tracebacks and asyncio's errors."""
        marks = ("Traceback", "was never retrieved", "was never awaited", "Unclosed ")
        return [
            line for line in self.child.log.read_text(errors="replace").splitlines() if any(m in line for m in marks)
        ]
