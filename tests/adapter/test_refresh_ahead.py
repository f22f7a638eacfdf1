"""The refresh-ahead cache: single flight, TTL, prefetch, eviction by size; deadlines are in test_vector_cache."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from adapter.caches import RefreshAheadCache

# The event loop's time moves to the next timer when there is nothing else to do: no sleep takes long, or too long.
pytestmark = pytest.mark.looptime

TTL = 0.05
LONG = 60.0
VALUE_BYTES = 1_000
ENTRY_BYTES = VALUE_BYTES + 500 + 1  # with a key of one character


class Source:
    """Returns 1, 2, 3 ..., each when the test lets it; raises `failure` if there is one."""

    def __init__(self, *, held: bool = False) -> None:
        self.calls = 0
        self.ended = 0
        self.deadlines: list[float] = []
        self.open = asyncio.Event()
        self.changed = asyncio.Condition()
        self.failure: Exception | None = None
        if not held:
            self.open.set()

    async def fetch(self, deadline: float) -> int:
        self.calls += 1
        self.deadlines.append(deadline)
        async with self.changed:
            self.changed.notify_all()
        try:
            await self.open.wait()
            if self.failure is not None:
                raise self.failure
            return self.calls
        finally:
            self.ended += 1

    async def until_called(self, times: int) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.calls >= times)


@asynccontextmanager
async def opened(ttl: float = LONG, max_bytes: int = 10 * ENTRY_BYTES) -> AsyncIterator[RefreshAheadCache[int]]:
    async with RefreshAheadCache[int](ttl=ttl, size=lambda _: VALUE_BYTES, max_bytes=max_bytes) as cache:
        yield cache


async def test_concurrent_callers_share_one_call() -> None:
    source = Source(held=True)
    async with opened(ttl=0) as cache:
        callers = [asyncio.create_task(cache.get("a", source.fetch)) for _ in range(100)]
        await source.until_called(1)
        source.open.set()
        assert set(await asyncio.gather(*callers)) == {1}


async def test_cancelled_caller_leaves_the_call_to_the_others() -> None:
    source = Source(held=True)
    async with opened() as cache:
        first, second = (asyncio.create_task(cache.get("a", source.fetch)) for _ in range(2))
        await source.until_called(1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        source.open.set()
        assert await second == 1


async def test_last_cancelled_caller_cancels_the_call() -> None:
    source = Source(held=True)
    async with opened() as cache:
        only = asyncio.create_task(cache.get("a", source.fetch))
        await source.until_called(1)
        only.cancel()
        with pytest.raises(asyncio.CancelledError):
            await only
        again = asyncio.create_task(cache.get("a", source.fetch))
        await source.until_called(2)
        assert source.ended == 1
        source.open.set()
        assert await again == 2


async def test_value_is_a_hit_for_its_key() -> None:
    source = Source()
    async with opened() as cache:
        assert [await cache.get("a", source.fetch) for _ in range(3)] == [1, 1, 1]
        assert await cache.get("b", source.fetch) == 2


async def test_value_expires_after_the_ttl() -> None:
    source = Source(held=True)
    async with opened(ttl=TTL) as cache:
        task = asyncio.create_task(cache.get("a", source.fetch))
        await asyncio.sleep(TTL)
        source.open.set()
        await task
        await asyncio.sleep(0.98 * TTL)
        assert cache.cached("a") == 1
        await asyncio.sleep(0.04 * TTL)
        assert cache.cached("a") != 1


async def test_value_that_is_too_large_is_not_cached() -> None:
    source = Source()
    async with opened(max_bytes=ENTRY_BYTES - 1) as cache:
        assert not cache.fits("a", 1)
        assert [await cache.get("a", source.fetch) for _ in range(2)] == [1, 2]


async def test_ttl_of_zero_caches_nothing() -> None:
    source = Source()
    async with opened(ttl=0) as cache:
        assert [await cache.get("a", source.fetch) for _ in range(3)] == [1, 2, 3]
        assert cache.cached("a") is None


async def test_entry_with_a_hit_is_refreshed_ahead_and_one_without_is_evicted() -> None:
    source = Source()
    async with opened(ttl=TTL) as cache:
        await cache.get("a", source.fetch)
        await cache.get("a", source.fetch)  # a hit
        await source.until_called(2)
        await asyncio.sleep(3 * TTL)  # no hit of the second value
        assert source.calls == 2
        assert await cache.get("a", source.fetch) == 3
        await asyncio.sleep(3 * TTL)
        assert source.calls == 3


async def test_miss_soon_after_expiry_counts_as_a_hit() -> None:
    called_by: list[int] = []

    def fetch(number: int) -> Callable[[float], Awaitable[int]]:
        async def call(_: float) -> int:
            called_by.append(number)
            return number

        return call

    async with opened(ttl=4 * TTL) as cache:
        for number in range(6):  # as a caller with a cache of the same TTL
            await cache.get("a", fetch(number))
            await asyncio.sleep(4 * TTL)
    assert called_by[0] == 0
    assert set(called_by[1:]) == {1}


async def test_there_is_one_call_in_nine_tenths_of_a_ttl_whatever_the_number_of_callers() -> None:
    source = Source()
    loop = asyncio.get_running_loop()
    async with opened(ttl=TTL) as cache:
        started = loop.time()
        while loop.time() < started + 10 * TTL:
            await asyncio.gather(*(cache.get("a", source.fetch) for _ in range(20)))
            await asyncio.sleep(TTL / 7)
        assert 10 <= source.calls <= (loop.time() - started) / (0.9 * TTL) + 1


async def test_failure_is_cached_for_a_moment() -> None:
    source = Source()
    source.failure = ValueError("no")
    async with opened(ttl=TTL) as cache:
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await cache.get("a", source.fetch)
        assert source.calls == 1
        source.failure = None
        await asyncio.sleep(2 * TTL)
        assert await cache.get("a", source.fetch) == 2


async def test_oldest_entry_is_evicted_first() -> None:
    source = Source()
    async with opened(max_bytes=2 * ENTRY_BYTES) as cache:
        for key in "abc":
            await cache.get(key, source.fetch)
        assert await cache.get("c", source.fetch) == 3
        assert await cache.get("b", source.fetch) == 2
        assert await cache.get("a", source.fetch) == 4


async def test_long_keys_count_as_values_do_and_failures_have_keys_too() -> None:
    source = Source()
    async with opened(max_bytes=15_000) as cache:
        for letter in "abc":
            await cache.get((letter * 5_000, "server"), source.fetch)
        keys = [(letter * 5_000, "server") for letter in "cba"]
        assert [await cache.get(key, source.fetch) for key in keys] == [3, 2, 4]
        source.failure = ValueError("no")
        calls = source.calls
        for letter in "xyyx":
            with pytest.raises(ValueError, match="no"):
                await cache.get(letter * 10_000, source.fetch)
        assert source.calls == calls + 3, "there is room for one"


async def test_prefetch_is_cancelled_with_the_cache() -> None:
    source = Source()
    async with opened(ttl=TTL) as cache:
        await cache.get("a", source.fetch)
        await cache.get("a", source.fetch)
        source.open.clear()
        await source.until_called(2)
    assert source.ended == 2


async def test_closed_cache_still_serves_its_callers() -> None:
    source, held = Source(), Source(held=True)
    async with opened() as cache:
        await cache.get("a", source.fetch)
        waiting = asyncio.create_task(cache.get("b", held.fetch))
        await held.until_called(1)
    held.open.set()
    assert await waiting == 1
    assert [await cache.get("a", source.fetch) for _ in range(2)] == [2, 3]
    cache.prefetch("a", source.fetch)
    assert cache.cached("a") is None
    assert source.calls == 3


async def test_after_close_an_entry_with_a_hit_is_not_refreshed() -> None:
    source = Source()
    async with opened(ttl=TTL) as cache:
        assert await cache.get("a", source.fetch) == 1
        assert cache.cached("a") == 1
        cache.close()
        cache.prefetch("a", source.fetch)
        await asyncio.sleep(3 * TTL)
        assert source.calls == 1


async def test_cached_failure_is_not_prefetched() -> None:
    source = Source()
    source.failure = ValueError("no")
    async with opened() as cache:
        cache.prefetch("a", source.fetch)
        await cache.prefetches()
        cache.prefetch("a", source.fetch)
        await cache.prefetches()
        assert source.calls == 1
