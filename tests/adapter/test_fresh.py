"""What is asked for is asked once, and what came is kept for a period."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from adapter.planning.fresh import Fresh, Kept

# The event loop's time moves to the next timer when there is nothing else to do: no sleep takes long, or too long.
pytestmark = pytest.mark.looptime

PERIOD = 0.05
LONG = 60.0


class Source:
    """Gives 1, 2, 3 ..., each when the test lets it; a failure if there is one."""

    def __init__(self, *, held: bool = False) -> None:
        self.asked = 0
        self.ended = 0
        self.open = asyncio.Event()
        self.changed = asyncio.Condition()
        self.failure: Exception | None = None
        if not held:
            self.open.set()

    async def make(self) -> int:
        self.asked += 1
        async with self.changed:
            self.changed.notify_all()
        try:
            await self.open.wait()
            if self.failure is not None:
                raise self.failure
            return self.asked
        finally:
            self.ended += 1

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.asked >= times)


@asynccontextmanager
async def fresh(period: float = LONG, max_weight: int = 100) -> AsyncIterator[Fresh[int]]:
    async with Fresh[int](period=period, weigh=lambda _: 10, max_weight=max_weight) as kept:
        yield kept


async def test_all_who_ask_at_once_share_one_answer() -> None:
    source = Source(held=True)
    async with fresh(period=0) as kept:
        waiting = [asyncio.create_task(kept.get("a", source.make)) for _ in range(100)]
        await source.until_asked(1)
        source.open.set()
        assert {one.value for one in await asyncio.gather(*waiting)} == {1}


async def test_who_stops_waiting_disturbs_nobody_else() -> None:
    source = Source(held=True)
    async with fresh() as kept:
        first, second = (asyncio.create_task(kept.get("a", source.make)) for _ in range(2))
        await source.until_asked(1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        source.open.set()
        assert (await second).value == 1


async def test_when_nobody_waits_any_more_the_asking_ends_and_the_next_begins_anew() -> None:
    source = Source(held=True)
    async with fresh() as kept:
        only = asyncio.create_task(kept.get("a", source.make))
        await source.until_asked(1)
        only.cancel()
        with pytest.raises(asyncio.CancelledError):
            await only
        again = asyncio.create_task(kept.get("a", source.make))
        await source.until_asked(2)
        assert source.ended == 1
        source.open.set()
        assert (await again).value == 2


async def test_an_answer_is_given_again_while_it_is_fresh_and_to_others_not() -> None:
    source = Source()
    async with fresh() as kept:
        assert [(await kept.get("a", source.make)).value for _ in range(3)] == [1, 1, 1]
        assert (await kept.get("b", source.make)).value == 2


async def test_an_answer_is_fresh_for_a_period_from_when_it_came() -> None:
    loop = asyncio.get_running_loop()
    async with fresh(period=LONG) as kept:
        before = loop.time()
        until = (await kept.get("a", Source().make)).until
        assert before + LONG <= until <= loop.time() + LONG


async def test_an_answer_that_is_too_much_is_not_kept_and_says_so() -> None:
    source = Source()
    async with fresh(max_weight=9) as kept:
        assert [await kept.get("a", source.make) for _ in range(2)] == [Kept(1, 0.0), Kept(2, 0.0)]


async def test_without_a_period_nothing_is_kept() -> None:
    source = Source()
    async with fresh(period=0) as kept:
        assert [(await kept.get("a", source.make)).value for _ in range(3)] == [1, 2, 3]
        assert (await kept.get("a", source.make)).until == 0


async def test_what_was_taken_is_asked_for_ahead_and_what_was_not_is_forgotten() -> None:
    source = Source()
    async with fresh(period=PERIOD) as kept:
        await kept.get("a", source.make)
        await kept.get("a", source.make)  # taken
        await source.until_asked(2)
        await asyncio.sleep(3 * PERIOD)  # nobody took the second one
        assert source.asked == 2
        assert (await kept.get("a", source.make)).value == 3
        await asyncio.sleep(3 * PERIOD)  # who asks so rarely has nothing asked for ahead
        assert source.asked == 3


async def test_who_asks_as_soon_as_an_answer_ends_has_the_next_ones_asked_for_ahead() -> None:
    asked_by: list[int] = []

    def ask(number: int) -> Callable[[], Awaitable[int]]:
        async def make() -> int:
            asked_by.append(number)
            return number

        return make

    loop = asyncio.get_running_loop()
    async with fresh(period=4 * PERIOD) as kept:
        for number in range(6):  # as one does who has a memory for answers while they are fresh
            answer = await kept.get("a", ask(number))
            await asyncio.sleep(answer.until - loop.time())
    assert asked_by[0] == 0
    assert set(asked_by[1:]) == {1}


async def test_nothing_is_asked_more_than_once_in_nine_tenths_of_a_period_whatever_the_number_of_requests() -> None:
    source = Source()
    loop = asyncio.get_running_loop()
    async with fresh(period=PERIOD) as kept:
        started = loop.time()
        while loop.time() < started + 10 * PERIOD:
            await asyncio.gather(*(kept.get("a", source.make) for _ in range(20)))
            await asyncio.sleep(PERIOD / 7)
        assert 10 <= source.asked <= (loop.time() - started) / (0.9 * PERIOD) + 1


async def test_a_failure_is_shared_and_soon_forgotten() -> None:
    source = Source()
    source.failure = ValueError("no")
    async with fresh(period=PERIOD) as kept:
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await kept.get("a", source.make)
        assert source.asked == 1
        source.failure = None
        await asyncio.sleep(2 * PERIOD)
        assert (await kept.get("a", source.make)).value == 2


async def test_what_came_first_goes_first_when_there_is_too_much() -> None:
    source = Source()
    async with fresh(max_weight=25) as kept:
        for key in "abc":
            await kept.get(key, source.make)
        assert (await kept.get("c", source.make)).value == 3
        assert (await kept.get("b", source.make)).value == 2
        assert (await kept.get("a", source.make)).value == 4


async def test_long_questions_take_room_as_their_answers_and_failures_do() -> None:
    source = Source()
    long = [(letter * 5_000, "server") for letter in "abc"]  # as much as ten of what is weighed
    async with fresh(max_weight=45) as kept:
        for key in long:
            await kept.get(key, source.make)
        assert [(await kept.get(key, source.make)).value for key in (long[2], long[1], long[0])] == [3, 2, 4]
        source.failure = ValueError("no")
        for letter in "xyz":
            with pytest.raises(ValueError, match="no"):
                await kept.get(letter * 10_000, source.make)
        asked = source.asked
        for letter, again in (("z", 0), ("y", 0), ("x", 1)):
            with pytest.raises(ValueError, match="no"):
                await kept.get(letter * 10_000, source.make)
            asked += again
            assert source.asked == asked


async def test_what_is_asked_for_ahead_ends_with_the_owner() -> None:
    source = Source()
    async with fresh(period=PERIOD) as kept:
        await kept.get("a", source.make)
        await kept.get("a", source.make)
        source.open.clear()
        await source.until_asked(2)
    assert source.ended == 2


async def test_once_it_is_closed_nothing_is_kept_or_fetched_and_whoever_still_asks_has_an_answer() -> None:
    source, held = Source(), Source(held=True)
    async with fresh() as kept:
        await kept.get("a", source.make)
        waiting = asyncio.create_task(kept.get("b", held.make))
        await held.until_asked(1)
    held.open.set()
    assert (await waiting).value == 1
    assert [(await kept.get("a", source.make)).value for _ in range(2)] == [2, 3]
    kept.fetch("a", source.make)
    assert kept.current("a") is None
    assert source.asked == 3


async def test_what_is_ready_is_taken_without_waiting_and_what_is_not_is_fetched_in_the_background_once() -> None:
    source = Source(held=True)
    async with fresh() as kept:
        for _ in range(3):
            assert kept.current("a") is None
            kept.fetch("a", source.make)
        await source.until_asked(1)
        source.open.set()
        assert (await kept.get("a", source.make)).value == 1
        ready = kept.current("a")
        assert ready is not None
        assert ready.value == 1
        assert source.asked == 1


async def test_a_failure_is_not_fetched_again_at_once() -> None:
    source = Source()
    source.failure = ValueError("no")
    async with fresh() as kept:
        kept.fetch("a", source.make)
        await source.until_asked(1)
        with pytest.raises(ValueError, match="no"):
            await kept.get("a", source.make)
        kept.fetch("a", source.make)
        await asyncio.sleep(0)
        assert source.asked == 1
