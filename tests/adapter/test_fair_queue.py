"""FairQueue: the order in which objects of several namespaces are checked."""

from __future__ import annotations

import asyncio

import pytest

from adapter.fair_queue import FairQueue
from kube.aio.tasks import Pace


async def taken(queue: FairQueue[str], number: int) -> list[str]:
    """Take keys one after the other."""
    keys = []
    for _ in range(number):
        namespace, key = await queue.get()
        keys.append(key)
        queue.done(namespace)
    return keys


def queue_of(*keys: str, urgent: bool = True) -> FairQueue[str]:
    """A queue of keys such as a/1; the namespace is the first part."""
    queue: FairQueue[str] = FairQueue()
    for key in keys:
        queue.add(key.partition("/")[0], key, urgent=urgent)
    return queue


async def test_namespaces_take_turns() -> None:
    assert await taken(queue_of("a/1", "a/2", "a/3", "b/1"), 4) == ["a/1", "b/1", "a/2", "a/3"]


async def test_urgent_keys_come_first() -> None:
    queue = queue_of("a/1", "b/1", urgent=False)
    queue.add("a", "a/2", urgent=True)
    assert await taken(queue, 3) == ["a/2", "a/1", "b/1"]


async def test_key_is_in_the_queue_once() -> None:
    queue = queue_of("a/1", urgent=False)
    queue.add("a", "a/1", urgent=True)
    queue.add("a", "a/1", urgent=False)
    queue.add("a", "a/2", urgent=False)
    assert await taken(queue, 2) == ["a/1", "a/2"]


async def test_one_key_of_a_namespace_is_handed_out_at_a_time() -> None:
    queue = queue_of("a/1", "a/2", "b/1")
    assert await queue.get() == ("a", "a/1")
    assert await queue.get() == ("b", "b/1")
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a")
    assert await waiting == ("a", "a/2")


async def test_key_that_is_added_while_it_is_handed_out_is_handed_out_again() -> None:
    queue = queue_of("a/1")
    await queue.get()
    queue.add("a", "a/1", urgent=True)
    queue.done("a")
    assert await queue.get() == ("a", "a/1")


async def test_all_waiting_workers_get_keys() -> None:
    queue: FairQueue[str] = FairQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a", "a/1", urgent=True)
    queue.add("b", "b/1", urgent=True)
    assert sorted([await worker for worker in workers]) == [("a", "a/1"), ("b", "b/1")]


async def test_workers_yield_to_the_event_loop_though_their_work_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, pause = 0, Pace.pause

    async def counted(pace: Pace) -> None:
        nonlocal pauses
        pauses += 1
        await pause(pace)

    async def work(_: str) -> None:
        pass

    monkeypatch.setattr(Pace, "pause", counted)
    working = asyncio.create_task(queue_of("a/1", "a/2", "b/1").serve(work))
    for _ in range(3):
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    assert pauses == 3
