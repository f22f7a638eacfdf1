"""Single flight: concurrent callers for one key share one call. Go: golang.org/x/sync/singleflight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """The calls in flight, by key."""

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
