"""The work queue: which HPA is next, and when.

It keeps two promises that the workers rely on. A key is in work at most once, so two workers never scale the same
target; a key that is added while it is in work is handed out again afterwards. And of several times for which a key is
scheduled only the earliest counts, so an HPA that changes often is not reconciled more often: this is what keeps the
autoscaler's own status writes, which come back as changes, from starting another round.

What is due later is due at the end of a tick, so that keys that come up at about the same time are handed out in the
same moment: HPAs that ask for the same metric then can ask together (`autoscaler.loop.together`).

Whoever still does something for a key that can be left out, such as to wait for its turn to write a status, can learn
when the key's next turn has come (`due`).

A key that is handed out late tells of too few workers, or of a slow API server; `on_take` is told how late each is.

Times come from a clock that is passed in; `take` never waits, so schedules can be tested without sleeping.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable

from autoscaler.core.model import HPAKey


class WorkQueue:
    """Keys with the time from which each is due.

    Args:
        tick: seconds; 0: keys are due when they are due.
        clock: the current time in seconds; only differences matter.
        on_take: told how many seconds after its time each key is handed out.
    """

    def __init__(
        self,
        *,
        tick: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        on_take: Callable[[float], None] | None = None,
    ) -> None:
        self._tick = tick
        self._clock = clock
        self._on_take = on_take
        self._due: dict[HPAKey, float] = {}
        # May hold entries that `_due` has replaced since; they are skipped when they come up.
        self._heap: list[tuple[float, int, HPAKey]] = []
        self._sequence = 0
        self._in_work: set[HPAKey] = set()
        self._awaited: dict[HPAKey, asyncio.Future[None]] = {}
        # When those were due that have been postponed.
        self._postponed: dict[HPAKey, float] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """How many keys are scheduled, those in work not counted."""
        return len(self._due)

    def add(self, key: HPAKey) -> None:
        """Make a key due now."""
        self.add_after(key, 0.0)

    def add_after(self, key: HPAKey, delay: float) -> None:
        """Make a key due in `delay` seconds, unless it is due before that anyway."""
        due = self._in(delay)
        if due < self._due.get(key, float("inf")):
            self._schedule(key, due)

    def move(self, key: HPAKey, delay: float) -> None:
        """Make a key due in `delay` seconds, whatever it was before."""
        self._schedule(key, self._in(delay))

    def postpone(self, key: HPAKey, delay: float) -> None:
        """Hand a key out in `delay` seconds, if it is due before that; it then counts as late."""
        due, before = self._in(delay), self._due.get(key, math.inf)
        if before < due:
            self._schedule(key, due)
            self._postponed[key] = before

    def restart(self) -> None:
        """Make due now what became due while nobody was there to take it, so that it does not count as late."""
        now = self._clock()
        for key, due in list(self._due.items()):
            if due < now:
                self._schedule(key, now)

    def take(self) -> HPAKey | None:
        """The key that has been due longest, now in work until `done`; None if there is none to hand out."""
        head = self._head()
        now = self._clock()
        if head is None or head[0] > now:
            return None
        due, _, key = heapq.heappop(self._heap)
        del self._due[key]
        was_due = self._postponed.pop(key, due)
        self._in_work.add(key)
        if self._on_take is not None:
            self._on_take(now - was_due)
        return key

    def done(self, key: HPAKey) -> None:
        """The work on a key has ended; it may be handed out again."""
        self._in_work.discard(key)
        self._awaited.pop(key, None)
        if key in self._due:
            self._push(key, self._due[key])

    def due(self, key: HPAKey) -> asyncio.Future[None]:
        """Done once a key that is in work is due again, or the queue is closed."""
        awaited = self._awaited[key] = asyncio.get_running_loop().create_future()
        self._tell_if_due(key)
        return awaited

    async def get(self) -> HPAKey | None:
        """Wait for a key to be due and take it; None once the queue is closed."""
        while not self._closed:
            key = self.take()
            if key is not None:
                return key
            self._changed.clear()
            head = self._head()
            try:
                async with asyncio.timeout(None if head is None else max(0.0, head[0] - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def close(self) -> None:
        """Hand out nothing more; every `get` ends."""
        self._closed = True
        self._changed.set()
        for key in self._awaited:
            self._tell_if_due(key)

    def _in(self, delay: float) -> float:
        due = self._clock() + delay
        return math.ceil(due / self._tick) * self._tick if self._tick and delay > 0 else due

    def _schedule(self, key: HPAKey, due: float) -> None:
        self._due[key] = due
        self._postponed.pop(key, None)
        if key not in self._in_work:
            self._push(key, due)
        elif key in self._awaited:
            self._tell_if_due(key)

    def _tell_if_due(self, key: HPAKey) -> None:
        """Tell who waits for it that a key is due, or come back when it is."""
        awaited = self._awaited.get(key)
        if awaited is None or awaited.done():
            return
        left = self._due.get(key, math.inf) - self._clock()
        if left <= 0 or self._closed:
            awaited.set_result(None)
        elif left < math.inf:
            asyncio.get_running_loop().call_later(left, self._tell_if_due, key)

    def _push(self, key: HPAKey, due: float) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._changed.set()

    def _head(self) -> tuple[float, int, HPAKey] | None:
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due and key not in self._in_work:
                return self._heap[0]
            heapq.heappop(self._heap)
        return None
