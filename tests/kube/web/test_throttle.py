"""The work for pages: one caller at a time, with pauses."""

import asyncio

import pytest

from kube.web.throttle import Throttle

pytestmark = pytest.mark.looptime


async def test_one_caller_at_a_time_in_order_for_a_quarter_of_the_time() -> None:
    throttle, clock = Throttle(), asyncio.get_running_loop().time
    times: list[tuple[int, float, float]] = []

    async def caller(number: int) -> None:
        async with throttle.slot():
            started = clock()
            await asyncio.sleep(0.1)
            times.append((number, started, clock()))

    begin = clock()
    await asyncio.gather(*(caller(number) for number in range(3)))
    assert [(number, round(start - begin, 3), round(end - begin, 3)) for number, start, end in times] == [
        (0, 0.0, 0.1),
        (1, 0.4, 0.5),
        (2, 0.8, 0.9),
    ]


async def test_caller_that_is_cancelled_or_fails_frees_the_slot() -> None:
    throttle = Throttle()

    async def caller() -> None:
        async with throttle.slot():
            await asyncio.sleep(100)

    holding, waiting = asyncio.create_task(caller()), asyncio.create_task(caller())
    await asyncio.sleep(1)
    waiting.cancel()
    holding.cancel()
    with pytest.raises(ZeroDivisionError):
        async with throttle.slot():
            raise ZeroDivisionError
    async with asyncio.timeout(2), throttle.slot():
        pass


async def test_pause_after_a_long_slot_is_limited() -> None:
    throttle, clock = Throttle(), asyncio.get_running_loop().time
    async with throttle.slot():
        await asyncio.sleep(10)
    ended = clock()
    async with throttle.slot():
        assert clock() - ended == pytest.approx(1.0)
