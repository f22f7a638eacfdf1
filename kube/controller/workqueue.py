"""The work queue of a controller, and the reconciliations of its keys.

A key is handed out once at a time; a key that is added meanwhile is handed out again afterwards. If a key is scheduled
for several times, the earliest counts. Delayed keys are due at the end of a tick, so keys that are due at about the
same time are handed out together. If more keys are due than may be handed out, namespaces share the slots fairly
(`kube.aio.fairness`): slow or many objects of a namespace delay those of no other. Urgent keys come first.

Upstream: workqueue.TypedDelayingInterface.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import sys
import time
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from kube.aio.fairness import FairSlots

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys, and when each is due.

    Args:
        tick: seconds; 0: keys are due exactly when they are scheduled.
        namespace: returns the namespace of a key.
        limit: returns how many keys may be handed out at a time.
        spare: so many more may be, of namespaces that have none handed out; bounds connections and memory.
        clock: the current time in seconds; only differences matter.
        on_lag: called for each key that is handed out, with the seconds since it was due.
    """

    def __init__(
        self,
        *,
        tick: float = 0.0,
        namespace: Callable[[K], str] = lambda _: "",
        limit: Callable[[], int] = lambda: sys.maxsize,
        spare: int = 256,
        clock: Callable[[], float] = time.monotonic,
        on_lag: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._tick = tick
        self._namespace = namespace
        self._limit = limit
        self._clock = clock
        self._on_lag = on_lag
        self._due: dict[K, float] = {}
        # May hold entries that `_due` has replaced since; they are skipped.
        self._heap: list[tuple[float, int, K]] = []
        # Keys that were due; those that are not any more, or are handed out, are skipped.
        self._ready: FairSlots[K] = FairSlots(0, spare=spare)
        self._urgent: set[K] = set()
        self._sequence = 0
        self._processing: set[K] = set()
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """The number of scheduled keys."""
        return len(self._due)

    @property
    def processing(self) -> int:
        """The number of keys that are handed out."""
        return len(self._processing)

    def add(self, key: K) -> None:
        """Make a key due now."""
        self.add_after(key, 0.0)

    def add_urgent(self, key: K) -> None:
        """Make a key due now, before those that are not urgent."""
        self._urgent.add(key)
        self.move(key, 0.0)

    def add_after(self, key: K, delay: float) -> None:
        """Make a key due in `delay` seconds, unless it is due earlier."""
        due = self._at(delay)
        if due < self._due.get(key, math.inf):
            self._schedule(key, due)

    def move(self, key: K, delay: float) -> None:
        """Make a key due in `delay` seconds, whenever it was due before."""
        self._schedule(key, self._at(delay))

    def take(self) -> K | None:
        """Return a key that is due; None: none is, or too many are handed out. `done` lets it be handed out again.

        It is the one that has been due longest in the namespace that has the fewest keys handed out, urgent ones first.
        """
        now = self._clock()
        while (due := self._next_due()) is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            self._ready.add(self._namespace(key), key, level=0 if key in self._urgent else 1)
        self._ready.limit = self._limit()
        while (following := self._ready.next()) is not None:
            namespace, key = following
            due = self._due.get(key)
            if due is None or due > now or key in self._processing:
                self._ready.release(namespace)
                continue
            del self._due[key]
            self._urgent.discard(key)
            self._processing.add(key)
            self._on_lag(now - due)
            return key
        return None

    def done(self, key: K) -> None:
        """Let the key be handed out again."""
        self._ready.release(self._namespace(key))
        self.unlock(key)

    def lock(self, key: K) -> bool:
        """Let a key not be handed out until `unlock`, whenever it is due; False if it is handed out or locked."""
        if key in self._processing:
            return False
        self._processing.add(key)
        return True

    def unlock(self, key: K) -> None:
        """Let a locked key be handed out when it is due."""
        self._processing.discard(key)
        if key in self._due:
            self._push(key, self._due[key])
        self._changed.set()

    async def get(self) -> K | None:
        """Wait for a key to be due and take it; None once the queue is closed."""
        while not self._closed:
            key = self.take()
            if key is not None:
                return key
            self._changed.clear()
            due = self._next_due()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def close(self) -> None:
        """Hand out nothing more; every `get` returns None."""
        self._closed = True
        self._changed.set()

    def _at(self, delay: float) -> float:
        due = self._clock() + delay
        return math.ceil(due / self._tick) * self._tick if self._tick and delay > 0 else due

    def _schedule(self, key: K, due: float) -> None:
        self._due[key] = due
        if key not in self._processing:
            self._push(key, due)

    def _push(self, key: K, due: float) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._changed.set()

    def _next_due(self) -> float | None:
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due and key not in self._processing:
                return due
            heapq.heappop(self._heap)
        return None


async def run_workers(
    queue: WorkQueue[K], reconcile: Callable[[K], Coroutine[Any, Any, None]], *, stop: asyncio.Event | None = None
) -> None:
    """Reconcile until `stop` is set, which closes the queue; return when no reconciliation is in flight.

    Args:
        queue: hands out keys.
        reconcile: must not raise. Each reconciliation is a task.
        stop: set to end; None: it goes on until cancelled.
    """

    def done(key: K, _: asyncio.Task[None]) -> None:
        queue.done(key)

    async def hand_out() -> None:
        while (key := await queue.get()) is not None:
            # Unlike `finally`, the callback is called for a task that is cancelled before it starts, too.
            tasks.create_task(reconcile(key)).add_done_callback(partial(done, key))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hand_out())
        await (stop or asyncio.Event()).wait()
        queue.close()
