"""Child processes that never outlive us: each in its own process group, its output in a log file.

The playground starts other programs (Prometheus, the adapter, the autoscaler, a real API server). A Ctrl-C in the
terminal must reach the playground alone, which then ends the others in order; hence the process groups. Whatever
happens to the playground itself, also SIGKILL, nothing may be left running; hence the parent-death signal on Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class ChildProcess:
    """A running program; as a context manager it is stopped at the end.

    `name` is what messages call it, `log` the file that takes its standard output and error.
    """

    def __init__(self, name: str, command: Sequence[str | Path], *, log: Path, directory: Path | None = None) -> None:
        self.name = name
        self.log = log
        self._command = [str(part) for part in command]
        self._directory = directory
        self._running: asyncio.subprocess.Process | None = None

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str | Path], *, log: Path, directory: Path | None = None
    ) -> ChildProcess:
        """Start `command` in `directory` (or here); its output goes to `log`. Raises OSError where it cannot be run."""
        child = cls(name, command, log=log, directory=directory)
        await child.restart()
        return child

    async def restart(self) -> None:
        """Stop it if it runs, and start it anew with the same command; the log goes on."""
        if self._running is not None:
            await self.stop()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._running = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )

    @property
    def pid(self) -> int:
        """The process's id, which is its process group's as well."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative where a signal ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the end of the process; returns its exit status."""
        return await self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone; nothing happens where it has ended."""
        if self.exit_status is None:
            self._process.send_signal(number)

    async def stop(self, *, grace: float = _GRACE) -> int:
        """SIGTERM to the process group, SIGKILL after `grace` seconds; returns the exit status.

        Cancelled while waiting, it kills at once and still waits for the end.
        """
        try:
            if self.exit_status is None:
                self._signal_group(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._process.wait()
        finally:
            self._signal_group(signal.SIGKILL)  # also what the process itself may have started and left behind
            await self._process.wait()
        return await self._process.wait()

    def last_lines(self, count: int = 10) -> list[str]:
        """The end of the log, for telling why the process ended."""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            return file.read().decode(errors="replace").splitlines()[-count:]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def _process(self) -> asyncio.subprocess.Process:
        assert self._running is not None, "not started"
        return self._running

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; exit at once where `parent` is gone.

    Runs between fork and exec. The kernel tells of a death that comes after the call only: a parent that is killed
    between the fork and the call would leave its child running.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
