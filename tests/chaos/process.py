"""`python -m tests.chaos.process MODULE ARGUMENTS`: a module's process that counts its asyncio tasks on SIGUSR1.

It writes their names, one a line, to the file that CHAOS_TASKS names.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import sys
from pathlib import Path
from types import FrameType

TASKS_FILE = "CHAOS_TASKS"


def _name(task: asyncio.Task[object]) -> str:
    """Return the name that a task was given, else that of its coroutine."""
    name = task.get_name()
    return getattr(task.get_coro(), "__qualname__", name) if name.startswith("Task-") else name


def write_tasks(_signal: int, _frame: FrameType | None) -> None:
    """Write the running loop's tasks; the file is renamed, so that it is never partial."""
    try:
        names = [_name(task) for task in asyncio.all_tasks()]
    except RuntimeError:  # no loop is running yet
        names = []
    path = Path(os.environ[TASKS_FILE])
    scratch = path.with_suffix(".new")
    scratch.write_text("".join(f"{name}\n" for name in names))
    scratch.replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, write_tasks)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
