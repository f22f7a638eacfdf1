"""Client-side rate limits, and the gate for writes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext

import pytest

from kube.aio.fairness import FairSemaphore, QueueFullError, for_namespace
from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError
from kube.controller.flowcontrol import NotLeaderError, ThrottledClient, TokenBucket
from tests.kube.scripted_api import ScriptedApi, busy


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_callers_wait_for_the_rate_after_the_burst(clock: Clock) -> None:
    bucket = TokenBucket(qps=64, burst=2, clock=clock)
    waiting = [asyncio.create_task(bucket.take()) for _ in range(4)]
    for tokens in (2, 3, 4):
        await asyncio.sleep(0)
        bucket.resize(qps=64, burst=2)
        await asyncio.sleep(0)
        assert (sum(task.done() for task in waiting), len(bucket)) == (tokens, 4 - tokens)
        clock.now += 1 / 64


async def test_callers_with_first_go_first_and_those_with_last_last(clock: Clock) -> None:
    bucket = TokenBucket(qps=64, burst=0, clock=clock)
    order: list[str] = []

    async def take(name: str) -> None:
        await bucket.take(first=name.startswith("scale"), last=name.startswith("look"))
        order.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name in ("look 0", "status 0", "status 1", "scale 0", "scale 1"):
            tasks.create_task(take(name))
        await asyncio.sleep(0)
        clock.now += 1
        bucket.resize(qps=64, burst=5)
        clock.now += 1
    assert order == ["scale 0", "scale 1", "status 0", "status 1", "look 0"]


async def test_waiting_namespaces_are_served_round_robin(clock: Clock) -> None:
    bucket = TokenBucket(qps=64, burst=0, clock=clock)
    order: list[str] = []

    async def take(name: str) -> None:
        with for_namespace(name[0]):
            await bucket.take(first=name.endswith("!"))
        order.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name in ("a1", "a2", "a3", "b1", "a4!", "a5!", "c1!", "b2"):
            tasks.create_task(take(name))
        await asyncio.sleep(0)
        bucket.resize(qps=64, burst=8)
        clock.now += 1
        bucket.resize(qps=64, burst=8)
    assert order == ["a4!", "c1!", "a5!", "a1", "b1", "a2", "b2", "a3"]


@pytest.mark.parametrize("is_handed_out", [True, False])
async def test_a_caller_that_is_cancelled_with_its_token_passes_it_on(clock: Clock, is_handed_out: bool) -> None:
    bucket = TokenBucket(qps=64, burst=2, clock=clock)
    assert bucket.try_take()
    assert bucket.try_take()
    first, second = asyncio.create_task(bucket.take()), asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    clock.now += 1.5 / 64
    if is_handed_out:
        bucket.resize(qps=64, burst=2)
        first.cancel()
    else:
        first.cancel()
        bucket.resize(qps=64, burst=2)
    async with asyncio.timeout(60):
        await second
    assert first.cancelled()
    assert not bucket.try_take()
    clock.now += 0.5 / 64
    assert bucket.try_take()


async def test_a_newcomer_does_not_overtake_those_that_wait(clock: Clock) -> None:
    bucket = TokenBucket(qps=64, burst=1, clock=clock)
    await bucket.take()
    first = asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    clock.now += 1 / 64
    newcomer = asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (first.done(), newcomer.done(), len(bucket)) == (True, False, 1)
    newcomer.cancel()
    await asyncio.gather(newcomer, return_exceptions=True)
    assert len(bucket) == 0


@pytest.mark.looptime
async def test_a_caller_waits_for_the_rest_of_its_token() -> None:
    loop = asyncio.get_running_loop()
    bucket = TokenBucket(qps=4, burst=1, clock=loop.time)
    await bucket.take()
    await asyncio.sleep(0.1)
    await bucket.take()
    assert loop.time() == pytest.approx(0.25, abs=0.001)


async def test_token_for_a_caller_that_was_just_cancelled_goes_to_the_next(clock: Clock) -> None:
    bucket = TokenBucket(qps=64, burst=1, clock=clock)
    await bucket.take()
    first, second = asyncio.create_task(bucket.take()), asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    first.cancel()
    clock.now += 1 / 64
    bucket.resize(qps=64, burst=1)  # before the first one's task has run
    await asyncio.sleep(0)
    assert (first.cancelled(), second.done()) == (True, True)


async def test_resize_changes_the_rate_of_those_that_wait(clock: Clock) -> None:
    bucket = TokenBucket(qps=1 / 3600, burst=1, clock=clock)
    await bucket.take()
    waiting = asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    bucket.resize(qps=64, burst=1)
    clock.now += 1 / 64
    async with asyncio.timeout(60):
        await waiting
    for qps in (-1, 0):
        bucket.resize(qps=qps, burst=1)
        assert all(bucket.try_take() for _ in range(100))


def test_the_bucket_fills_up_to_its_burst_and_no_further(clock: Clock) -> None:
    bucket = TokenBucket(qps=4, burst=2, clock=clock)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    clock.now += 0.25
    assert [bucket.try_take() for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


async def test_every_verb_of_a_client_waits_for_its_token(api: ScriptedApi, kube: KubeClient, clock: Clock) -> None:
    bucket = TokenBucket(qps=1000, burst=4, clock=clock)
    client = ThrottledClient(kube, bucket)
    for verb in ("GET", "POST", "PUT", "PATCH"):
        api.on(verb, "/thing", {"verb": verb})
    assert await client.get("/thing", {"q": "1"}) == {"verb": "GET"}
    assert await client.post("/thing", {"is": "new"}) == {"verb": "POST"}
    assert await client.put("/thing", {"is": "whole"}) == {"verb": "PUT"}
    assert await client.patch("/thing", {"is": "part"}) == {"verb": "PATCH"}
    assert [(asked.query, asked.body) for asked in api.requests] == [
        ({"q": "1"}, None),
        *(({}, {"is": each}) for each in ("new", "whole", "part")),
    ]
    assert not bucket.try_take()
    waiting = asyncio.create_task(client.get("/thing"))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.now += 1
    assert await waiting == {"verb": "GET"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, ["GET", "PUT"]), ({"writes_first": True}, ["PUT", "GET"]), ({"last": True}, ["PUT", "GET"])],
)
async def test_a_client_can_send_its_writes_first_or_its_reads_last(
    api: ScriptedApi, kube: KubeClient, clock: Clock, options: dict[str, bool], expected: list[str]
) -> None:
    bucket = TokenBucket(qps=1, burst=1, clock=clock)
    assert bucket.try_take()
    client = ThrottledClient(kube, bucket, **options)  # type: ignore[arg-type]
    api.on("GET", "/thing", {})
    api.on("PUT", "/thing", {})
    async with asyncio.TaskGroup() as tasks:
        for request in (client.get("/thing"), client.put("/thing", {})):
            tasks.create_task(request)
        await asyncio.sleep(0)
        for sent in ([], expected[:1]):
            await api.until(lambda sent=sent: len(api.requests) == len(sent))  # type: ignore[misc]
            clock.now += 1
            bucket.resize(qps=1, burst=1)
    assert [asked.method for asked in api.requests] == expected


async def test_requests_in_flight_are_limited_with_a_queue_for_each_namespace(kube: KubeClient, clock: Clock) -> None:
    slots, bucket = FairSemaphore(1, max_waiting=1), TokenBucket(qps=1, burst=0, clock=clock)
    client = ThrottledClient(kube, bucket, slots=slots)
    waiting = []
    for namespace in ("shop", "shop", "other"):
        with for_namespace(namespace):
            waiting.append(asyncio.create_task(client.get("/thing")))
    await asyncio.sleep(0)
    assert (len(bucket), slots.waiting) == (1, 2)
    with for_namespace("shop"), pytest.raises(QueueFullError):
        await client.get("/thing")
    for task in waiting:
        task.cancel()


async def test_a_request_is_in_flight_until_its_response_is_read(api: ScriptedApi, kube: KubeClient) -> None:
    slots = FairSemaphore(1)
    client = ThrottledClient(kube, TokenBucket(qps=0, burst=1), slots=slots)
    api.on("GET", "/thing", {"fine": True})
    async with AsyncExitStack() as held:
        assert await client.get_bytes("/thing", held=held) == b'{"fine": true}'
        assert not slots.try_acquire("shop")
    assert slots.try_acquire("shop")


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "PATCH"])
async def test_a_repetition_waits_for_a_token_of_its_own(
    verb: str, api: ScriptedApi, kube: KubeClient, clock: Clock
) -> None:
    async def sleep(_: float) -> None:
        pass

    kube.retries.sleep = sleep
    bucket = TokenBucket(qps=1, burst=4, clock=clock)
    client = ThrottledClient(kube, bucket)
    api.on(verb, "/thing", busy)
    api.then(verb, "/thing", busy)
    api.then(verb, "/thing", {"fine": True})
    calls: dict[str, Callable[..., Awaitable[object]]] = {
        "GET": client.get,
        "POST": client.post,
        "PUT": client.put,
        "PATCH": client.patch,
    }
    assert await calls[verb]("/thing", {}) == {"fine": True}
    assert len(api.requests) == 3
    assert [bucket.try_take(), bucket.try_take()] == [True, False]


async def test_a_read_has_the_time_of_the_client_for_its_retries(api: ScriptedApi, kube: KubeClient) -> None:
    async def sleep(_: float) -> None:
        pass

    kube.retries.sleep = sleep
    for seconds, requests in ((0.5, 1), (None, 2)):
        api.requests.clear()
        api.on("GET", "/thing", busy)
        api.then("GET", "/thing", {})
        client = ThrottledClient(kube, TokenBucket(qps=-1, burst=1), get_seconds=seconds)
        with pytest.raises(StatusError) if seconds else nullcontext():
            await client.get("/thing")
        assert len(api.requests) == requests


async def test_a_write_is_not_repeated_when_the_lease_is_lost_meanwhile(api: ScriptedApi, kube: KubeClient) -> None:
    leading = True

    async def sleep(_: float) -> None:
        nonlocal leading
        leading = False

    kube.retries.sleep = sleep
    reported: list[object] = []
    client = ThrottledClient(
        kube, TokenBucket(qps=-1, burst=1), may_write=lambda: leading, on_error=lambda *what: reported.append(what)
    )
    for verb, write in (("POST", client.post), ("PUT", client.put), ("PATCH", client.patch)):
        leading = True
        api.on(verb, "/thing", busy)
        with pytest.raises(NotLeaderError):
            await write("/thing", {})
    assert ([asked.method for asked in api.requests], reported) == (["POST", "PUT", "PATCH"], [])


async def test_request_that_succeeds_on_retry_is_no_failure(api: ScriptedApi, kube: KubeClient) -> None:
    reported: list[object] = []

    async def sleep(_: float) -> None:
        pass

    kube.retries.sleep = sleep
    client = ThrottledClient(kube, TokenBucket(qps=-1, burst=1), on_error=lambda *what: reported.append(what))
    api.on("GET", "/thing", busy)
    api.then("GET", "/thing", {"fine": True})
    assert await client.get("/thing") == {"fine": True}
    assert reported == []


async def test_each_failed_request_is_reported_with_its_group_and_code(api: ScriptedApi, kube: KubeClient) -> None:
    reported: list[tuple[str, int | None]] = []
    bucket = TokenBucket(qps=-1, burst=1)
    client = ThrottledClient(kube, bucket, on_error=lambda group, code: reported.append((group, code)))
    api.on("GET", "/apis/apps/v1/deployments", {})
    api.fail("PUT", "/apis/apps/v1/namespaces/default/deployments/web/scale", 409, "changed")
    api.on("GET", "/apis/external.metrics.k8s.io/v1beta1", b"<html>")
    await client.get("/apis/apps/v1/deployments")
    with pytest.raises(StatusError):
        await client.put("/apis/apps/v1/namespaces/default/deployments/web/scale", {})
    with pytest.raises(StatusError):
        await client.post("/api/v1/namespaces/default/events", {})
    with pytest.raises(KubeError):
        await client.get("/apis/external.metrics.k8s.io/v1beta1")
    with pytest.raises(StatusError):
        await client.patch("/apis/milliscale.io/v1/absent", {})
    assert reported == [("apps", 409), ("", 404), ("external.metrics.k8s.io", None), ("milliscale.io", 404)]


async def test_a_process_that_may_not_write_can_read(api: ScriptedApi, kube: KubeClient) -> None:
    client = ThrottledClient(kube, TokenBucket(qps=-1, burst=1), may_write=lambda: False)
    for verb in ("GET", "POST", "PUT", "PATCH"):
        api.on(verb, "/thing", {})
    await client.get("/thing")
    for write in (client.post, client.put, client.patch):
        with pytest.raises(NotLeaderError):
            await write("/thing", {})
    assert [asked.method for asked in api.requests] == ["GET"]


async def test_the_lease_is_checked_when_the_token_is_there(api: ScriptedApi, kube: KubeClient, clock: Clock) -> None:
    """A lease can run out while a write waits for its turn."""
    leading = True
    bucket = TokenBucket(qps=64, burst=1, clock=clock)
    client = ThrottledClient(kube, bucket, may_write=lambda: leading)
    api.on("PUT", "/thing", {})
    await client.put("/thing", {})
    waiting = asyncio.create_task(client.put("/thing", {}))
    await asyncio.sleep(0)
    leading = False
    clock.now += 1
    bucket.resize(qps=64, burst=1)
    with pytest.raises(NotLeaderError, match=r"^this process does not hold the lease any more$"):
        await waiting
    assert len(api.requests) == 1
