"""The workers: how many run, and how they end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kube.controller.workqueue import WorkQueue, run_workers

A, B, OTHER = "default/a", "default/b", "other/a"


class Reconciliations:
    """Reconciliations that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.blocked: dict[str, asyncio.Event] = {}
        self._moved = asyncio.Condition()

    async def reconcile(self, key: str) -> None:
        await self._note(self.begun, key)
        if key in self.blocked:
            await self.blocked[key].wait()
        await self._note(self.ended, key)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._moved:
            await self._moved.wait_for(condition)

    async def _note(self, where: list[str], key: str) -> None:
        where.append(key)
        async with self._moved:
            self._moved.notify_all()


class Queue(WorkQueue[str]):
    """A queue with a limit that a test sets."""

    def __init__(self) -> None:
        self.limit = 1
        super().__init__(namespace=lambda key: key.split("/")[0], limit=lambda: self.limit)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def reconciliations() -> Reconciliations:
    return Reconciliations()


@asynccontextmanager
async def workers(queue: Queue, reconciliations: Reconciliations) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(run_workers(queue, reconciliations.reconcile, stop=stop))
        yield
        stop.set()


async def test_workers_are_added_while_they_run(queue: Queue, reconciliations: Reconciliations) -> None:
    reconciliations.blocked = {A: asyncio.Event()}
    queue.add(A)
    async with workers(queue, reconciliations):
        await reconciliations.until(lambda: reconciliations.begun == [A])
        queue.add(B)
        await asyncio.sleep(0)
        assert (queue.processing, reconciliations.begun) == (1, [A])
        queue.limit = 2
        queue.add(A)  # waits for its reconciliation in flight
        queue.add("default/c")
        await reconciliations.until(lambda: reconciliations.ended == [B, "default/c"])
        reconciliations.blocked[A].set()
        await reconciliations.until(lambda: reconciliations.ended[2:] == [A, A])


async def test_an_object_of_another_namespace_does_not_wait_for_a_worker(
    queue: Queue, reconciliations: Reconciliations
) -> None:
    reconciliations.blocked = {A: asyncio.Event(), OTHER: asyncio.Event()}
    for key in (A, B, OTHER):
        queue.add(key)
    async with workers(queue, reconciliations):
        await reconciliations.until(lambda: len(reconciliations.begun) == 2)
        assert reconciliations.begun == [A, OTHER]
        reconciliations.blocked[OTHER].set()
        await reconciliations.until(lambda: reconciliations.ended == [OTHER])
        assert reconciliations.begun == [A, OTHER], "the namespace with a slow object is over the limit"
        reconciliations.blocked[A].set()
        await reconciliations.until(lambda: reconciliations.ended == [OTHER, A, B])


async def test_stop_waits_for_reconciliations_in_flight_and_begins_no_other(
    queue: Queue, reconciliations: Reconciliations
) -> None:
    reconciliations.blocked = {A: asyncio.Event()}
    queue.add(A)
    stop = asyncio.Event()
    running = asyncio.create_task(run_workers(queue, reconciliations.reconcile, stop=stop))
    await reconciliations.until(lambda: reconciliations.begun == [A])
    stop.set()
    queue.add(B)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done()
    reconciliations.blocked[A].set()
    await running
    assert (reconciliations.begun, reconciliations.ended) == ([A], [A])


async def test_a_cancelled_reconciliation_returns_its_key(queue: Queue, reconciliations: Reconciliations) -> None:
    """As when the Lease is lost: the next term must be able to reconcile the object."""
    reconciliations.blocked = {A: asyncio.Event()}
    queue.add(A)
    running = asyncio.create_task(run_workers(queue, reconciliations.reconcile, stop=asyncio.Event()))
    await reconciliations.until(lambda: reconciliations.begun == [A])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (reconciliations.ended, queue.processing) == ([], 0)
    queue.add(A)
    assert queue.take() == A
