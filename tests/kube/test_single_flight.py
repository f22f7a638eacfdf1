"""SingleFlight."""

import asyncio
import gc

import pytest

from kube.aio.tasks import SingleFlight


class CountedCall:
    """Counts calls; the test sets their result."""

    def __init__(self) -> None:
        self.times = 0
        self.result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.cancelled = False

    async def call(self) -> int:
        self.times += 1
        try:
            return await self.result
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def started(calls: SingleFlight[str, int], call: CountedCall, count: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(calls.do("key", call.call)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_concurrent_callers_share_one_result() -> None:
    calls, call = SingleFlight[str, int](), CountedCall()
    tasks = await started(calls, call, 3)
    call.result.set_result(7)
    assert await asyncio.gather(*tasks) == [7, 7, 7]
    assert call.times == 1
    assert await calls.do("key", call.call) == 7
    assert call.times == 2


async def test_concurrent_callers_share_one_error() -> None:
    calls, call = SingleFlight[str, int](), CountedCall()
    tasks = await started(calls, call, 3)
    call.result.set_exception(OSError("away"))
    assert [type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [OSError] * 3


async def test_cancelled_caller_leaves_the_call_to_the_others() -> None:
    calls, call = SingleFlight[str, int](), CountedCall()
    first, second = await started(calls, call, 2)
    first.cancel()
    await asyncio.sleep(0)
    call.result.set_result(7)
    assert await second == 7
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_last_cancelled_caller_cancels_the_call() -> None:
    calls, call = SingleFlight[str, int](), CountedCall()
    (only,) = await started(calls, call, 1)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    assert call.cancelled


async def test_other_keys_have_other_calls() -> None:
    calls, call = SingleFlight[str, int](), CountedCall()
    call.result.set_result(7)
    assert await asyncio.gather(*(calls.do(key, call.call) for key in "ab")) == [7, 7]
    assert call.times == 2


async def test_call_that_fails_as_the_last_caller_leaves_is_not_reported() -> None:
    calls = SingleFlight[str, int]()
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context["message"]))

    async def call() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the connection broke") from None
        return 7

    only = asyncio.create_task(calls.do("key", call))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    del only
    await asyncio.sleep(0)  # the loop lets go of it
    gc.collect()
    assert unheard == []
