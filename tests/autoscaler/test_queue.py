"""The work queue: due times, one worker a key, closing."""

import asyncio

import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop.queue import WorkQueue

A, B, C = HPAKey("default", "a"), HPAKey("default", "b"), HPAKey("other", "a")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock=clock)


def test_an_added_key_is_due_at_once(queue: WorkQueue) -> None:
    queue.add(A)
    assert queue.take() == A
    assert queue.take() is None


def test_a_delayed_key_is_due_when_its_time_has_come(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(A, 15)
    clock.now += 14.99
    assert queue.take() is None
    clock.now += 0.01
    assert queue.take() == A


def test_keys_come_in_the_order_of_their_due_times(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(A, 3)
    queue.add_after(B, 1)
    queue.add_after(C, 2)
    clock.now += 3
    assert [queue.take(), queue.take(), queue.take()] == [B, C, A]


def test_keys_that_come_up_within_a_tick_are_due_together(clock: Clock) -> None:
    queue = WorkQueue(tick=0.5, clock=clock)
    queue.add_after(A, 15.2)
    queue.add_after(B, 15.4)
    queue.add_after(C, 15.6)
    clock.now += 15.4
    assert queue.take() is None
    clock.now += 0.1
    assert [queue.take(), queue.take(), queue.take()] == [A, B, None]
    queue.done(A)
    queue.add(A)
    assert queue.take() == A


def test_a_key_can_be_moved_to_a_later_time(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    queue.move(A, 3)
    assert queue.take() is None
    clock.now += 3
    assert queue.take() == A
    queue.done(A)
    assert queue.take() is None


def test_only_the_earliest_of_several_times_counts(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(A, 15)
    queue.add_after(A, 20)
    queue.add(A)
    assert queue.take() == A
    queue.done(A)
    clock.now += 60
    assert queue.take() is None


def test_a_key_in_work_is_not_handed_out_again_before_it_is_done(queue: WorkQueue) -> None:
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    assert queue.take() is None
    queue.done(A)
    assert queue.take() == A
    queue.done(A)
    assert queue.take() is None


def test_a_key_delayed_while_in_work_keeps_its_due_time(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    queue.take()
    queue.add_after(A, 15)
    queue.done(A)
    assert queue.take() is None
    clock.now += 15
    assert queue.take() == A


def test_a_key_in_work_does_not_hold_up_others(queue: WorkQueue) -> None:
    queue.add(A)
    queue.take()
    queue.add(A)
    queue.add(B)
    assert queue.take() == B


def test_the_length_is_the_number_of_scheduled_keys(queue: WorkQueue) -> None:
    queue.add(A)
    queue.add(A)
    queue.add_after(B, 15)
    assert len(queue) == 2
    queue.take()
    assert len(queue) == 1


def test_a_key_can_be_postponed(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    queue.postpone(A, 1)
    assert queue.take() is None
    clock.now += 1
    assert queue.take() == A
    queue.add_after(A, 15)
    queue.postpone(A, 1)
    queue.done(A)
    clock.now += 1
    assert queue.take() is None
    clock.now += 14
    assert queue.take() == A
    queue.postpone(A, 1)
    assert len(queue) == 0


def test_a_key_that_was_postponed_is_late(clock: Clock) -> None:
    told: list[float] = []
    queue = WorkQueue(clock=clock, on_take=told.append)
    queue.add(A)
    clock.now += 5
    queue.postpone(A, 1)
    clock.now += 1
    queue.take()
    queue.done(A)
    queue.add(A)
    queue.take()
    assert told == [6, 0]


async def test_who_works_on_a_key_is_told_when_it_is_due_again(queue: WorkQueue, clock: Clock) -> None:
    queue.add(A)
    queue.take()
    queue.add_after(A, 15)
    assert not queue.due(A).done()
    clock.now += 15
    assert queue.due(A).done()


async def test_who_works_on_a_key_is_told_when_its_time_has_passed() -> None:
    queue = WorkQueue()
    queue.add(A)
    queue.take()
    queue.add_after(A, 0.01)
    async with asyncio.timeout(60):
        await queue.due(A)
    assert queue.take() is None
    queue.done(A)
    assert queue.take() == A


async def test_who_works_on_a_key_is_told_when_it_becomes_due_earlier(queue: WorkQueue) -> None:
    queue.add(A)
    queue.take()
    queue.add_after(A, 15)
    due = queue.due(A)
    queue.add(A)
    assert due.done()


async def test_who_works_on_a_key_is_told_when_nothing_more_is_handed_out(queue: WorkQueue) -> None:
    for key in (A, B):
        queue.add(key)
        queue.take()
    before = queue.due(A)
    queue.close()
    assert before.done()
    assert queue.due(B).done()


async def test_get_waits_for_a_key(queue: WorkQueue) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    assert await waiting == A


async def test_get_wakes_up_when_a_delay_has_passed() -> None:
    queue = WorkQueue()
    queue.add_after(A, 0.01)
    assert await asyncio.wait_for(queue.get(), 60) == A


async def test_several_waiters_share_the_keys(queue: WorkQueue) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in (A, B, C):
        queue.add(key)
    assert set(await asyncio.gather(*waiting)) == {A, B, C}


async def test_closing_ends_every_wait_and_hands_out_nothing_more(queue: WorkQueue) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.close()
    queue.add(A)
    assert [await task for task in waiting] == [None, None]
    assert await queue.get() is None


def test_what_became_due_while_nobody_was_to_take_it_is_not_late(clock: Clock) -> None:
    told: list[float] = []
    queue = WorkQueue(clock=clock, on_take=told.append)
    queue.add(A)
    queue.add_after(B, 3601)
    clock.now += 3600
    queue.restart()
    assert (queue.take(), queue.take()) == (A, None)
    clock.now += 1
    assert queue.take() == B
    assert told == [0, 0]


def test_how_late_a_key_is_handed_out_is_told(clock: Clock) -> None:
    told: list[float] = []
    queue = WorkQueue(clock=clock, on_take=told.append)
    queue.add(A)
    assert queue.take() == A
    queue.add_after(B, 10)
    clock.now += 12.5
    assert queue.take() == B
    assert queue.take() is None
    assert told == [0.0, 2.5]
