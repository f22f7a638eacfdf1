"""Work that ends at its deadline."""

from __future__ import annotations

import asyncio
import math

import pytest

from adapter.serving.server import DeadlineExceeded, within
from tests.deadlines import after

pytestmark = pytest.mark.looptime


async def test_work_that_does_not_wait_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> int:
        return 5

    monkeypatch.setattr(asyncio, "timeout", None)
    assert await within(after(0), work()) == 5


async def test_result_of_work_that_waits_several_times_is_returned() -> None:
    async def work() -> list[str]:
        first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(first.set_result, "a")
        return [await first, await asyncio.sleep(0, "b"), await asyncio.to_thread(lambda: "c")]

    assert await within(math.inf, work()) == ["a", "b", "c"]


async def test_work_that_waits_too_long_is_cancelled() -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    with pytest.raises(DeadlineExceeded):
        await within(after(1), work())
    assert cancelled == [1]


async def test_timeout_error_of_the_work_is_not_the_deadlines() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise TimeoutError("its own")

    for waits in (False, True):
        with pytest.raises(TimeoutError, match="its own") as caught:
            await within(after(60), work(waits=waits))
        assert not isinstance(caught.value, DeadlineExceeded)


async def test_failed_future_raises_in_the_work() -> None:
    failing: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            return await failing
        except ValueError as error:
            return f"caught {error}"

    asyncio.get_running_loop().call_soon(failing.set_exception, ValueError("x"))
    assert await within(after(60), work()) == "caught x"


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

    task = asyncio.create_task(within(math.inf, work()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [1]


async def test_timeouts_begun_before_the_first_wait_still_count() -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        except TimeoutError:
            return "its own timeout"
        return "none"

    assert await within(after(60), work()) == "its own timeout"
