"""Concurrency limits that namespaces share fairly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from adapter.prometheus import PrometheusBusy, PrometheusClient, PrometheusOptions
from adapter.settings import PrometheusSettings
from kube.aio.fairness import FairSemaphore, QueueFullError, current_namespace, enter_namespace, for_all_namespaces
from kube.serving.options import ServerLimits
from tests.adapter.scripted_prometheus import ONE, responds, scripted
from tests.adapter.serving import POD_PATH, served_adapter


class Callers:
    """Callers of a semaphore that hold a slot, in the order in which they got it."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.got: list[str] = []
        self._semaphore = semaphore
        self._end: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Ask for a slot for each; the first letter is its key."""
        for name in names:
            self._end[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._call(name))
            await settled()

    async def leave(self, name: str) -> None:
        """End the call of one that holds a slot."""
        self._end[name].set()
        await settled()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()
        await asyncio.gather(*(self._tasks[name] for name in names), return_exceptions=True)

    async def _call(self, name: str) -> None:
        async with self._semaphore.slot(name[0]):
            self.got.append(name)
            await self._end[name].wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_free_slot_goes_to_the_key_that_holds_the_fewest() -> None:
    callers = Callers(FairSemaphore(3, max_waiting=10))
    await callers.come("a1", "a2", "a3", "a4", "a5", "b1", "c1", "b2")
    assert callers.got == ["a1", "a2", "a3"]
    for left, got in (("a1", "b1"), ("a2", "c1"), ("a3", "a4"), ("b1", "b2"), ("c1", "a5")):
        await callers.leave(left)
        assert callers.got[-1] == got


async def test_key_that_holds_none_gets_a_spare_slot_at_once() -> None:
    callers = Callers(FairSemaphore(2, max_waiting=10, spare=2))
    await callers.come("a1", "a2", "a3", "b1", "b2", "c1", "d1")
    assert callers.got == ["a1", "a2", "b1", "c1"]
    # a3 would be a second one of its key: it waits until fewer than two are held.
    for left, got in (("a1", "d1"), ("b1", "b2"), ("c1", "b2"), ("d1", "b2"), ("b2", "a3")):
        await callers.leave(left)
        assert callers.got[-1] == got


async def test_free_slots_are_handed_out_when_the_limit_rises() -> None:
    semaphore = FairSemaphore(1)
    callers = Callers(semaphore)
    await callers.come("a1", "a2", "a3")
    semaphore.resize(2)
    await settled()
    assert callers.got == ["a1", "a2"]


async def test_keys_that_hold_equally_many_are_served_in_round_robin() -> None:
    callers = Callers(FairSemaphore(1, max_waiting=10))
    await callers.come("a0", "a1", "a2", "b1", "b2", "c1")
    for name in ("a0", "a1", "b1", "c1", "a2", "b2"):
        assert callers.got[-1] == name
        await callers.leave(name)


async def test_callers_beyond_the_queue_of_their_key_are_refused_and_others_are_not() -> None:
    semaphore = FairSemaphore(1, max_waiting=2)
    callers = Callers(semaphore)
    await callers.come("a1", "a2", "a3")
    with pytest.raises(QueueFullError):
        async with semaphore.slot("a"):
            pass
    await callers.come("b1")
    assert semaphore.waiting == 3
    for left, got in (("a1", "a2"), ("a2", "b1"), ("b1", "a3")):
        await callers.leave(left)
        assert callers.got[-1] == got
    await callers.leave("a3")
    assert semaphore.waiting == 0


async def test_caller_that_is_cancelled_leaves_its_queue_or_its_slot_to_others() -> None:
    callers = Callers(FairSemaphore(1, max_waiting=10))
    await callers.come("a1", "b1", "c1", "d1")
    await callers.cancel("b1")
    # The slot is handed over to c1, which is cancelled before it notices.
    callers._end["a1"].set()
    await asyncio.sleep(0)
    await callers.cancel("a1", "c1")
    await settled()
    assert callers.got[-1] == "d1"
    await callers.leave("d1")
    await callers.come("e1")
    assert callers.got[-1] == "e1"


async def test_slot_is_not_handed_to_a_caller_that_is_cancelled_and_did_not_run_since() -> None:
    semaphore = FairSemaphore(1, max_waiting=10)
    callers = Callers(semaphore)
    await callers.come("a1", "b1", "b2", "c1")
    callers._tasks["b1"].cancel()
    semaphore.release("a")
    await settled()
    assert (callers.got[-1], semaphore.waiting) == ("c1", 1)
    callers._tasks["b2"].cancel()
    semaphore.release("c")
    await settled()
    assert semaphore.waiting == 0
    await asyncio.wait_for(semaphore.acquire("d"), 1.0)


async def test_tasks_work_for_the_namespace_of_the_task_that_created_them() -> None:
    async def seen() -> str:
        return current_namespace()

    enter_namespace("shop")
    assert await asyncio.create_task(seen()) == "shop"
    with for_all_namespaces():
        assert await asyncio.create_task(seen()) == ""
    assert current_namespace() == "shop"


def for_namespace(namespace: str, call: Callable[[], Awaitable[object]]) -> asyncio.Task[object]:
    async def task() -> object:
        enter_namespace(namespace)
        return await call()

    return asyncio.create_task(task())


async def test_queries_of_a_namespace_do_not_wait_behind_those_of_another() -> None:
    async with scripted() as server:
        answered = asyncio.Event()

        async def slow(request: object) -> object:
            await answered.wait()
            return await responds(ONE)(request)  # type: ignore[arg-type]

        server.reply = slow  # type: ignore[assignment]
        options, settings = PrometheusOptions(url=server.url, connections=1), PrometheusSettings(waiting=3)
        async with PrometheusClient(options, settings=settings) as client:
            sent = [for_namespace("noisy", lambda n=n: client.instant(f"noisy{n}")) for n in range(4)]  # type: ignore[misc]
            await server.reached(1)
            with pytest.raises(PrometheusBusy):
                await for_namespace("noisy", lambda: client.instant("too many"))
            sent.append(for_namespace("quiet", lambda: client.instant("quiet")))
            await settled()
            answered.set()
            await asyncio.gather(*sent)
    assert [parameters["query"] for _, _, parameters in server.requests] == [
        "noisy0",
        "noisy1",
        "quiet",
        "noisy2",
        "noisy3",
    ]


async def test_query_of_another_namespace_is_sent_at_once_if_one_has_half_of_the_slots() -> None:
    async with scripted() as server:
        answered = asyncio.Event()

        async def slow(request: object) -> object:
            await answered.wait()
            return await responds(ONE)(request)  # type: ignore[arg-type]

        server.reply = slow  # type: ignore[assignment]
        async with PrometheusClient(PrometheusOptions(url=server.url, connections=8)) as client:
            sent = [for_namespace("noisy", lambda n=n: client.instant(f"noisy{n}")) for n in range(9)]  # type: ignore[misc]
            await server.reached(4)
            quiet = [for_namespace(f"quiet{n}", lambda n=n: client.instant(f"quiet{n}")) for n in range(4)]  # type: ignore[misc]
            await server.reached(8)
            queries = [parameters["query"] for _, _, parameters in server.requests]
            answered.set()
            await asyncio.gather(*sent, *quiet)
    assert sorted(queries) == [*(f"noisy{n}" for n in range(4)), *(f"quiet{n}" for n in range(4))]


async def test_every_request_in_flight_may_have_a_query() -> None:
    requests = ServerLimits().in_flight
    async with scripted() as server:
        server.reply = responds(ONE)
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            enter_namespace("busy")
            await asyncio.gather(*(client.instant(f"q{number}") for number in range(requests)))
    assert len(server.requests) == requests


async def test_requests_of_a_namespace_wait_where_another_one_has_taken_all_slots(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=ServerLimits(in_flight=4, shutdown_seconds=1.0)) as adapter:
        adapter.metrics.hold = asyncio.Event()
        master = adapter.authorities.clients.issue("admin", organizations=["system:masters"], client=True)
        noisy = [asyncio.create_task(adapter.request(POD_PATH, certificate=master)) for _ in range(6)]
        # Four have slots, one waits, and one is refused.
        done, waiting = await asyncio.wait(noisy, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().status for task in done] == [429]
        quiet = asyncio.create_task(adapter.request(POD_PATH.replace("ns-1", "ns-2"), certificate=master))
        # The one that would wait beside it is refused once it waits.
        assert not quiet.done()
        adapter.metrics.hold.set()
        assert (await quiet).status == 200
        assert [reply.status for reply in await asyncio.gather(*waiting)] == [200] * 5


async def test_clients_without_a_certificate_share_one_queue_whatever_namespaces_they_name(tmp_path: Path) -> None:
    async with served_adapter(tmp_path, limits=ServerLimits(in_flight=4, shutdown_seconds=1.0)) as adapter:
        adapter.metrics.hold = asyncio.Event()
        adapter.api.tokens["secret"] = {"username": "bob", "groups": ["system:masters"]}
        bearer = {"Authorization": "Bearer secret"}
        paths = [POD_PATH.replace("ns-1", f"ns-{number}") for number in range(6)]
        sent = [asyncio.create_task(adapter.request(path, headers=bearer)) for path in paths]
        # Four have slots, one waits, and one is refused.
        done, waiting = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().status for task in done] == [429]
        adapter.metrics.hold.set()
        assert [reply.status for reply in await asyncio.gather(*waiting)] == [200] * 5
