"""Tasks of one event loop: several at once, one until a stop, one for many callers, and long ones that yield."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
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
    """Concurrent callers for one key share one call. Go: golang.org/x/sync/singleflight.

    A caller that is cancelled leaves the call to the others. The last one cancels the call, unless it `goes_on`.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on
        self._calls: dict[K, _Call[V]] = {}

    async def do(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of the call in flight for `key`, or else of `make()`."""
        call = self.start(key, make)
        call.callers += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.callers -= 1
            if not call.callers and not self._goes_on and not call.task.done():
                del self._calls[key]
                call.task.cancel()
                await asyncio.wait([call.task])

    def start(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> _Call[V]:
        """Return the call in flight for `key`, or call `make()`, also without a caller."""
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call(asyncio.create_task(make()))
            call.task.add_done_callback(lambda _: self._ended(key, call))
        return call

    async def close(self) -> None:
        """Cancel the calls in flight."""
        tasks = [call.task for call in self._calls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: K, call: _Call[V]) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
        if not call.task.cancelled():
            call.task.exception()  # marks it as retrieved, so that a call that fails without callers logs nothing


@dataclass(slots=True, eq=False)
class _Call(Generic[V]):
    task: asyncio.Task[V]
    callers: int = 0


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
