"""Calls that several wait for: who wants what is being asked already waits for that answer.

When many clients come at once with the same token, or for the same thing, the API server is asked once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedCalls(Generic[K, V]):
    """The calls that are under way, by what they are for."""

    def __init__(self) -> None:
        self._calls: dict[K, _Call[V]] = {}

    async def call(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The outcome of the call for `key` that is under way, or else of `make`.

        Whoever is cancelled leaves the call to the others; the last one ends it.
        """
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call(asyncio.create_task(make()))
        call.waiting += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if self._calls.get(key) is call and (call.task.done() or not call.waiting):
                del self._calls[key]
            if not call.waiting and not call.task.done():
                call.task.cancel()
                await asyncio.wait([call.task])


class _Call(Generic[V]):
    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0
        # Whoever waits has its error; where nobody does any more, nobody misses it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
