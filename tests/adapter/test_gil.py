"""Worker threads release the GIL regularly."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest

from adapter.gil import releasing_gil
from adapter.planning.vectors import indexed, matching
from adapter.prometheus import Sample, Vector
from adapter.prometheus.results import VectorReader, decode
from kube.values.selectors import LabelSelector

COUNT = 10_000
SAMPLES = tuple(Sample({"namespace": "a", "pod": f"web-{n:05}"}, 1.0, float(n)) for n in range(COUNT))
# One sleep after every 500 items.
EACH = COUNT // 500 - 1


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that slept, one entry per sleep."""
    found: list[int] = []
    monkeypatch.setattr(time, "sleep", lambda _: found.append(threading.get_ident()))
    return found


def body(count: int) -> bytes:
    result = [{"metric": sample.labels, "value": [1.0, "1"]} for sample in reversed(SAMPLES[:count])]
    return msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 0), (500, 0), (501, 1), (COUNT, EACH)])
def test_gil_is_released_after_every_500_items(pauses: list[int], count: int, expected: int) -> None:
    assert list(releasing_gil(range(count))) == list(range(count))
    assert len(pauses) == expected


async def test_decoding_releases_the_gil_in_a_thread_only(pauses: list[int]) -> None:
    on_loop = decode(body(COUNT))
    reader = VectorReader()
    reader.feed(body(COUNT))
    assert pauses == []
    assert await asyncio.to_thread(reader.finish) == on_loop
    assert isinstance(on_loop, Vector)
    assert [sample.labels for sample in on_loop.samples] == [sample.labels for sample in SAMPLES]
    assert len(pauses) >= 2 * EACH - COUNT // 1_000, "while it is sorted and put together"


async def test_scanning_and_indexing_release_the_gil(pauses: list[int]) -> None:
    vector = await indexed(Vector(SAMPLES))
    for selector, passes in (("pod=web-00007", 2), ("pod!=web-00007", 1), ("zone=a", 0)):
        pauses.clear()
        await matching(vector, (), LabelSelector.parse(selector))
        assert len(pauses) == passes * EACH, selector
    pauses.clear()
    await indexed(Vector(SAMPLES), [("namespace", "pod")])
    assert len(pauses) == EACH
    assert threading.get_ident() not in pauses


async def test_event_loop_never_sleeps(pauses: list[int]) -> None:
    await indexed(Vector(SAMPLES[:500]), [("namespace", "pod")])
    await matching(Vector(SAMPLES[:500]), (), LabelSelector.parse("pod!=a"))
    assert pauses == []
