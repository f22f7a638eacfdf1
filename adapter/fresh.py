"""Answers that are worth keeping for a moment: asked for once, however many want them.

What is under way is shared by all who ask for the same (a single flight), and what came is handed out for as long as it
is fresh. Who stops waiting disturbs nobody else; when the last one has gone, the asking ends, too.

An answer is fresh for a period after it came. If anybody took it from here meanwhile, it is asked for again one period
after it was last asked for, which is a little before it ends: so who asks often never waits, and nothing is asked more
than once a period, whatever the number of requests. What nobody took is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

__all__ = ["Fresh", "Kept"]

T = TypeVar("T")

# A failure is shared with who was waiting, and for this long with who comes after them.
_FAILURE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A value, and until when it is fresh, on the loop's clock; 0 where it is not kept at all."""

    value: T
    until: float


@dataclass(slots=True, eq=False)
class _Flight(Generic[T]):
    """What is being asked for: its task, its outcome, and how many wait for it."""

    outcome: asyncio.Future[Kept[T]]
    task: asyncio.Task[None] | None = None
    waiting: int = 0
    ahead: bool = False


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """What is kept: the value or a failure, how to ask again, and whether anybody took it."""

    make: Callable[[], Awaitable[T]]
    weight: int
    kept: Kept[T] | None = None
    failure: Exception | None = None
    taken: bool = False
    timer: asyncio.TimerHandle | None = None


class Fresh(Generic[T]):
    """Keeps answers by what was asked. Use as an async context manager, which owns all that is under way."""

    def __init__(self, *, period: float, weigh: Callable[[T], int], max_weight: int) -> None:
        """Nothing is kept where `period` is 0; what is under way is shared all the same.

        Args:
            period: the seconds for which an answer is fresh.
            weigh: how much of `max_weight` an answer takes.
            max_weight: how much may be kept; beyond, what came first goes first.
        """
        self._period = period
        self._weigh = weigh
        self._max_weight = max_weight
        self._weight = 0
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._flights: dict[Hashable, _Flight[T]] = {}
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> Kept[T]:
        """What `make` gives, or what it gave for this key lately; what it raises is raised to all who wait."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry.failure is not None:
                raise entry.failure.with_traceback(None)
            if entry.kept is not None and entry.kept.until > asyncio.get_running_loop().time():
                entry.taken = True
                return entry.kept
        flight = self._flights.get(key) or self._start(key, make, ahead=False)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.outcome)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.ahead and not flight.outcome.done():
                self._give_up(key, flight)

    def forget(self) -> None:
        """Keep nothing of what came before now, nor of what is under way."""
        for key in list(self._entries):
            self._drop(key)
        self._flights.clear()

    def _start(self, key: Hashable, make: Callable[[], Awaitable[T]], *, ahead: bool) -> _Flight[T]:
        flight: _Flight[T] = _Flight(asyncio.get_running_loop().create_future(), ahead=ahead)
        flight.outcome.add_done_callback(_look_at)
        self._flights[key] = flight
        flight.task = self._tasks.create_task(self._fly(key, make, flight), name="fresh answer")
        self._running.add(flight.task)
        flight.task.add_done_callback(self._running.discard)
        return flight

    def _give_up(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]  # whoever comes now must not wait for what is ending
        if flight.task is not None:
            flight.task.cancel()

    async def _fly(self, key: Hashable, make: Callable[[], Awaitable[T]], flight: _Flight[T]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        kept: Kept[T] | None = None
        failure: Exception | None = None
        try:
            value = await make()
            kept = Kept(value, loop.time() + self._period if self._period else 0.0)
            flight.outcome.set_result(kept)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is those who wait that must have it)
            failure = error
            flight.outcome.set_exception(error)
        finally:
            flight.outcome.cancel()  # nothing happens to one that is done
            current = self._flights.get(key) is flight
            if current:
                del self._flights[key]
        if current and self._period:
            self._keep(key, make, kept, failure, started)

    def _keep(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[T]],
        kept: Kept[T] | None,
        failure: Exception | None,
        started: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._drop(key)
        weight = self._weigh(kept.value) if kept is not None else 1
        if weight > self._max_weight:
            return
        while self._weight + weight > self._max_weight:
            self._drop(next(iter(self._entries)))
        entry = self._entries[key] = _Entry(make, weight, kept, failure)
        self._weight += weight
        if kept is None:
            entry.timer = loop.call_later(min(_FAILURE_SECONDS, self._period), self._drop, key)
        else:
            entry.timer = loop.call_at(started + self._period, self._renew, key)

    def _renew(self, key: Hashable) -> None:
        """Ask ahead for what was taken; what was not will be forgotten."""
        entry = self._entries[key]
        assert entry.kept is not None
        entry.timer = asyncio.get_running_loop().call_at(entry.kept.until, self._drop, key)
        if entry.taken and key not in self._flights:
            self._start(key, entry.make, ahead=True)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
            if entry.timer is not None:
                entry.timer.cancel()


def _look_at(outcome: asyncio.Future[Any]) -> None:
    """Nobody may be waiting any more for a failure, and asyncio would complain that nobody saw it."""
    if not outcome.cancelled():
        outcome.exception()
