"""Going through very many samples in a thread leaves the event loop its turns."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from adapter import turns
from adapter.planning.sample_index import by_object, indexed, matching
from adapter.planning.shared_queries import SharedQueries
from adapter.prometheus import Sample, Vector
from adapter.prometheus.answers import VectorReader, decode
from adapter.turns import leaving_turns
from kube.selectors import LabelSelector
from tests.adapter.metrics_bed import CannedPrometheus

COUNT = 10_000
SAMPLES = tuple(Sample({"namespace": "a", "pod": f"web-{n:05}"}, 1.0, float(n)) for n in range(COUNT))
# One after each 500.
EACH = COUNT // 500 - 1


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that paused, once for each time."""
    found: list[int] = []
    monkeypatch.setattr(turns, "pause", lambda: found.append(threading.get_ident()))
    return found


def body(count: int) -> bytes:
    result = [{"metric": sample.labels, "value": [1.0, "1"]} for sample in reversed(SAMPLES[:count])]
    return msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 0), (500, 0), (501, 1), (COUNT, EACH)])
def test_after_some_things_there_is_a_pause(pauses: list[int], count: int, expected: int) -> None:
    assert list(leaving_turns(range(count))) == list(range(count))
    assert len(pauses) == expected


async def test_reading_an_answer_pauses_in_a_thread_only(pauses: list[int]) -> None:
    on_loop = decode(200, body(COUNT))
    reader = VectorReader()
    reader.feed(body(COUNT))
    assert pauses == []
    assert await asyncio.to_thread(reader.finish) == on_loop
    assert isinstance(on_loop.result, Vector)
    assert [sample.labels for sample in on_loop.result.samples] == [sample.labels for sample in SAMPLES]
    assert len(pauses) >= 2 * EACH - COUNT // 1_000, "while it is sorted and put together"


async def test_looking_through_an_answer_pauses(pauses: list[int]) -> None:
    vector = await indexed(Vector(SAMPLES))
    for selector, passes in (("pod=web-00007", 1), ("pod!=web-00007", 1), ("zone=a", 2)):
        pauses.clear()
        await matching(vector, (), LabelSelector.parse(selector))
        assert len(pauses) == passes * EACH, selector
    pauses.clear()
    async with SharedQueries(CannedPrometheus(result=Vector(SAMPLES)), freshness=60.0) as shared:
        result = await shared.instant("up")
        assert isinstance(result, Vector)
        await by_object(result, ("namespace", "pod"))
    assert len(pauses) == EACH
    assert threading.get_ident() not in pauses


async def test_what_is_done_on_the_loop_has_no_pauses(pauses: list[int]) -> None:
    short = Vector(SAMPLES[:500])
    async with SharedQueries(CannedPrometheus(result=short), freshness=60.0) as shared:
        result = await shared.instant("up")
        assert isinstance(result, Vector)
        await by_object(result, ("namespace", "pod"))
    await matching(Vector(SAMPLES[:500]), (), LabelSelector.parse("pod!=a"))
    assert pauses == []
