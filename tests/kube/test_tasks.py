"""all_of()."""

from __future__ import annotations

import asyncio

import pytest

from kube.aio.tasks import all_of


async def number(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def failure(error: Exception) -> int:
    raise error


async def test_results_come_in_order() -> None:
    assert await all_of(number(value) for value in (3, 1, 2)) == [3, 1, 2]
    assert await all_of(()) == []


async def test_first_failure_is_raised_and_cancels_the_others() -> None:
    ended = asyncio.Event()

    async def long() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 0

    async def nested() -> int:
        return (await all_of([failure(LookupError("inner"))]))[0]

    async with asyncio.timeout(60):
        with pytest.raises(LookupError, match="inner"):
            await all_of([long(), nested()])
    assert ended.is_set()


async def test_cancelled_caller_cancels_all() -> None:
    ended: list[int] = []

    async def long(value: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(value)

    caller = asyncio.create_task(all_of(long(value) for value in (1, 2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert sorted(ended) == [1, 2]
