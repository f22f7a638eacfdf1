"""Several things at once, of which all are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def all_of(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Do everything at once; the results come in the order of `works`.

    The first failure ends the others and is raised as itself, not in the group that a TaskGroup makes of it: a caller
    expects the same error from several requests as from one. Where several failed, it is the first of `works`.
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


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
