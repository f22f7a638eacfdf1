"""Client-side rate limits, and the gate for writes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from autoscaler.loop.throttle import NotLeading, Superseded, ThrottledClient, TokenBucket, Urgency
from kube.client import KubeClient, KubeError
from kube.status import StatusError
from tests.autoscaler.scripted_api import ScriptedApi, busy


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_burst_is_free_and_then_the_rate_holds() -> None:
    bucket = TokenBucket(qps=50, burst=3)
    started = time.monotonic()
    for _ in range(3):
        assert bucket.try_take()
    for _ in range(2):
        await bucket.take()
    assert time.monotonic() - started >= 0.039


async def test_who_is_more_urgent_goes_first_and_then_who_came_first() -> None:
    bucket = TokenBucket(qps=100, burst=1)
    await bucket.take()
    order: list[str] = []

    async def want(name: str, urgency: Urgency) -> None:
        await bucket.take(urgency)
        order.append(name)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(want("values", Urgency.ROUTINE))
        for number in range(3):
            tasks.create_task(want(f"status {number}", Urgency.OTHER))
        tasks.create_task(want("read", Urgency.SCALE_READ))
        tasks.create_task(want("write", Urgency.SCALE_WRITE))
    assert order == ["write", "read", "status 0", "status 1", "status 2", "values"]


async def test_the_token_of_one_who_gives_up_is_for_the_next() -> None:
    bucket = TokenBucket(qps=20, burst=1)
    await bucket.take()
    first, second = asyncio.create_task(bucket.take()), asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second
    assert first.cancelled()


async def test_one_who_is_superseded_gives_up_and_no_token_is_lost() -> None:
    bucket = TokenBucket(qps=20, burst=1)
    await bucket.take()
    superseded = asyncio.get_running_loop().create_future()
    first, second = asyncio.create_task(bucket.take(unless=superseded)), asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    assert len(bucket) == 2
    superseded.set_result(None)
    with pytest.raises(Superseded):
        await first
    assert len(bucket) == 1
    async with asyncio.timeout(60):
        await second


async def test_who_gets_a_token_at_once_is_not_superseded() -> None:
    bucket = TokenBucket(qps=20, burst=1)
    superseded = asyncio.get_running_loop().create_future()
    superseded.set_result(None)
    await bucket.take(unless=superseded)


async def test_those_who_gave_up_are_not_kept_while_others_are_more_urgent(clock: Clock) -> None:
    """Their turn may never come."""
    bucket = TokenBucket(qps=1, burst=0, clock=clock)
    urgent = asyncio.create_task(bucket.take(Urgency.SCALE_WRITE))
    for give_up in ("superseded", "cancelled") * 50:
        superseded = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(bucket.take(Urgency.ROUTINE, unless=superseded))
        await asyncio.sleep(0)
        if give_up == "superseded":
            superseded.set_result(None)
        else:
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert len(bucket) == 1
    assert len(bucket._waiting) <= 2
    urgent.cancel()
    await asyncio.gather(urgent, return_exceptions=True)
    assert len(bucket) == 0


async def test_a_bucket_tells_whether_one_would_wait(clock: Clock) -> None:
    bucket = TokenBucket(qps=4, burst=1, clock=clock)
    seen = [bucket.free]
    bucket.try_take()
    seen.append(bucket.free)
    clock.now += 0.25
    seen.append(bucket.free)
    assert seen == [True, False, True]
    assert TokenBucket(qps=0, burst=0).free


def test_the_bucket_fills_up_to_its_burst_and_no_further(clock: Clock) -> None:
    bucket = TokenBucket(qps=4, burst=2, clock=clock)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    clock.now += 0.25
    assert [bucket.try_take() for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("qps", [0, -1])
def test_without_a_rate_there_is_no_limit(qps: float, clock: Clock) -> None:
    bucket = TokenBucket(qps=qps, burst=1, clock=clock)
    assert all(bucket.try_take() for _ in range(100))


async def test_every_verb_of_a_client_waits_for_its_token(api: ScriptedApi, kube: KubeClient, clock: Clock) -> None:
    bucket = TokenBucket(qps=1000, burst=4, clock=clock)
    client = ThrottledClient(kube, bucket)
    for verb in ("GET", "POST", "PUT", "PATCH"):
        api.on(verb, "/thing", {"verb": verb})
    assert await client.get("/thing", {"q": "1"}) == {"verb": "GET"}
    assert await client.post("/thing", {}) == {"verb": "POST"}
    assert await client.put("/thing", {}) == {"verb": "PUT"}
    assert await client.patch("/thing", {}) == {"verb": "PATCH"}
    assert not bucket.try_take()
    waiting = asyncio.create_task(client.get("/thing"))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.now += 1
    assert await waiting == {"verb": "GET"}


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
    assert len(api.asked) == 3
    assert [bucket.try_take(), bucket.try_take()] == [True, False]


async def test_a_write_is_not_repeated_when_the_lease_is_lost_meanwhile(api: ScriptedApi, kube: KubeClient) -> None:
    leading = True

    async def sleep(_: float) -> None:
        nonlocal leading
        leading = False

    kube.retries.sleep = sleep
    told: list[object] = []
    client = ThrottledClient(
        kube, TokenBucket(qps=-1, burst=1), may_write=lambda: leading, on_error=lambda *what: told.append(what)
    )
    for verb, write in (("POST", client.post), ("PUT", client.put), ("PATCH", client.patch)):
        leading = True
        api.on(verb, "/thing", busy)
        with pytest.raises(NotLeading):
            await write("/thing", {})
    assert ([asked.method for asked in api.asked], told) == (["POST", "PUT", "PATCH"], [])


async def test_what_is_repeated_and_succeeds_is_no_failure(api: ScriptedApi, kube: KubeClient) -> None:
    told: list[object] = []

    async def sleep(_: float) -> None:
        pass

    kube.retries.sleep = sleep
    client = ThrottledClient(kube, TokenBucket(qps=-1, burst=1), on_error=lambda *what: told.append(what))
    api.on("GET", "/thing", busy)
    api.then("GET", "/thing", {"fine": True})
    assert await client.get("/thing") == {"fine": True}
    assert told == []


async def test_each_request_that_fails_is_told_with_its_group_and_code(api: ScriptedApi, kube: KubeClient) -> None:
    told: list[tuple[str, int | None]] = []
    bucket = TokenBucket(qps=-1, burst=1)
    client = ThrottledClient(kube, bucket, on_error=lambda group, code: told.append((group, code)))
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
    assert told == [("apps", 409), ("", 404), ("external.metrics.k8s.io", None)]


async def test_a_write_that_is_superseded_while_it_waits_is_not_sent_and_is_no_failure(
    api: ScriptedApi, kube: KubeClient, clock: Clock
) -> None:
    told: list[object] = []
    client = ThrottledClient(kube, TokenBucket(qps=1, burst=0, clock=clock), on_error=lambda *what: told.append(what))
    superseded = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(client.put("/thing", {}, urgency=Urgency.ROUTINE, unless=superseded))
    await asyncio.sleep(0)
    superseded.set_result(None)
    with pytest.raises(Superseded):
        await waiting
    assert (api.asked, told) == ([], [])


async def test_who_may_not_write_still_reads(api: ScriptedApi, kube: KubeClient) -> None:
    client = ThrottledClient(kube, TokenBucket(qps=-1, burst=1), may_write=lambda: False)
    for verb in ("GET", "POST", "PUT", "PATCH"):
        api.on(verb, "/thing", {})
    await client.get("/thing")
    for write in (client.post, client.put, client.patch):
        with pytest.raises(NotLeading):
            await write("/thing", {})
    assert [asked.method for asked in api.asked] == ["GET"]


async def test_whether_it_may_write_is_asked_when_the_token_is_there(api: ScriptedApi, kube: KubeClient) -> None:
    """A lease can run out while a write waits for its turn."""
    leading = True
    client = ThrottledClient(kube, TokenBucket(qps=20, burst=1), may_write=lambda: leading)
    api.on("PUT", "/thing", {})
    await client.put("/thing", {})
    waiting = asyncio.create_task(client.put("/thing", {}))
    await asyncio.sleep(0)
    leading = False
    with pytest.raises(NotLeading):
        await waiting
    assert len(api.asked) == 1
