"""A TTL cache with single flight and refresh-ahead, bounded in bytes, of which each namespace has a share.

Concurrent callers for one key share one call, which gets the latest deadline of its callers; each caller waits until
its own. The result is a cache entry for the TTL. An entry with a hit is refreshed nine tenths of the TTL after its call
began, and there is at most one call in that time. So frequent callers wait only if a call takes longer than the one
before by more than a tenth of the TTL. An entry without a hit expires; its key is evicted a TTL later, and a miss in
between counts as a hit of the next entry.

`due` can name another time, for a value that does not change before, and takes little time to fetch. The value expires
then, and the next caller fetches it: it is younger than one that was refreshed before that caller came.

A caller that joins a call may wait in the queue of another namespace: the one that made the call.

No namespace evicts the entries of others: all namespaces' own rules together have a part of the cache. If it is full,
the oldest entry of the namespace that has the most is evicted. If the whole cache is full, the oldest entry of the
rules for all namespaces is, the owner "".
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from kube.aio.tasks import SingleFlight

K = TypeVar("K")
T = TypeVar("T")

Fetch = Callable[[float], Awaitable[T]]
"""Fetches a value; the deadline (event loop time, infinite for none) is the latest of its callers'."""

# A failure is shared with concurrent callers, and cached for this long.
_FAILURE_SECONDS = 1.0
# The bytes of an entry without its value and key.
_ENTRY_BYTES = 500
# When an entry is refreshed, in TTLs: early enough for a call that takes a little longer than the one before.
REFRESH_AFTER = 0.9
# Prometheus gets its timeout in milliseconds, so a timeout may occur this long before the deadline.
_EARLY_SECONDS = 0.01
# Freeing a hundred thousand samples at once would delay the event loop by a tenth of a second. Values larger than this
# are freed in parts, once no request uses them.
_LARGE_BYTES = 2_500_000
_FREED_AT_ONCE = 500
_FREED_AFTER_SECONDS = 0.1


class CacheShares(Generic[K]):
    """The sizes of a cache's entries, by owner: a namespace, or "" for the rules for all namespaces."""

    def __init__(self, max_size: int, *, of_namespaces: int) -> None:
        """`max_size` is of all entries, `of_namespaces` that of all namespaces together."""
        self._max_size = max_size
        self._of_namespaces = of_namespaces
        self._entries: dict[str, dict[K, int]] = {}
        self._sizes: dict[str, int] = {}
        self.size = 0

    def largest(self, owner: str) -> int:
        """Return the largest size that an entry of an owner can have."""
        return self._of_namespaces // 4 if owner else self._max_size

    def size_of(self, owner: str) -> int:
        """Return the size of an owner's entries."""
        return self._sizes.get(owner, 0)

    def add(self, owner: str, key: K, size: int) -> None:
        """Add an entry, or count one as used now, with another size."""
        self.discard(owner, key)
        self._entries.setdefault(owner, {})[key] = size
        self._sizes[owner] = self._sizes.get(owner, 0) + size
        self.size += size

    def discard(self, owner: str, key: K) -> None:
        """Remove an entry, if it is there."""
        size = self._entries.get(owner, {}).pop(key, None)
        if size is None:
            return
        self.size -= size
        self._sizes[owner] -= size
        if not self._entries[owner]:
            del self._entries[owner], self._sizes[owner]

    def to_evict(self, owner: str, size: int) -> K | None:
        """Return the entry to evict before one of this size is added; None: there is room."""
        common = self._sizes.get("", 0)
        if owner and self.size - common + size > self._of_namespaces:
            having = {one: each for one, each in self._sizes.items() if one}
        elif self.size + size > self._max_size:
            having = {"": common} if common else self._sizes
        else:
            return None
        # The owner's share includes the new entry; without another entry of its own, it is not the one to evict.
        sizes = {one: each + (size if one == owner else 0) for one, each in having.items()}
        return next(iter(self._entries[max(sizes, key=sizes.__getitem__)])) if sizes else None


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """A value until it `expires` (event loop time), or a failure, or neither after the value has expired.

    An entry with a `hit` is refreshed with `fetch` before it expires. `missed` is True if a caller came after the value
    had expired. `timer` refreshes, expires or evicts the entry.
    """

    fetch: Fetch[T]
    size: int
    value: T | None = None
    expires: float = 0.0
    failure: Exception | None = None
    hit: bool = False
    missed: bool = False
    timer: asyncio.TimerHandle | None = None


class _DeadlinePassed(Exception):
    """A call failed at its deadline, so callers with a later one try again; `__cause__` is the failure."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.deadline = deadline


class RefreshAheadCache(Generic[T]):
    """Cached values by key. Use as an async context manager, which owns the background calls.

    Attributes:
        ttl: in seconds; 0 caches nothing, but still shares concurrent calls.
        hits: the callers that got a cached value.
        misses: those that waited for a call; several can share one.
        refreshes: the calls before an entry with hits expired.
    """

    def __init__(
        self,
        *,
        ttl: float,
        size: Callable[[T], int],
        max_bytes: int,
        caches_failure: Callable[[Exception], bool] = lambda _: True,
        parts: Callable[[T], Sequence[object]] = lambda _: (),
        owner: Callable[[Hashable], str] = lambda _: "",
        due: Callable[[T], float | None] = lambda _: None,
    ) -> None:
        """Create an empty cache.

        Args:
            ttl: see the attribute.
            size: returns the bytes that a value takes.
            max_bytes: of all entries; the oldest are evicted first. Namespaces share a quarter of it.
            caches_failure: returns whether a failure is cached for later callers.
            parts: returns the list in a large value, which is then freed in parts.
            owner: returns whose share of the cache a key takes: a namespace's, or "".
            due: returns when a value fetched now expires (event loop time); None: by the TTL, and refreshed ahead.
        """
        self.ttl = ttl
        self._size = size
        self._owner = owner
        self._shares: CacheShares[Hashable] = CacheShares(max_bytes, of_namespaces=max_bytes // 4)
        self._caches_failure = caches_failure
        self._parts = parts
        self._due = due
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._flights: SingleFlight[Hashable, T] = SingleFlight()
        self._deadlines: dict[Hashable, list[float]] = {}
        self._prefetching: dict[Hashable, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()
        self._is_open = False
        self.hits = self.misses = self.refreshes = 0
        self._time: Callable[[], float] = lambda: 0.0

    async def __aenter__(self) -> Self:
        self._time = asyncio.get_running_loop().time
        await self._tasks.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self._tasks.__aexit__(None, None, None)

    def close(self) -> None:
        """Clear the cache and stop refreshing; callers of `get` still get their values."""
        for task in self._prefetching.values():
            task.cancel()
        for key in list(self._entries):
            self._evict(key)
        self._is_open = False

    @property
    def entries(self) -> int:
        """The number of keys, with those of expired values that are not evicted yet."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """The size of all entries, in bytes."""
        return self._shares.size

    def cached(self, key: Hashable) -> T | None:
        """Return the cached value; None on a miss and for a cached failure."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires > self._time():
            entry.hit = True
            self.hits += 1
            return entry.value
        entry.missed = True
        return None

    async def get(self, key: Hashable, fetch: Fetch[T], deadline: float = math.inf) -> T:
        """Return the cached value; on a miss join the call in flight for the key, or call `fetch`.

        Raises:
            TimeoutError: the deadline has passed.
            Exception: as `fetch`; all callers that share the call get it.
        """
        value = self.cached(key)
        if value is not None:
            return value
        entry = self._entries.get(key)
        if entry is not None and entry.failure is not None:
            raise entry.failure.with_traceback(None)
        self.misses += 1
        deadlines = self._deadlines.setdefault(key, [])
        deadlines.append(deadline)
        try:
            async with asyncio.timeout_at(None if deadline == math.inf else deadline):
                while True:
                    try:
                        return await self._flights.do(key, lambda: self._call(key, fetch))
                    except _DeadlinePassed as passed:
                        if passed.deadline >= deadline and isinstance(passed.__cause__, Exception):
                            raise passed.__cause__ from None
        finally:
            deadlines.remove(deadline)
            if not deadlines:
                del self._deadlines[key]

    def prefetch(self, key: Hashable, fetch: Fetch[T]) -> None:
        """Call `fetch` in the background, unless there is such a call or a cached failure."""
        entry = self._entries.get(key)
        if self._is_open and key not in self._prefetching and (entry is None or entry.failure is None):
            task = self._tasks.create_task(self._prefetch(key, fetch), name="prefetch")
            self._prefetching[key] = task
            task.add_done_callback(lambda _: self._prefetching.pop(key, None))

    def latest(self, key: Hashable) -> T | None:
        """Return the value of a key, also for a TTL after it was `due`, without a hit or a miss."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def fits(self, key: Hashable, value: T) -> bool:
        """Return whether the cache can hold a value."""
        return self.ttl > 0 and self._size(value) + _size_of(key) <= self._shares.largest(self._owner(key))

    async def prefetches(self) -> None:
        """Wait for the background calls that are in flight."""
        await asyncio.gather(*self._prefetching.values(), return_exceptions=True)

    async def _prefetch(self, key: Hashable, fetch: Fetch[T]) -> None:
        with contextlib.suppress(Exception):  # the next caller gets the failure
            await self._flights.do(key, lambda: self._call(key, fetch))

    async def _call(self, key: Hashable, fetch: Fetch[T]) -> T:
        deadline = max(self._deadlines.get(key, ()), default=math.inf)
        started = self._time()
        try:
            value = await fetch(deadline)
        except Exception as error:
            if deadline - asyncio.get_running_loop().time() <= _EARLY_SECONDS:
                raise _DeadlinePassed(deadline) from error
            if self._is_open and self.ttl and self._caches_failure(error):
                self._put(key, _Entry(fetch, _size_of(key), failure=error))
            raise
        if self._is_open and self.fits(key, value):
            due = self._due(value)
            expires = self._time() + self.ttl if due is None else due
            entry = _Entry(fetch, self._size(value) + _size_of(key), value, expires)
            self._put(key, entry, started + REFRESH_AFTER * self.ttl if due is None else None)
        return value

    def _put(self, key: Hashable, entry: _Entry[T], refresh: float | None = None) -> None:
        """Add an entry, with the time of its refresh, if any; evict others if the cache is full."""
        before = self._entries.get(key)
        entry.hit = before is not None and before.missed
        self._evict(key)
        while (evicted := self._shares.to_evict(self._owner(key), entry.size)) is not None:
            self._evict(evicted)
        self._entries[key] = entry
        self._shares.add(self._owner(key), key, entry.size)
        loop = asyncio.get_running_loop()
        if entry.failure is not None:
            entry.timer = loop.call_later(min(_FAILURE_SECONDS, self.ttl), self._evict, key)
        elif refresh is None:
            entry.timer = loop.call_at(entry.expires + self.ttl, self._evict, key)
        else:
            entry.timer = loop.call_at(refresh, self._refresh, key)

    def _refresh(self, key: Hashable) -> None:
        entry = self._entries[key]
        entry.timer = asyncio.get_running_loop().call_at(entry.expires, self._expire, key)
        if entry.hit:
            self.refreshes += 1
            self.prefetch(key, entry.fetch)

    def _expire(self, key: Hashable) -> None:
        """Free the value; the entry stays for a TTL, to record a miss."""
        entry = self._entries[key]
        self._free(entry)
        entry.size = _size_of(key)
        self._shares.add(self._owner(key), key, entry.size)
        entry.timer = asyncio.get_running_loop().call_later(self.ttl, self._evict, key)

    def _evict(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._shares.discard(self._owner(key), key)
            if entry.timer is not None:
                entry.timer.cancel()
            self._free(entry)

    def _free(self, entry: _Entry[T]) -> None:
        if entry.value is not None and entry.size > _LARGE_BYTES and self._is_open:
            self._tasks.create_task(_free(list(self._parts(entry.value))), name="free")
        entry.value, entry.expires = None, 0.0


async def _free(parts: list[object]) -> None:
    await asyncio.sleep(_FREED_AFTER_SECONDS)
    while parts:
        del parts[-_FREED_AT_ONCE:]
        await asyncio.sleep(0)


def _size_of(key: Hashable) -> int:
    """The bytes that an entry takes without its value; clients choose how long keys are."""
    parts = key if isinstance(key, tuple) else (key,)
    return _ENTRY_BYTES + sum(len(part) for part in parts if isinstance(part, str))
