"""Concurrent coroutines: all of several, or one until a stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def all_of(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines concurrently and return their results in order.

    The first failure cancels the others and is raised as itself, not as the group that a TaskGroup raises: callers
    handle the same errors for several requests as for one. If several failed, the first of `works` counts.
    """
    failure: Exception
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(work) for work in works]
    except ExceptionGroup as failures:
        failure = _first(failures)
    else:
        return [task.result() for task in running]
    # Raised here and not above: inside `except*` some releases of Python 3.11 put it into a group once more.
    raise failure


async def done_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it ends or `stop` is set; return whether it ended first. Raises what `work` raises."""
    waiting = asyncio.create_task(stop.wait())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.wait((working, waiting))
    if not working.cancelled():
        working.result()
    return not stop.is_set()


def free_when_cancelled(task: asyncio.Task[_T]) -> asyncio.Task[_T]:
    """Have a task drop its CancelledError, so that what its coroutine used is freed without garbage collection.

    The traceback has the frames, these have a TaskGroup, and before Python 3.13.1 a TaskGroup keeps its task. What
    `gc.freeze` has excluded from collection would stay for ever.
    """
    task.add_done_callback(_drop_cancelled_error)
    return task


def _drop_cancelled_error(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        with contextlib.suppress(asyncio.CancelledError):
            task.result()


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
