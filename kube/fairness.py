"""Concurrency limits that namespaces share fairly.

One tenant can send far more requests than others: an HPA may have hundreds of metrics. When a limit is reached, the
next free slot goes to the waiting namespace that holds the fewest slots, so a namespace with few requests waits for one
slot and not for the queues of others. (Kubernetes' API Priority and Fairness has the same purpose; with as many queues
as there are namespaces no hashing is needed.)

The namespace of a request is in a context variable, which tasks inherit from the task that creates them. Work for all
namespaces runs with `for_all_namespaces`, which has a separate queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

_namespace: ContextVar[str] = ContextVar("namespace", default="")


class QueueFullError(Exception):
    """Too many callers of one key wait already."""


class FairSemaphore:
    """A semaphore whose waiting callers are served by key: first the key that holds the fewest slots.

    Among keys that hold equally many, the one served longest ago comes first; within a key, the caller that came first.
    """

    def __init__(self, limit: int, *, max_waiting: int) -> None:
        """At most `limit` callers hold a slot, and at most `max_waiting` of each key wait for one."""
        self._free = limit
        self._max_waiting = max_waiting
        self._held: dict[str, int] = {}
        # The key that was served longest ago comes first; no queue is empty.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return sum(map(len, self._waiting.values()))

    @contextlib.asynccontextmanager
    async def slot(self, key: str) -> AsyncIterator[None]:
        """Hold a slot, after waiting for it.

        Raises:
            QueueFullError: all slots are taken, and `max_waiting` callers of the key wait.
        """
        await self.acquire(key)
        try:
            yield
        finally:
            self.release(key)

    def try_acquire(self, key: str) -> bool:
        """Take a slot if one is free; then no caller waits."""
        if not self._free:
            return False
        self._free -= 1
        self._held[key] = self._held.get(key, 0) + 1
        return True

    async def acquire(self, key: str) -> None:
        """Take a slot, after waiting for it; `release` gives it back. Raises as `slot`."""
        if self.try_acquire(key):
            return
        queue = self._waiting.get(key)
        if (len(queue) if queue is not None else 0) >= self._max_waiting:
            raise QueueFullError
        if queue is None:
            queue = self._waiting[key] = deque()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(key)  # the slot was already handed over
            elif waiter in queue:
                queue.remove(waiter)
                if not queue:
                    del self._waiting[key]
            raise

    def release(self, key: str) -> None:
        """Give a slot back."""
        held = self._held.pop(key) - 1
        if held:
            self._held[key] = held
        while self._waiting:
            following = min(self._waiting, key=lambda waiting: self._held.get(waiting, 0))  # the first of equals
            queue = self._waiting.pop(following)
            waiter = queue.popleft()
            if queue:
                self._waiting[following] = queue  # now served last
            if not waiter.cancelled():  # its caller was cancelled but has not run since
                self._held[following] = self._held.get(following, 0) + 1
                waiter.set_result(None)
                return
        self._free += 1


def current_namespace() -> str:
    """Return the namespace that this task works for; "" for none, and for all."""
    return _namespace.get()


def enter_namespace(namespace: str) -> None:
    """Set the namespace that this task, and those that it creates, work for."""
    _namespace.set(namespace)


def for_all_namespaces() -> contextlib.AbstractContextManager[None]:
    """Work for all namespaces, also in tasks that are created in the context."""
    return for_namespace("")


@contextlib.contextmanager
def for_namespace(namespace: str) -> Iterator[None]:
    """Work for a namespace, also in tasks that are created in the context."""
    token = _namespace.set(namespace)
    try:
        yield
    finally:
        _namespace.reset(token)
