"""Deadline and within()."""

from __future__ import annotations

import asyncio
import math

import pytest

from adapter.deadlines import Deadline, DeadlineExceeded, within

pytestmark = pytest.mark.looptime


async def test_deadline_counts_down_and_never_below_zero() -> None:
    deadline = Deadline.after(5)
    assert deadline.remaining() == 5
    await asyncio.sleep(2)
    assert deadline.remaining() == 3
    await asyncio.sleep(10)
    assert deadline.remaining() == 0


async def test_no_timeout_is_later_than_any_deadline() -> None:
    assert Deadline.after(None).remaining() == math.inf
    assert max(Deadline.after(5), Deadline.after(None), Deadline.after(7)) == Deadline()
    assert max(Deadline.after(5), Deadline.after(7)).remaining() == 7


async def test_timeout_ends_at_the_deadline() -> None:
    deadline = Deadline.after(5)
    await asyncio.sleep(2)
    with pytest.raises(TimeoutError):
        async with deadline.timeout():
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == 5


async def test_work_that_waits_too_long_is_cancelled() -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    with pytest.raises(DeadlineExceeded):
        await within(Deadline.after(1), work())
    assert cancelled == [1]


async def test_timeout_error_of_the_work_is_not_the_deadlines() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise TimeoutError("its own")

    for waits in (False, True):
        with pytest.raises(TimeoutError, match="its own") as caught:
            await within(Deadline.after(60), work(waits=waits))
        assert not isinstance(caught.value, DeadlineExceeded)
