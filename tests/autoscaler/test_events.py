"""Events: what is written, how repetitions are counted, and that nothing ever stands in the way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autoscaler.core.model import HPA, CrossVersionObjectReference, Spec
from autoscaler.loop.events import EventRecorder
from autoscaler.loop.throttle import ThrottledClient
from tests.autoscaler.scripted_api import Asked, ScriptedApi

EVENTS = "/api/v1/namespaces/default/events"
SECOND = 1_000_000_000


class Clock:
    now = 1_767_323_045 * SECOND

    def __call__(self) -> int:
        return self.now


def hpa(name: str = "web", uid: str = "u-1") -> HPA:
    reference = CrossVersionObjectReference("Deployment", name, "apps/v1")
    spec = Spec(scale_target_ref=reference, min_replicas=1, max_replicas=3, metrics=())
    return HPA(namespace="default", name=name, uid=uid, resource_version="5", spec=spec)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def recorder(api: ScriptedApi, client: ThrottledClient, clock: Clock) -> AsyncIterator[EventRecorder]:
    api.on("POST", EVENTS, lambda asked: asked.body)
    recorder = EventRecorder(client, clock=clock)
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def patch_any_event(api: ScriptedApi) -> None:
    name = api.named("POST")[-1].body["metadata"]["name"]
    api.on("PATCH", f"{EVENTS}/{name}", {})


async def test_an_event_is_written_with_all_that_kubectl_shows(api: ScriptedApi, recorder: EventRecorder) -> None:
    recorder.record(hpa(), "Normal", "SuccessfulRescale", "New size: 3; reason: All metrics below target")
    await recorder.flush()
    written: dict[str, Any] = api.named("POST", EVENTS)[0].body
    assert written["metadata"] == {"name": f"web.{1_767_323_045 * SECOND:x}", "namespace": "default"}
    assert written["involvedObject"] == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "namespace": "default",
        "name": "web",
        "uid": "u-1",
        "resourceVersion": "5",
    }
    assert (written["type"], written["reason"]) == ("Normal", "SuccessfulRescale")
    assert written["message"] == "New size: 3; reason: All metrics below target"
    assert written["source"] == {"component": "horizontal-pod-autoscaler"}
    assert written["count"] == 1
    assert written["firstTimestamp"] == written["lastTimestamp"] == "2026-01-02T03:04:05Z"


async def test_a_repeated_event_only_counts_up(api: ScriptedApi, recorder: EventRecorder, clock: Clock) -> None:
    for repetition in range(3):
        recorder.record(hpa(), "Warning", "FailedGetScale", "not found")
        await recorder.flush()
        if repetition == 0:
            patch_any_event(api)
        clock.now += 15 * SECOND
    assert len(api.named("POST")) == 1
    assert [asked.body for asked in api.named("PATCH")] == [
        {"count": 2, "lastTimestamp": "2026-01-02T03:04:20Z"},
        {"count": 3, "lastTimestamp": "2026-01-02T03:04:35Z"},
    ]


@pytest.mark.parametrize(
    "other",
    [
        (hpa(), "Normal", "A", "x"),
        (hpa(), "Warning", "B", "x"),
        (hpa(), "Warning", "A", "y"),
        (hpa(uid="u-2"), "Warning", "A", "x"),
    ],
    ids=["type", "reason", "message", "object of the same name"],
)
async def test_what_differs_is_another_event(
    other: tuple[HPA, str, str, str], api: ScriptedApi, recorder: EventRecorder
) -> None:
    recorder.record(hpa(), "Warning", "A", "x")
    recorder.record(*other)
    await recorder.flush()
    names = [asked.body["metadata"]["name"] for asked in api.named("POST")]
    assert len(set(names)) == 2


async def test_an_event_that_the_server_has_forgotten_is_written_anew(
    api: ScriptedApi, recorder: EventRecorder
) -> None:
    recorder.record(hpa(), "Warning", "A", "x")
    recorder.record(hpa(), "Warning", "A", "x")  # its PATCH is answered with 404
    await recorder.flush()
    assert [asked.body["count"] for asked in api.named("POST")] == [1, 1]


async def test_a_flood_of_warnings_about_one_object_is_cut_off(
    api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    for number in range(40):
        recorder.record(hpa(), "Warning", "A", f"message {number}")
    recorder.record(hpa("api"), "Warning", "A", "another object is not affected")
    await recorder.flush()
    assert len(api.named("POST")) == 26
    clock.now += 300 * SECOND
    for number in range(2):
        recorder.record(hpa(), "Warning", "A", f"later {number}")
    await recorder.flush()
    assert len(api.named("POST")) == 27


async def test_what_was_done_is_told_however_often(api: ScriptedApi, recorder: EventRecorder) -> None:
    for number in range(40):
        recorder.record(hpa(), "Normal", "SuccessfulRescale", f"New size: {number}")
    await recorder.flush()
    assert len(api.named("POST")) == 40


async def test_failing_to_write_is_said_once_and_ends_nothing(
    api: ScriptedApi, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    api.fail("POST", EVENTS, 403, "events is forbidden")
    for number in range(3):
        recorder.record(hpa(), "Warning", "A", str(number))
    await recorder.flush()
    assert [record.message for record in caplog.records] == ["events cannot be written: events is forbidden"]
    api.on("POST", EVENTS, lambda asked: asked.body)
    recorder.record(hpa(), "Warning", "A", "works again")
    await recorder.flush()
    assert api.asked[-1].body["message"] == "works again"


async def test_long_texts_are_cut_to_what_the_api_takes(api: ScriptedApi, recorder: EventRecorder) -> None:
    recorder.record(hpa("w" * 253), "Warning", "A", "m" * 5000)
    await recorder.flush()
    asked: Asked = api.named("POST")[0]
    assert len(asked.body["metadata"]["name"]) == 253
    assert len(asked.body["message"]) == 1024


@pytest.mark.parametrize("end", [".", "-"])
async def test_a_long_name_is_not_cut_behind_what_separates_its_parts(
    api: ScriptedApi, recorder: EventRecorder, end: str
) -> None:
    recorder.record(hpa("".join("w" if number % 2 else end for number in range(1, 253)) + "w"), "Warning", "A", "m")
    recorder.record(hpa("w" + "".join("w" if number % 2 else end for number in range(1, 253))), "Warning", "A", "m")
    await recorder.flush()
    for asked in api.asked:
        prefix = asked.body["metadata"]["name"].rpartition(".")[0]
        assert prefix.endswith("w")


def test_recording_never_waits_even_when_nothing_is_sent(client: ThrottledClient) -> None:
    recorder = EventRecorder(client)
    for number in range(3000):
        recorder.record(hpa(uid=str(number)), "Warning", "A", "x")
