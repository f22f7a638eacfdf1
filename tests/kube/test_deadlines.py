"""Work with a deadline: as with asyncio.timeout, but no timer is set for work that does not wait."""

from __future__ import annotations

import asyncio
import math

import pytest

from kube.deadlines import DeadlineExceeded, after, before

SOON = 0.01


async def test_work_that_does_not_wait_has_its_result_even_after_the_deadline() -> None:
    async def work() -> int:
        return 5

    assert await before(after(0.0), work()) == 5


async def test_work_that_does_not_wait_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> int:
        return 5

    monkeypatch.setattr(asyncio, "timeout", None)
    assert await before(after(0.0), work()) == 5


async def test_work_that_waits_several_times_has_its_result() -> None:
    async def work() -> list[str]:
        first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(first.set_result, "a")
        return [await first, await asyncio.sleep(0, "b"), await asyncio.to_thread(lambda: "c")]

    assert await before(math.inf, work()) == ["a", "b", "c"]


async def test_work_that_waits_too_long_is_cancelled() -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    with pytest.raises(DeadlineExceeded):
        await before(after(SOON), work())
    assert cancelled == [1]


async def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise TimeoutError("its own")

    for waits in (False, True):
        with pytest.raises(TimeoutError, match="its own") as caught:
            await before(after(60.0), work(waits=waits))
        assert not isinstance(caught.value, DeadlineExceeded)


async def test_a_failure_of_an_awaited_future_is_raised_in_the_work() -> None:
    failing: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            return await failing
        except ValueError as error:
            return f"caught {error}"

    asyncio.get_running_loop().call_soon(failing.set_exception, ValueError("x"))
    assert await before(after(60.0), work()) == "caught x"


async def test_cancelling_the_caller_cancels_the_work() -> None:
    waiting = asyncio.Event()
    cancelled = []

    async def work() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            await asyncio.sleep(0)  # a clean-up may wait
            raise

    task = asyncio.create_task(before(math.inf, work()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [1]


async def test_the_innermost_of_several_deadlines_counts() -> None:
    async def work() -> str:
        try:
            await before(after(SOON), asyncio.Event().wait())
        except DeadlineExceeded:
            return "the inner one"
        return "none"

    assert await before(after(60.0), work()) == "the inner one"


async def test_timeouts_begun_before_the_first_wait_still_count() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.005):
                await asyncio.Event().wait()
        except TimeoutError:
            return "its own timeout"
        return "none"

    assert await before(after(60.0), work()) == "its own timeout"
