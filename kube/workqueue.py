"""The work queue of a controller, and the workers that take keys from it.

A key is handed out to one worker at a time; a key that is added meanwhile is handed out again afterwards. If a key is
scheduled for several times, the earliest counts. Delayed keys are due at the end of a tick, so keys that are due at
about the same time are handed out together.

Upstream: workqueue.TypedDelayingInterface.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kube.tasks import done_before

_GROW_SECONDS = 1.0

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys, and when each is due.

    Args:
        tick: seconds; 0: keys are due exactly when they are scheduled.
        clock: the current time in seconds; only differences matter.
        on_lag: called for each key that is handed out, with the seconds since it was due.
    """

    def __init__(
        self,
        *,
        tick: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        on_lag: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._tick = tick
        self._clock = clock
        self._on_lag = on_lag
        self._due: dict[K, float] = {}
        # May hold entries that `_due` has replaced since; they are skipped.
        self._heap: list[tuple[float, int, K]] = []
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

    def add_after(self, key: K, delay: float) -> None:
        """Make a key due in `delay` seconds, unless it is due earlier."""
        due = self._at(delay)
        if due < self._due.get(key, math.inf):
            self._schedule(key, due)

    def move(self, key: K, delay: float) -> None:
        """Make a key due in `delay` seconds, whenever it was due before."""
        self._schedule(key, self._at(delay))

    def restart(self) -> None:
        """Make all keys due now that became due while no worker ran, so that they do not count as late."""
        now = self._clock()
        for key, due in list(self._due.items()):
            if due < now:
                self._schedule(key, now)

    def take(self) -> K | None:
        """Return the key that has been due longest; None: none is due. It is not handed out again before `done`."""
        now = self._clock()
        due = self._next_due()
        if due is None or due > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._processing.add(key)
        self._on_lag(now - due)
        return key

    def done(self, key: K) -> None:
        """Let the key be handed out again."""
        self._processing.discard(key)
        if key in self._due:
            self._push(key, self._due[key])

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
    queue: WorkQueue[K],
    reconcile: Callable[[K], Awaitable[None]],
    *,
    number: Callable[[], int],
    stop: asyncio.Event,
) -> None:
    """Reconcile until `stop` is set, which closes the queue; return when no reconciliation is in flight.

    Args:
        queue: hands out keys.
        reconcile: must not raise.
        number: how many reconciliations may be in flight. It is read each second; workers are added, never removed.
        stop: set to end.
    """

    async def work() -> None:
        while (key := await queue.get()) is not None:
            try:
                await reconcile(key)
            finally:
                queue.done(key)

    async with asyncio.TaskGroup() as tasks:
        started = 0
        while True:
            for _ in range(number() - started):
                tasks.create_task(work())
                started += 1
            if not await done_before(stop, asyncio.sleep(_GROW_SECONDS)):
                break
        queue.close()
