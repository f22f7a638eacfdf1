"""Writing statuses: what goes to the API server, and what its refusals become."""

import asyncio
from dataclasses import replace

import pytest

from autoscaler.core.model import Condition, CurrentMetric, Status
from autoscaler.loop.status import StatusWriteError, StatusWriter
from autoscaler.loop.throttle import ThrottledClient, TokenBucket
from autoscaler.objects.hpa import RefusedHPA, TrackedHPA, track_hpa
from autoscaler.objects.workloads import track_pod
from kube.client import KubeClient
from tests.autoscaler.scripted_api import ScriptedApi

PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
METADATA = {
    "name": "web",
    "namespace": "default",
    "uid": "u-1",
    "resourceVersion": "7",
    "labels": {"team": "a"},
    "annotations": {"note": "kept"},
}


@pytest.fixture
def tracked() -> TrackedHPA:
    tracked = track_hpa(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {**METADATA, "managedFields": [{"manager": "kubectl"}]},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [{"type": "Pods", "pods": {"metric": {"name": "packets"}, "target": {"type": "Value"}}}],
            },
        }
    )
    assert isinstance(tracked, TrackedHPA)
    return tracked


async def test_metadata_goes_back_as_it_came(api: ScriptedApi, client: ThrottledClient, tracked: TrackedHPA) -> None:
    api.on("PUT", PATH, {})
    await StatusWriter(client).write(tracked, Status(current_replicas=2, desired_replicas=3))
    body = api.named("PUT", PATH)[0].body
    assert body["metadata"] == METADATA
    assert (body["status"]["currentReplicas"], body["status"]["desiredReplicas"]) == (2, 3)


async def test_a_conflict_is_an_error_for_this_step(
    api: ScriptedApi, client: ThrottledClient, tracked: TrackedHPA
) -> None:
    api.fail("PUT", PATH, 409, "the object has been modified")
    with pytest.raises(StatusWriteError, match="the object has been modified"):
        await StatusWriter(client).write(tracked, Status())
    assert len(api.named("PUT")) == 1


VALID = Condition(
    type="ScalingActive", status="True", reason="ValidMetricFound", message="from a", last_transition_ms=0
)
STORED = Status(current_replicas=2, desired_replicas=2, last_scale_ms=1000, conditions=(VALID,))
NEWS = [
    replace(STORED, last_scale_ms=2000),
    replace(STORED, current_replicas=3),
    replace(STORED, desired_replicas=3),
    replace(STORED, observed_generation=2),
    replace(STORED, conditions=(replace(VALID, reason="FailedGetPodsMetric"),)),
    replace(STORED, conditions=(replace(VALID, status="False"),)),
    replace(STORED, conditions=()),
]
NO_NEWS = [
    replace(STORED, current_metrics=(CurrentMetric(average_value=1),)),
    replace(STORED, conditions=(replace(VALID, message="from b"),)),
]


@pytest.mark.parametrize(
    ("status", "written"), [*((status, True) for status in NEWS), *((status, False) for status in NO_NEWS)]
)
async def test_a_status_that_waits_is_given_up_for_a_newer_one_if_it_only_has_newer_values(
    status: Status, written: bool, api: ScriptedApi, kube: KubeClient, tracked: TrackedHPA
) -> None:
    now = [0.0]
    bucket = TokenBucket(qps=64, burst=1, clock=lambda: now[0])
    await bucket.take()
    api.on("PUT", PATH, {})
    tracked = replace(tracked, hpa=replace(tracked.hpa, status=STORED))
    superseded = asyncio.get_running_loop().create_future()
    writer = StatusWriter(ThrottledClient(kube, bucket))
    assert not writer.free
    writing = asyncio.create_task(writer.write(tracked, status, superseded=superseded))
    await asyncio.sleep(0)
    superseded.set_result(None)
    await asyncio.sleep(0)
    now[0] = 1.0
    async with asyncio.timeout(60):
        assert await writing is written
    assert len(api.named("PUT", PATH)) == written


async def test_news_is_written_before_newer_values(api: ScriptedApi, kube: KubeClient, tracked: TrackedHPA) -> None:
    now = [0.0]
    bucket = TokenBucket(qps=64, burst=1, clock=lambda: now[0])
    await bucket.take()
    api.on("PUT", PATH, {})
    tracked = replace(tracked, hpa=replace(tracked.hpa, status=STORED))
    writer = StatusWriter(ThrottledClient(kube, bucket))
    values, news = (asyncio.create_task(writer.write(tracked, status)) for status in (NO_NEWS[0], NEWS[0]))
    await asyncio.sleep(0)
    now[0] += 1 / 64
    async with asyncio.timeout(60):
        await news
    assert not values.done()
    now[0] += 1 / 64
    await values


async def test_newer_values_wait_where_the_old_ones_stood(
    api: ScriptedApi, kube: KubeClient, tracked: TrackedHPA
) -> None:
    now = [0.0]
    bucket = TokenBucket(qps=64, burst=1, clock=lambda: now[0])
    await bucket.take()
    api.on("PUT", PATH, {})
    api.on("PUT", PATH.replace("web", "api"), {})
    web = replace(tracked, hpa=replace(tracked.hpa, status=STORED))
    other = replace(web, hpa=replace(web.hpa, name="api"))
    writer = StatusWriter(ThrottledClient(kube, bucket))
    superseded = asyncio.get_running_loop().create_future()
    old = asyncio.create_task(writer.write(web, NO_NEWS[0], superseded=superseded))
    await asyncio.sleep(0)
    others = asyncio.create_task(writer.write(other, NO_NEWS[0]))
    await asyncio.sleep(0)
    superseded.set_result(None)
    assert not await old
    newer = asyncio.create_task(writer.write(web, NO_NEWS[1]))
    await asyncio.sleep(0)
    now[0] += 1 / 64
    async with asyncio.timeout(60):
        await newer
    # Having been written, it is behind all others again.
    last = asyncio.create_task(writer.write(web, NO_NEWS[0]))
    await asyncio.sleep(0)
    now[0] += 1 / 64
    async with asyncio.timeout(60):
        await others
    assert not last.done()
    now[0] += 1 / 64
    await last


def test_what_cannot_be_understood_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"maxReplicas": "many", "containers": 3}}
    assert isinstance(track_hpa(odd), RefusedHPA)  # which will be told so
    assert track_pod(odd) is None
    assert [record.message.count("default/odd") for record in caplog.records] == [1]
