"""Tasks of one event loop: several at once, one until a stop, one for many callers, and long ones that yield."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")

_BUSY_SECONDS: Final = 0.005
"""Without a yield. A shorter time would wait too often for other work of a busy loop."""


async def all_of(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
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


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


class SingleFlight(Generic[K, V]):
    """Concurrent callers for one key share one call. Go: golang.org/x/sync/singleflight."""

    def __init__(self) -> None:
        self._calls: dict[K, _Call[V]] = {}

    async def do(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of the call in flight for `key`, or else of `make()`.

        A caller that is cancelled leaves the call to the others; the last one cancels the call.
        """
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call(asyncio.create_task(make()))
        call.callers += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.callers -= 1
            if self._calls.get(key) is call and (call.task.done() or not call.callers):
                del self._calls[key]
            if not call.callers and not call.task.done():
                call.task.cancel()
                await asyncio.wait([call.task])


class _Call(Generic[V]):
    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.callers = 0
        # Mark an exception as retrieved, so that a call that fails without callers logs nothing.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


class Pace:
    """Yields to the event loop once it has been held for 5 ms. Call `pause` after each piece of the work."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Yield, if it is time."""
        if time.monotonic() - self._since > _BUSY_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let the event loop do other work every few milliseconds, and after the last one."""
    pace = Pace()
    for item in items:
        yield item
        await pace.pause()
    await asyncio.sleep(0)
