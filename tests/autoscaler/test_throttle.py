"""Client-side rate limits, and the gate for writes."""

import asyncio
import time

import pytest

from autoscaler.loop.throttle import NotLeading, ThrottledClient, TokenBucket, Urgency
from kube.client import KubeClient, KubeError
from kube.status import StatusError
from tests.autoscaler.scripted_api import ScriptedApi


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
        for number in range(3):
            tasks.create_task(want(f"status {number}", Urgency.OTHER))
        tasks.create_task(want("read", Urgency.SCALE_READ))
        tasks.create_task(want("write", Urgency.SCALE_WRITE))
    assert order == ["write", "read", "status 0", "status 1", "status 2"]


async def test_the_token_of_one_who_gives_up_is_for_the_next() -> None:
    bucket = TokenBucket(qps=20, burst=1)
    await bucket.take()
    first, second = asyncio.create_task(bucket.take()), asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(5):
        await second
    assert first.cancelled()


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
