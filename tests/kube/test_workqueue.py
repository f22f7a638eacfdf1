"""The work queue: due times, one worker per key, closing."""

import asyncio

import pytest

from kube.controller.workqueue import WorkQueue

A, B, C = "default/a", "default/b", "other/a"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock=clock)


def test_keys_come_in_the_order_of_their_due_times(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after(A, 3)
    queue.add_after(B, 1)
    queue.add_after(C, 2)
    clock.now += 0.99
    assert queue.take() is None
    clock.now += 0.01
    assert [queue.take(), queue.take()] == [B, None]
    clock.now += 2
    assert [queue.take(), queue.take(), queue.take()] == [C, A, None]


def test_a_locked_key_is_handed_out_at_its_time_or_when_it_is_unlocked(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after(A, 15)
    queue.add_after(B, 15)
    assert queue.lock(A)
    assert queue.lock(B)
    assert not queue.lock(A)
    queue.unlock(A)
    assert queue.take() is None
    clock.now += 15
    assert queue.take() == A
    assert not queue.lock(A)
    assert queue.take() is None
    queue.unlock(B)
    assert queue.take() == B


def test_a_key_that_is_locked_while_it_waits_for_a_slot_is_not_handed_out(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(limit=lambda: 1, clock=clock)
    queue.add(A)
    queue.add(B)
    assert (queue.take(), queue.take()) == (A, None)
    assert queue.lock(B)
    queue.done(A)
    assert queue.take() is None
    queue.unlock(B)
    assert queue.take() == B


def test_keys_within_a_tick_are_due_together(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(tick=0.5, clock=clock)
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


def test_a_key_can_be_moved_to_a_later_time(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add(A)
    queue.move(A, 3)
    assert queue.take() is None
    clock.now += 3
    assert queue.take() == A
    queue.done(A)
    assert queue.take() is None


def test_only_the_earliest_of_several_times_counts(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after(A, 15)
    queue.add_after(A, 20)
    queue.add(A)
    assert queue.take() == A
    queue.done(A)
    clock.now += 60
    assert queue.take() is None


def test_a_key_is_not_handed_out_again_before_done(queue: WorkQueue[str]) -> None:
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    assert queue.take() is None
    queue.add(B)
    assert queue.take() == B, "others are not blocked"
    queue.done(A)
    assert queue.take() == A
    queue.done(A)
    assert queue.take() is None


def test_a_key_that_is_delayed_while_processed_keeps_its_due_time(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add(A)
    queue.take()
    queue.add_after(A, 15)
    queue.done(A)
    assert queue.take() is None
    clock.now += 15
    assert queue.take() == A


def test_the_length_is_the_number_of_scheduled_keys(queue: WorkQueue[str]) -> None:
    queue.add(A)
    queue.add(A)
    queue.add_after(B, 15)
    assert len(queue) == 2
    queue.take()
    assert len(queue) == 1


async def test_get_wakes_up_when_a_delay_has_passed() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after(A, 0.01)
    assert await asyncio.wait_for(queue.get(), 60) == A


async def test_several_waiters_share_the_keys(queue: WorkQueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in (A, B, C):
        queue.add(key)
    assert set(await asyncio.gather(*waiting)) == {A, B, C}


async def test_close_ends_every_get(queue: WorkQueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.close()
    assert [await task for task in waiting] == [None, None]
    queue.add(A)
    assert await queue.get() is None


def test_lag_is_the_time_since_the_key_was_due(clock: Clock) -> None:
    lags: list[float] = []
    queue: WorkQueue[str] = WorkQueue(clock=clock, on_lag=lags.append)
    queue.add(A)
    assert queue.take() == A
    queue.add_after(B, 10)
    clock.now += 12.5
    assert queue.take() == B
    assert queue.take() is None
    assert lags == [0.0, 2.5]


def shared(clock: Clock, *, limit: int, spare: int) -> WorkQueue[str]:
    """A queue whose keys are such as a/1, in the namespace a."""
    return WorkQueue(namespace=lambda key: key.partition("/")[0], limit=lambda: limit, spare=spare, clock=clock)


def test_urgent_keys_come_first_and_namespaces_take_turns(clock: Clock) -> None:
    queue = shared(clock, limit=1, spare=0)
    for key in ("a/1", "a/2", "a/3", "b/1"):
        queue.add(key)
    assert queue.take() == "a/1"
    queue.add_urgent("a/3")
    queue.add_urgent("a/1")
    taken = []
    for key in ("a/1", "a/3", "a/1", "b/1", "a/2"):
        queue.done(key)
        taken.append(queue.take())
    assert taken == ["a/3", "a/1", "b/1", "a/2", None]


def test_a_key_that_was_urgent_is_not_urgent_the_next_time(queue: WorkQueue[str]) -> None:
    queue.add_urgent(A)
    assert queue.take() == A
    queue.done(A)
    queue.add(B)
    queue.add(A)
    assert [queue.take(), queue.take()] == [B, A]


def test_one_key_of_a_namespace_is_handed_out_at_a_time_also_if_others_are_urgent(clock: Clock) -> None:
    queue = shared(clock, limit=0, spare=2)
    for key in ("a/1", "b/1", "c/1"):
        queue.add(key)
    queue.add_urgent("a/2")
    queue.add_urgent("a/3")
    assert [queue.take() for _ in range(3)] == ["a/2", "b/1", None]
    queue.done("a/2")
    assert queue.take() == "a/3"
    queue.done("b/1")
    assert [queue.take(), queue.take()] == ["c/1", None]
