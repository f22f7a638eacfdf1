"""Client-side rate limits, and the gate for writes."""

import asyncio

import pytest

from autoscaler.throttle import NotLeading, ThrottledClient, TokenBucket
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


def test_a_burst_is_free_and_then_the_rate_holds(clock: Clock) -> None:
    bucket = TokenBucket(qps=4, burst=3, clock=clock)
    assert [bucket.reserve() for _ in range(5)] == [0, 0, 0, 0.25, 0.5]


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
    assert {bucket.reserve() for _ in range(100)} == {0}
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
    assert await client.get("/thing") == {"verb": "GET"}
    assert bucket.reserve() == 0.002


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
