"""Child processes: each in its own process group, with its output in a log file.

The process groups keep a Ctrl-C in the terminal from the children, which are stopped in order. On Linux the
parent-death signal ends them even if the playground is killed.
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

_GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL; more than the adapter's shutdown delay."""

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class ChildProcess:
    """A running program; as a context manager it is stopped at the end.

    `name` is for messages, `log` the file of its standard output and error.
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
        """Start `command` in `directory`, with its output in `log`. Raises OSError if it cannot be run."""
        child = cls(name, command, log=log, directory=directory)
        await child.restart()
        return child

    async def restart(self) -> None:
        """Stop it if it runs, and start it with the same command and log."""
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
        """The ID of the process and of its process group."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the end of the process; return its exit status."""
        return await self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self.exit_status is None:
            self._process.send_signal(number)

    async def stop(self, *, grace: float = _GRACE) -> int:
        """Send SIGTERM to the process group, and SIGKILL after `grace` seconds; return the exit status.

        If cancelled, it kills at once and still waits for the end.
        """
        try:
            if self.exit_status is None:
                self._signal_group(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._process.wait()
        finally:
            self._signal_group(signal.SIGKILL)  # also what the process has left behind
            await self._process.wait()
        return await self._process.wait()

    def last_lines(self, count: int = 10) -> list[str]:
        """Return the end of the log."""
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
    """Have the kernel kill this process when its parent thread ends; exit at once if `parent` has ended already.

    Runs between fork and exec. The kernel only signals a death after the call to prctl.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
