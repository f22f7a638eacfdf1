"""The workers: what holds one, what does not, how many there are, and how they end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop.queue import WorkQueue
from autoscaler.loop.workers import Workers, workers_for

A, B, C = HPAKey("default", "a"), HPAKey("default", "b"), HPAKey("default", "c")


class Steps:
    """Steps that wait for the test: each until it is released, and some with a rest that waits, too."""

    def __init__(self) -> None:
        self.begun: list[HPAKey] = []
        self.rests: list[HPAKey] = []
        self.ended: list[HPAKey] = []
        self.with_rest: set[HPAKey] = set()
        self.held: dict[HPAKey, asyncio.Event] = {}
        self._moved = asyncio.Condition()

    async def step(self, key: HPAKey) -> Callable[[], Coroutine[None, None, None]] | None:
        await self._note(self.begun, key)
        if key in self.with_rest:
            return lambda: self._rest(key)
        await self._end(key)
        return None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._moved:
            await self._moved.wait_for(condition)

    async def _rest(self, key: HPAKey) -> None:
        await self._note(self.rests, key)
        await self._end(key)

    async def _end(self, key: HPAKey) -> None:
        if key in self.held:
            await self.held[key].wait()
        await self._note(self.ended, key)

    async def _note(self, where: list[HPAKey], key: HPAKey) -> None:
        where.append(key)
        async with self._moved:
            self._moved.notify_all()


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@asynccontextmanager
async def one_worker(queue: WorkQueue, steps: Steps) -> AsyncIterator[Workers]:
    stop = asyncio.Event()
    workers = Workers(queue, step=steps.step, wanted=lambda: 1)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(workers.run(stop))
        yield workers
        stop.set()


async def test_a_step_that_only_has_its_rest_to_do_holds_no_worker(queue: WorkQueue, steps: Steps) -> None:
    steps.with_rest = {A, B}
    steps.held = {A: asyncio.Event(), B: asyncio.Event()}
    for key in (A, B, C):
        queue.add(key)
    async with one_worker(queue, steps) as workers:
        await steps.until(lambda: steps.ended == [C] and steps.rests == [A, B])
        assert workers.busy == 0
        for held in steps.held.values():
            held.set()


async def test_a_step_itself_holds_its_worker(queue: WorkQueue, steps: Steps) -> None:
    steps.held = {A: asyncio.Event()}
    queue.add(A)
    queue.add(B)
    async with one_worker(queue, steps) as workers:
        await steps.until(lambda: bool(steps.begun))
        assert workers.busy == 1
        steps.held[A].set()
        await steps.until(lambda: steps.ended == [A, B])
    assert steps.begun == [A, B]


async def test_no_step_begins_before_the_rest_of_the_last_one_has_ended(queue: WorkQueue, steps: Steps) -> None:
    steps.with_rest = {A}
    steps.held = {A: asyncio.Event()}
    queue.add(A)
    async with one_worker(queue, steps):
        await steps.until(lambda: steps.rests == [A])
        queue.add(A)
        queue.add(B)
        await steps.until(lambda: steps.ended == [B])
        assert steps.begun == [A, B]
        steps.held[A].set()
        await steps.until(lambda: steps.begun == [A, B, A])


async def test_when_it_stops_it_waits_for_the_rests(queue: WorkQueue, steps: Steps) -> None:
    steps.with_rest = {A}
    steps.held = {A: asyncio.Event()}
    queue.add(A)
    stop = asyncio.Event()
    running = asyncio.create_task(Workers(queue, step=steps.step, wanted=lambda: 1).run(stop))
    await steps.until(lambda: steps.rests == [A])
    stop.set()
    queue.add(B)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done()
    steps.held[A].set()
    await running
    assert (steps.begun, steps.ended) == ([A], [A])


@pytest.mark.parametrize("passes", range(4), ids="after {} passes of the event loop".format)
async def test_when_it_is_cancelled_every_key_is_given_back(passes: int, queue: WorkQueue, steps: Steps) -> None:
    """As when the lead is lost, at any moment: the next term must find nothing in work."""
    steps.with_rest = {A}
    steps.held = {A: asyncio.Event(), B: asyncio.Event()}
    queue.add(A)
    queue.add(B)
    workers = Workers(queue, step=steps.step, wanted=lambda: 1)
    running = asyncio.create_task(workers.run(asyncio.Event()))
    await steps.until(lambda: A in steps.begun)
    for _ in range(passes):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (steps.ended, workers.busy) == ([], 0)
    for key in (A, B):
        queue.add(key)
    assert {queue.take(), queue.take()} == {A, B}


def test_so_many_hpas_have_so_many_workers() -> None:
    assert [workers_for(hpas) for hpas in (0, 99, 100, 1_000, 10_000)] == [5, 5, 6, 15, 105]
