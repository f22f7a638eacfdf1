"""SingleFlight."""

import asyncio
import gc

import pytest

from kube.single_flight import SingleFlight


class Asked:
    """Counts calls; the test sets their result."""

    def __init__(self) -> None:
        self.times = 0
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.cancelled = False

    async def ask(self) -> int:
        self.times += 1
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def started(calls: SingleFlight[str, int], asked: Asked, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(calls.do("key", asked.ask)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_concurrent_callers_share_one_result() -> None:
    calls, asked = SingleFlight[str, int](), Asked()
    tasks = await started(calls, asked, 3)
    asked.answer.set_result(7)
    assert await asyncio.gather(*tasks) == [7, 7, 7]
    assert asked.times == 1
    assert await calls.do("key", asked.ask) == 7
    assert asked.times == 2


async def test_concurrent_callers_share_one_error() -> None:
    calls, asked = SingleFlight[str, int](), Asked()
    tasks = await started(calls, asked, 3)
    asked.answer.set_exception(OSError("away"))
    assert [type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [OSError] * 3


async def test_cancelled_caller_leaves_the_call_to_the_others() -> None:
    calls, asked = SingleFlight[str, int](), Asked()
    first, second = await started(calls, asked, 2)
    first.cancel()
    await asyncio.sleep(0)
    asked.answer.set_result(7)
    assert await second == 7
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_last_cancelled_caller_cancels_the_call() -> None:
    calls, asked = SingleFlight[str, int](), Asked()
    (only,) = await started(calls, asked, 1)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    assert asked.cancelled


async def test_other_keys_have_other_calls() -> None:
    calls, asked = SingleFlight[str, int](), Asked()
    asked.answer.set_result(7)
    assert await asyncio.gather(*(calls.do(key, asked.ask) for key in "ab")) == [7, 7]
    assert asked.times == 2


async def test_call_that_fails_as_the_last_caller_leaves_is_not_reported() -> None:
    calls = SingleFlight[str, int]()
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context["message"]))

    async def ask() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the connection broke") from None
        return 7

    only = asyncio.create_task(calls.do("key", ask))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    del only
    await asyncio.sleep(0)  # the loop lets go of it
    gc.collect()
    assert unheard == []
