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
import math
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")

_PAUSE = 3.0  # x the duration of the slot before

_namespace: ContextVar[str] = ContextVar("namespace", default="")


class QueueFullError(Exception):
    """Too many callers of one key wait already."""


class FairSlots(Generic[T]):
    """Items that wait for slots, each with a key: first those of the key that holds the fewest slots.

    Among keys that hold equally many, the one served longest ago comes first; within a key, the item that came first.
    So keys that always wait hold a slot for equal times, however long each item holds it. Items of a lower level come
    before all those of higher ones, of keys for which a slot is free.

    Attributes:
        limit: the number of slots.
        spare: so many more slots for keys that hold none, which so do not wait until another key's slot is free.
    """

    def __init__(self, limit: int, *, spare: int = 0) -> None:
        self.limit = limit
        self.spare = spare
        self._in_use = 0
        self._held: dict[str, int] = {}
        # By level. The key that was served longest ago comes first; no queue is empty.
        self._waiting: tuple[dict[str, deque[T]], ...] = ({}, {}, {})

    def __len__(self) -> int:
        """How many items wait."""
        return sum(len(queue) for waiting in self._waiting for queue in waiting.values())

    def __bool__(self) -> bool:
        """Whether an item waits; unlike the length in constant time."""
        return any(self._waiting)

    def waiting(self, key: str) -> int:
        """How many items of a key wait."""
        return sum(len(waiting.get(key, ())) for waiting in self._waiting)

    def add(self, key: str, item: T, *, level: int = 1) -> None:
        """Let an item wait; `level` is 0, 1 or 2."""
        self._waiting[level].setdefault(key, deque()).append(item)

    def discard(self, key: str, item: T) -> None:
        """Let an item wait no longer, if it does."""
        for waiting in self._waiting:
            if item in waiting.get(key, ()):
                waiting[key].remove(item)
                if not waiting[key]:
                    del waiting[key]

    def drop(self) -> T:
        """Remove and return the newest item of the highest level, of the key of which the most wait."""
        waiting = next(filter(None, reversed(self._waiting)))
        key = max(waiting, key=lambda each: len(waiting[each]))
        item = waiting[key].pop()
        if not waiting[key]:
            del waiting[key]
        return item

    def hold(self, key: str) -> bool:
        """Take a slot for a key, if there is one; the items that wait are not considered."""
        held = self._held.get(key, 0)
        if self._in_use >= self.limit + (0 if held else self.spare):
            return False
        self._in_use += 1
        self._held[key] = held + 1
        return True

    def release(self, key: str) -> None:
        """Give a slot back."""
        self._in_use -= 1
        held = self._held.pop(key) - 1
        if held:
            self._held[key] = held

    def next(self) -> tuple[str, T] | None:
        """Return the next key and item, which hold a slot now; None: no item waits, or no slot is free for it."""
        for waiting in filter(None, self._waiting):
            key = next((each for each in waiting if each not in self._held), None)
            if key is None:
                key = min(waiting, key=self._held.__getitem__)  # the first of equals
            if self.hold(key):
                queue = waiting.pop(key)
                item = queue.popleft()
                if queue:
                    waiting[key] = queue  # now served last
                return key, item
        return None


class FairSemaphore:
    """A semaphore whose waiting callers are served by key, as the items of FairSlots."""

    def __init__(self, limit: int, *, max_waiting: float = math.inf, spare: int = 0) -> None:
        """At most `limit` callers hold a slot (`spare`: see FairSlots); `max_waiting` of each key wait for one."""
        self._slots: FairSlots[asyncio.Future[None]] = FairSlots(limit, spare=spare)
        self._max_waiting = max_waiting

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._slots)

    def resize(self, limit: int) -> None:
        """Change the number of slots; callers that hold one keep it."""
        self._slots.limit = limit
        self._hand_out()

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
        return self._slots.hold(key)

    async def acquire(self, key: str) -> None:
        """Take a slot, after waiting for it; `release` gives it back. Raises as `slot`."""
        if self.try_acquire(key):
            return
        if self._slots.waiting(key) >= self._max_waiting:
            raise QueueFullError
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots.add(key, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(key)  # the slot was already handed over
            else:
                self._slots.discard(key, waiter)
            raise

    def release(self, key: str) -> None:
        """Give a slot back."""
        self._slots.release(key)
        self._hand_out()

    def _hand_out(self) -> None:
        while (following := self._slots.next()) is not None:
            key, waiter = following
            if waiter.cancelled():  # its caller was cancelled but has not run since
                self._slots.release(key)
            else:
                waiter.set_result(None)


class Throttle:
    """Lets one caller at a time compute, for at most a quarter of the time; keys are served round robin."""

    def __init__(self, *, max_pause: float = math.inf) -> None:
        """`max_pause` seconds at most are between two callers."""
        self._slots = FairSemaphore(1)
        self._max_pause = max_pause

    @contextlib.asynccontextmanager
    async def slot(self, key: str = "") -> AsyncIterator[None]:
        """Wait for the slot, and hold it as long as the context. Do not wait for clients or other servers in it."""
        await self._slots.acquire(key)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            yield
        finally:
            pause = min((loop.time() - started) * _PAUSE, self._max_pause)
            loop.call_later(pause, self._slots.release, key)


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
