"""Events: content, counts of repetitions, and that they never delay reconciliations."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kube.api.client import KubeUnreachable
from kube.api.status import StatusError
from kube.controller.events import EventRecorder, ObjectReference
from kube.controller.flowcontrol import NotLeaderError, ThrottledClient
from tests.kube.scripted_api import ScriptedApi

EVENTS = "/api/v1/namespaces/default/events"
SECOND = 1_000_000_000
COMPONENT = "horizontal-pod-autoscaler"


class Clock:
    now = 1_767_323_045 * SECOND

    def __call__(self) -> int:
        return self.now


def regarding(name: str = "web", uid: str = "u-1") -> ObjectReference:
    return ObjectReference(
        api_version="autoscaling/v2",
        kind="HorizontalPodAutoscaler",
        namespace="default",
        name=name,
        uid=uid,
        resource_version="5",
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def recorder(api: ScriptedApi, client: ThrottledClient, clock: Clock) -> AsyncIterator[EventRecorder]:
    api.on("POST", EVENTS, lambda recorded: recorded.body)
    recorder = EventRecorder(client, component=COMPONENT, clock=clock, monotonic=lambda: clock.now / SECOND)
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def patch_any_event(api: ScriptedApi) -> None:
    name = api.named("POST")[-1].body["metadata"]["name"]
    api.on("PATCH", f"{EVENTS}/{name}", {})


async def test_an_event_is_written_with_all_that_kubectl_shows(api: ScriptedApi, recorder: EventRecorder) -> None:
    recorder.record(regarding(), "Normal", "SuccessfulRescale", "New size: 3; reason: All metrics below target")
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
    assert written["source"] == {"component": COMPONENT}
    assert written["count"] == 1
    assert written["firstTimestamp"] == written["lastTimestamp"] == "2026-01-02T03:04:05Z"


async def test_a_repeated_event_only_counts_up(api: ScriptedApi, recorder: EventRecorder, clock: Clock) -> None:
    for repetition in range(3):
        recorder.record(regarding(), "Warning", "FailedGetScale", "not found")
        await recorder.flush()
        if repetition == 0:
            patch_any_event(api)
        clock.now += 15 * SECOND
    assert len(api.named("POST")) == 1
    assert [recorded.body for recorded in api.named("PATCH")] == [
        {"count": 2, "lastTimestamp": "2026-01-02T03:04:20Z", "message": "not found"},
        {"count": 3, "lastTimestamp": "2026-01-02T03:04:35Z", "message": "not found"},
    ]


@pytest.mark.parametrize(
    "other",
    [
        (regarding(), "Normal", "A", "x"),
        (regarding(), "Warning", "B", "x"),
        (regarding(), "Warning", "A", "y"),
        (regarding(uid="u-2"), "Warning", "A", "x"),
    ],
    ids=["type", "reason", "message", "object of the same name"],
)
async def test_events_that_differ_in_any_field_are_not_aggregated(
    other: tuple[ObjectReference, str, str, str], api: ScriptedApi, recorder: EventRecorder
) -> None:
    recorder.record(regarding(), "Warning", "A", "x")
    recorder.record(*other)
    await recorder.flush()
    names = [recorded.body["metadata"]["name"] for recorded in api.named("POST")]
    assert len(set(names)) == 2


async def test_expired_event_is_created_again_with_its_count(
    api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    for _ in range(2):
        recorder.record(regarding(), "Warning", "A", "x")
        await recorder.flush()  # the second one's PATCH gets 404
        clock.now += 15 * SECOND
    first, second = (recorded.body for recorded in api.named("POST"))
    assert (first["count"], second["count"]) == (1, 2)
    assert second["metadata"] == first["metadata"]
    assert (second["firstTimestamp"], second["lastTimestamp"]) == ("2026-01-02T03:04:05Z", "2026-01-02T03:04:20Z")


async def test_event_repeated_while_queued_is_sent_once(api: ScriptedApi, recorder: EventRecorder) -> None:
    for _ in range(3):
        recorder.record(regarding(), "Warning", "A", "x")
    await recorder.flush()
    assert [(recorded.method, recorded.body["count"]) for recorded in api.requests] == [("POST", 3)]


async def test_tenth_and_later_similar_events_are_combined(
    api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    for number in range(12):
        if number == 10:
            patch_any_event(api)
        recorder.record(regarding(), "Normal", "SuccessfulRescale", f"New size: {number}")
        await recorder.flush()
        clock.now += 15 * SECOND
    recorder.record(regarding(), "Normal", "OtherReason", "New size: 12")
    await recorder.flush()
    written = [recorded.body["message"] for recorded in api.named("POST")]
    assert written == [
        *(f"New size: {number}" for number in range(9)),
        "(combined from similar events): New size: 9",
        "New size: 12",
    ]
    assert [(recorded.body["count"], recorded.body["message"]) for recorded in api.named("PATCH")] == [
        (2, "(combined from similar events): New size: 10"),
        (3, "(combined from similar events): New size: 11"),
    ]


@pytest.mark.parametrize(("seconds", "combined"), [(600, True), (601, False)])
async def test_similar_events_are_counted_for_ten_minutes(
    seconds: int, combined: bool, api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    for number in range(9):
        recorder.record(regarding(), "Normal", "A", f"message {number}")
    await recorder.flush()
    clock.now += seconds * SECOND
    recorder.record(regarding(), "Normal", "A", "message 9")
    await recorder.flush()
    assert api.requests[-1].body["message"].startswith("(combined") is combined


async def test_message_among_the_last_nine_is_not_combined(api: ScriptedApi, recorder: EventRecorder) -> None:
    for number in [*range(10), 5]:
        recorder.record(regarding(), "Normal", "A", f"message {number}")
    await recorder.flush()
    messages = [recorded.body["message"] for recorded in api.named("POST")]
    assert messages[9:] == ["(combined from similar events): message 9"]
    assert messages.count("message 5") == 1


@pytest.mark.parametrize("event_type", ["Warning", "Normal"])
async def test_a_flood_of_events_about_one_object_is_cut_off(
    event_type: str, api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    def posted() -> int:
        return len(api.named("POST"))

    for number in range(40):  # each of another reason, so that none is similar
        recorder.record(regarding(), event_type, f"Reason{number}", "x")
    await recorder.flush()
    assert posted() == 25
    other = "Normal" if event_type == "Warning" else "Warning"
    recorder.record(regarding("api"), event_type, "A", "another object is not affected")
    recorder.record(regarding(), other, "A", "nor are events of the other type")
    await recorder.flush()
    assert posted() == 27
    clock.now += 300 * SECOND
    for number in range(2):
        recorder.record(regarding(), event_type, f"Later{number}", "x")
    await recorder.flush()
    assert posted() == 28


class Sent:
    """A client that counts what is written."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.updated = 0

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.created.append(body["involvedObject"]["name"])
        return {}

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.updated += 1
        return {}


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[EventRecorder, Sent, Clock]]:
    clock, sent = Clock(), Sent()
    recorder = EventRecorder(
        cast(ThrottledClient, sent), component=COMPONENT, clock=clock, monotonic=lambda: clock.now / SECOND
    )
    task = asyncio.create_task(recorder.run())
    yield recorder, sent, clock
    task.cancel()


async def test_events_about_twice_as_many_objects_as_there_are_are_counted() -> None:
    async with recording() as (recorder, sent, clock):
        recorder.resize(2500)
        for _ in range(2):
            for number in range(5000):
                recorder.record(regarding(f"web-{number}", uid=str(number)), "Warning", "FailedGetScale", "not found")
                if number % 500 == 499:
                    await recorder.flush()
                    clock.now += 100 * SECOND
    assert (len(sent.created), len(set(sent.created)), sent.updated) == (5000, 5000, 5000)


async def test_events_about_the_object_that_was_used_longest_ago_are_forgotten() -> None:
    async with recording() as (recorder, sent, clock):
        recorder.resize(0)
        for number in [*range(4097), 1, 0, 1, 500]:
            recorder.record(regarding(f"web-{number}", uid=str(number)), "Warning", "A", "x")
            if number % 500 == 0:
                await recorder.flush()
                clock.now += 100 * SECOND
    assert (len(sent.created), sent.created[-1], sent.updated) == (4098, "web-0", 3)


async def test_counts_of_an_object_are_those_of_its_latest_64_events() -> None:
    async with recording() as (recorder, sent, clock):
        for number in [*range(65), 1, 0]:
            recorder.record(regarding(), "Warning", f"Reason{number}", "x")
            await recorder.flush()
            clock.now += 300 * SECOND
    assert (len(sent.created), sent.updated) == (66, 1)


@pytest.mark.looptime
async def test_events_of_all_objects_together_have_a_limit() -> None:
    loop, sent, calls = asyncio.get_running_loop(), Sent(), itertools.count()
    recorder = EventRecorder(
        # The loop's time has a resolution of a microsecond: so no timer is early.
        cast(ThrottledClient, sent),
        component=COMPONENT,
        monotonic=lambda: loop.time() + next(calls) * 1e-7,
    )
    recorder.resize(600)
    task = asyncio.create_task(recorder.run())
    for number in range(10):
        for name in range(600):
            recorder.record(regarding(f"web-{name}", uid=str(name)), "Warning", f"Reason{number}", "x")
        await asyncio.sleep(15)
    task.cancel()
    assert 500 + 150 * 7 - 10 <= len(sent.created) + sent.updated <= 500 + 150 * 7 + 10, "burst, and 7 a second"


async def test_events_of_one_namespace_do_not_push_out_those_of_another() -> None:
    sent = Sent()
    recorder = EventRecorder(cast(ThrottledClient, sent), component=COMPONENT)
    for number in range(2000):
        recorder.record(regarding(f"web-{number}", uid=str(number)), "Warning", "A", "x")
    for name in ("other-1", "other-2"):
        recorder.record(replace(regarding(name), namespace="other"), "Warning", "A", "x")
    task = asyncio.create_task(recorder.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    assert sent.created[:4] == ["web-0", "other-1", "web-1", "other-2"]


async def test_events_dropped_by_the_rate_limit_are_counted(
    api: ScriptedApi, recorder: EventRecorder, clock: Clock
) -> None:
    for number in range(25):
        recorder.record(regarding(), "Warning", f"Reason{number}", "x")
    await recorder.flush()
    for _ in range(3):
        recorder.record(regarding(), "Warning", "Reason0", "x")
    await recorder.flush()
    assert api.named("PATCH") == []
    clock.now += 300 * SECOND
    recorder.record(regarding(), "Warning", "Reason0", "x")
    await recorder.flush()
    assert [recorded.body["count"] for recorded in api.named("PATCH")] == [5]


async def test_a_failed_write_is_logged_once(
    api: ScriptedApi, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    api.fail("POST", EVENTS, 403, "events is forbidden")
    for number in range(3):
        recorder.record(regarding(), "Warning", "A", str(number))
    await recorder.flush()
    assert [record.message for record in caplog.records] == ["events cannot be written: events is forbidden"]
    api.on("POST", EVENTS, lambda recorded: recorded.body)
    recorder.record(regarding(), "Warning", "A", "works again")
    await recorder.flush()
    assert api.requests[-1].body["message"] == "works again"


async def test_long_names_and_huge_messages_are_cut(api: ScriptedApi, recorder: EventRecorder) -> None:
    for length in (5000, 100_000):
        recorder.record(regarding("w" * 253), "Warning", "A", "m" * length)
        await recorder.flush()
    assert [len(each.body["metadata"]["name"]) for each in api.named("POST")] == [253, 253]
    assert [len(each.body["message"]) for each in api.named("POST")] == [5000, 16 * 1024]


@pytest.mark.parametrize("end", [".", "-"])
async def test_truncated_name_does_not_end_with_a_separator(
    api: ScriptedApi, recorder: EventRecorder, end: str
) -> None:
    recorder.record(
        regarding("".join("w" if number % 2 else end for number in range(1, 253)) + "w"), "Warning", "A", "m"
    )
    recorder.record(
        regarding("w" + "".join("w" if number % 2 else end for number in range(1, 253))), "Warning", "A", "m"
    )
    await recorder.flush()
    for recorded in api.requests:
        prefix = recorded.body["metadata"]["name"].rpartition(".")[0]
        assert prefix.endswith("w")


class Unreachable:
    """A client that gets no response to the first requests."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or KubeUnreachable("refused")
        self.sent: list[str] = []

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(body["message"])
        if len(self.sent) <= self.failures:
            raise self.error
        return {}


async def recorded(client: Unreachable) -> list[float]:
    """Record two events; for how long was waited between the tries."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    recorder = EventRecorder(cast(ThrottledClient, client), component=COMPONENT, sleep=sleep, random=lambda: 0.25)
    task = asyncio.create_task(recorder.run())
    recorder.record(regarding(), "Warning", "A", "first")
    recorder.record(regarding(), "Warning", "B", "second")
    await recorder.flush()
    task.cancel()
    return waits


async def test_an_event_without_a_response_is_retried_before_the_others() -> None:
    client = Unreachable(3)
    assert await recorded(client) == [2.5, 10, 10]
    assert client.sent == ["first"] * 4 + ["second"]


async def test_after_twelve_tries_an_event_is_given_up() -> None:
    client = Unreachable(12)
    assert await recorded(client) == [2.5] + [10] * 10
    assert client.sent == ["first"] * 12 + ["second"]


@pytest.mark.parametrize("error", [StatusError(500, "", "no"), NotLeaderError("no")], ids=["refused", "not leading"])
async def test_refused_event_is_not_retried(error: Exception) -> None:
    client = Unreachable(1, error)
    assert await recorded(client) == []
    assert client.sent == ["first", "second"]


async def test_existing_event_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The response to an earlier try was lost."""
    client = Unreachable(1, StatusError(409, "AlreadyExists", 'events "web" already exists'))
    assert await recorded(client) == []
    assert client.sent == ["first", "second"]
    assert caplog.records == []


async def test_at_the_end_nothing_is_tried_again() -> None:
    client = Unreachable(100)
    asleep = asyncio.Event()

    async def sleep(_: float) -> None:
        asleep.set()
        await asyncio.Event().wait()

    recorder = EventRecorder(cast(ThrottledClient, client), component=COMPONENT, sleep=sleep)
    task = asyncio.create_task(recorder.run())
    recorder.record(regarding(), "Warning", "A", "first")
    recorder.record(regarding(), "Warning", "B", "second")
    await asleep.wait()
    await recorder.close()
    task.cancel()
    assert client.sent == ["first", "first", "second"]


def test_recording_never_waits_even_when_nothing_is_sent(client: ThrottledClient) -> None:
    recorder = EventRecorder(client, component=COMPONENT)
    for number in range(3000):
        recorder.record(regarding(uid=str(number)), "Warning", "A", "x")
