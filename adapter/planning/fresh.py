"""A TTL cache with single flight and refresh-ahead.

Concurrent callers for one key share one call (kube.single_flight), and its result is a cache entry for a period.

An entry that was hit during its period is refreshed ahead, nine tenths of a period after its last call began. So
frequent callers do not wait, as long as a call takes less than that, and there is no more than one call in that time,
whatever the number of requests. An entry without a hit expires, and its key is dropped a period later; a miss within
that period counts as a hit of the next entry.

Callers that must not wait take the current entry, and have a missing one fetched in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from kube.single_flight import SingleFlight

T = TypeVar("T")

# A failure is shared with the concurrent callers, and is cached for this long.
_FAILURE_SECONDS = 1.0
# What of a question's texts counts as much as one of what is weighed: a sample takes some 500 bytes.
_BYTES_OF_ONE = 500
# When in its period an entry that was taken is asked for again: early enough for a query that takes a little longer
# than the one before.
_REFRESH_AFTER = 0.9
# Freeing a hundred thousand samples at once would hold up the loop for a tenth of a second. So of what weighs more than
# the first, so many are freed at a time, once requests that were at it have had the time to end.
_HEAVY = 5_000
_FREED_AT_ONCE = 500
_FREED_AFTER_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A value, and until when it is fresh, on the loop's clock; 0 where it is not kept at all."""

    value: T
    until: float


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """What is kept: the value or a failure, or neither once the value has ended.

    Attributes:
        make: how to ask again.
        weight: how much room it takes.
        kept: the value.
        failure: the failure.
        taken: somebody took the value.
        missed: somebody asked after the value's end.
        timer: what will become of it.
    """

    make: Callable[[], Awaitable[T]]
    weight: int
    kept: Kept[T] | None = None
    failure: Exception | None = None
    taken: bool = False
    missed: bool = False
    timer: asyncio.TimerHandle | None = None


class Fresh(Generic[T]):
    """Cached results by key. Use as an async context manager, which owns the background calls."""

    def __init__(
        self,
        *,
        period: float,
        weigh: Callable[[T], int],
        max_weight: int,
        keeps: Callable[[Exception], bool] = lambda _: True,
        parts: Callable[[T], Sequence[object]] = lambda _: (),
    ) -> None:
        """Nothing is kept where `period` is 0; what is under way is shared all the same.

        Args:
            period: the seconds for which an answer is fresh.
            weigh: how much of `max_weight` an answer takes; what was asked takes one for each 500 bytes of its texts.
            max_weight: how much may be kept; beyond, what came first goes first.
            keeps: whether a failure concerns who comes after, too.
            parts: what a heavy value is made of, so that it can be freed bit by bit.
        """
        self._period = period
        self._weigh = weigh
        self._max_weight = max_weight
        self._keeps = keeps
        self._parts = parts
        self._weight = 0
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._calls: SingleFlight[Hashable, Kept[T]] = SingleFlight()
        self._is_open = False
        self._time: Callable[[], float] = lambda: asyncio.get_running_loop().time()
        self._tasks = asyncio.TaskGroup()
        self._fetching: dict[Hashable, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        self._time = asyncio.get_running_loop().time
        await self._tasks.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop everything, and fetch nothing ahead any more; whoever still calls `get` has its value made for it."""
        for task in self._fetching.values():
            task.cancel()
        for key in list(self._entries):
            self._drop(key)
        self._is_open = False
        await self._tasks.__aexit__(None, None, None)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> Kept[T]:
        """What `make` gives, or what it gave for this key lately; what it raises is raised to all who wait."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry.failure is not None:
                raise entry.failure.with_traceback(None)
            if entry.kept is not None and entry.kept.until > self._time():
                entry.taken = True
                return entry.kept
            entry.missed = True
        return await self._ask(key, make)

    def current(self, key: Hashable) -> Kept[T] | None:
        """The current entry; None where `get` would make a call, or raise a cached failure."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.kept is not None and entry.kept.until > self._time():
            entry.taken = True
            return entry.kept
        entry.missed = True
        return None

    def fetch(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> None:
        """Have a value made in the background, unless it is being made already, or failed a moment ago."""
        entry = self._entries.get(key)
        if entry is None or entry.failure is None:
            self._fetch(key, make)

    def known(self, key: Hashable) -> T | None:
        """What is kept for a key; None also where that has ended."""
        entry = self._entries.get(key)
        return None if entry is None or entry.kept is None else entry.kept.value

    def fits(self, key: Hashable, value: T) -> bool:
        """Whether a value can be kept at all."""
        return self._period > 0 and self._weigh(value) + _weight_of(key) <= self._max_weight

    async def _ask(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> Kept[T]:
        return await self._calls.do(key, lambda: self._made(key, make))

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> Kept[T]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            value = await make()
        except Exception as error:
            if self._period and self._is_open and self._keeps(error):
                self._put(key, _Entry(make, 1 + _weight_of(key), failure=error), started)
            raise
        if not self._is_open or not self.fits(key, value):
            return Kept(value, 0.0)
        kept = Kept(value, loop.time() + self._period)
        self._put(key, _Entry(make, self._weigh(value) + _weight_of(key), kept), started)
        return kept

    def _fetch(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> None:
        if self._is_open and key not in self._fetching:
            task = self._tasks.create_task(self._ask_ahead(key, make), name="fetch ahead")
            self._fetching[key] = task
            task.add_done_callback(lambda _: self._fetching.pop(key, None))

    async def _ask_ahead(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> None:
        with contextlib.suppress(Exception):  # whoever asks next will have it
            await self._ask(key, make)

    def _put(self, key: Hashable, entry: _Entry[T], started: float) -> None:
        """Keep what came of asking, which began at `started`."""
        loop = asyncio.get_running_loop()
        before = self._entries.get(key)
        entry.taken = before is not None and before.missed
        self._drop(key)
        while self._entries and self._weight + entry.weight > self._max_weight:
            self._drop(next(iter(self._entries)))
        self._entries[key] = entry
        self._weight += entry.weight
        if entry.kept is None:
            entry.timer = loop.call_later(min(_FAILURE_SECONDS, self._period), self._drop, key)
        else:
            entry.timer = loop.call_at(started + _REFRESH_AFTER * self._period, self._renew, key)

    def _renew(self, key: Hashable) -> None:
        """Ask ahead for what was taken; what was not will be forgotten."""
        entry = self._entries[key]
        assert entry.kept is not None
        entry.timer = asyncio.get_running_loop().call_at(entry.kept.until, self._end, key)
        if entry.taken:
            self._fetch(key, entry.make)

    def _end(self, key: Hashable) -> None:
        """Free an expired value; its key stays for a period, to notice a miss."""
        entry = self._entries[key]
        least = 1 + _weight_of(key)
        self._free(entry)
        self._weight -= entry.weight - least
        entry.weight = least
        entry.timer = asyncio.get_running_loop().call_later(self._period, self._drop, key)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
            if entry.timer is not None:
                entry.timer.cancel()
            self._free(entry)

    def _free(self, entry: _Entry[T]) -> None:
        """Let go of an entry's value, if it is heavy a little at a time."""
        if entry.kept is not None and entry.weight > _HEAVY and self._is_open:
            self._tasks.create_task(_free(list(self._parts(entry.kept.value))), name="free")
        entry.kept = None


async def _free(parts: list[object]) -> None:
    await asyncio.sleep(_FREED_AFTER_SECONDS)
    while parts:
        del parts[-_FREED_AT_ONCE:]
        await asyncio.sleep(0)


def _weight_of(key: Hashable) -> int:
    """How much a key weighs; clients decide how long it is."""
    parts = key if isinstance(key, tuple) else (key,)
    return sum(len(part) for part in parts if isinstance(part, str)) // _BYTES_OF_ONE
