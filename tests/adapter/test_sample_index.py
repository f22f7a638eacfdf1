"""Whose samples are found in a long answer, and how often the whole of it is looked at for that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from adapter.planning import sample_index
from adapter.planning.sample_index import IndexedVector, by_object, indexed, matching
from adapter.planning.shared_queries import SharedQueries
from adapter.prometheus import DEFAULT_DESTINATION, Sample, Vector
from kube.selectors import LabelSelector
from tests.adapter.metrics_bed import CannedPrometheus

COUNT = 20_000
LONG = Vector(
    tuple(
        Sample({"namespace": f"ns-{n % 5}", "queue": f"q{n}", **({"tier": "gold"} if n % 3 else {})}, 1.0, float(n))
        for n in range(COUNT)
    ),
)


async def found(vector: Vector, namespace: str, selector: str) -> list[float]:
    labels = (("namespace", namespace),) if namespace else ()
    result = await matching(vector, labels, LabelSelector.parse(selector))
    return [sample.value for sample in result.samples]


@pytest.mark.parametrize("namespace", ["", "ns-1", "none"])
@pytest.mark.parametrize(
    "selector",
    [
        *("", "queue=q1", "queue==q1", "queue!=q1", "queue in (q6,q11,q1,q1006)", "queue notin (q1,q6)"),
        *(
            "tier",
            "!tier",
            "tier=gold,queue=q1",
            "tier=gold,queue!=q1",
            "zone=a",
            "zone!=a",
            "queue in (none)",
            "zone=",
        ),
    ],
)
async def test_an_index_finds_what_matches_in_the_same_order(namespace: str, selector: str) -> None:
    wanted = LabelSelector.parse(selector)
    expected = [
        sample.value
        for sample in LONG.samples
        if (not namespace or sample.labels["namespace"] == namespace) and wanted.matches(sample.labels)
    ]
    assert await found(await indexed(LONG), namespace, selector) == expected
    assert await found(LONG, namespace, selector) == expected


async def test_a_long_answer_is_gone_through_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    by_value, pick = sample_index._by_value, sample_index._pick

    def note_all(samples: Sequence[Sample], label: str) -> object:
        looked_at.append(len(samples))
        return by_value(samples, label)

    def note_some(samples: Sequence[Sample], positions: Sequence[Sequence[int]], *rest: object) -> object:
        looked_at.append(sum(map(len, positions)))
        return pick(samples, positions, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(sample_index, "_by_value", note_all)
    monkeypatch.setattr(sample_index, "_pick", note_some)
    vector = await indexed(LONG)
    asked = [random.Random(n).randrange(COUNT) for n in range(100)]
    answers = await asyncio.gather(*(found(vector, f"ns-{n % 5}", f"queue=q{n}") for n in asked))
    assert answers == [[float(n)] for n in asked]
    assert sorted(looked_at, reverse=True) == [COUNT, COUNT, *[1] * 100]


async def test_clients_cannot_have_an_index_made_for_every_label_that_they_think_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    by_value = sample_index._by_value

    def note(samples: Sequence[Sample], label: str) -> object:
        made.append(label)
        return by_value(samples, label)

    monkeypatch.setattr(sample_index, "_by_value", note)
    vector = await indexed(LONG)
    for n in range(20):
        assert await found(vector, "", f"label{n}=a") == []
        assert await found(vector, "", f"label{n}!=a,queue=q{n}") == [n]
    assert made == ["label0", "queue"], "the labels that there are are known then, and the others take no place"


async def test_what_was_asked_of_an_answer_is_prepared_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    by_value = sample_index._by_value

    def note(samples: Sequence[Sample], label: str) -> object:
        made.append(label)
        return by_value(samples, label)

    monkeypatch.setattr(sample_index, "_by_value", note)
    prometheus = CannedPrometheus(result=LONG)
    async with SharedQueries(prometheus, freshness=600.0) as shared:

        async def following(before: IndexedVector) -> IndexedVector:
            made.clear()
            shared._answers._renew(("queue_depth", DEFAULT_DESTINATION))
            async with asyncio.timeout(60):
                while (result := await shared.instant("queue_depth")) and isinstance(result, IndexedVector):
                    if result.index is not before.index:
                        return result
                    await asyncio.sleep(0.01)
            raise AssertionError

        await shared.instant("queue_depth")
        first = await shared.instant("queue_depth")
        assert isinstance(first, IndexedVector)
        assert await found(first, "ns-1", "queue=q1,zone!=a") == [1.0]
        assert await found(first, "", "zone=a") == []
        second = await following(first)
        assert sorted(made) == ["namespace", "queue"]
        made.clear()
        assert len(await found(second, "ns-1", "")) == COUNT // 5
        assert made == []
        await following(second)
        assert made == ["namespace"], "what nobody asked for again is not made again"


async def test_of_one_answer_there_are_four_indexes() -> None:
    labels = {f"label{n}": "a" for n in range(20)}
    vector = await indexed(Vector(tuple(Sample({**labels, "queue": f"q{n}"}, 1.0, float(n)) for n in range(1_000))))
    assert isinstance(vector, IndexedVector)
    for n in range(20):
        assert await found(vector, "", f"label{n}=a,queue=q7") == [7.0]
    assert len(vector.index._by_label) == 4


async def test_short_answers_need_none() -> None:
    short = Vector(LONG.samples[:16])
    assert await indexed(short) is short
    assert await found(short, "ns-1", "queue=q6") == [6.0]


@pytest.mark.parametrize("count", [3, 2_000])
async def test_samples_are_found_by_object_whatever_their_number(count: int) -> None:
    labels = [{"namespace": f"ns-{n % 2}", "pod": f"web-{n // 2}"} for n in range(count)]
    samples = tuple(Sample(one, 1.0, float(n)) for n, one in enumerate(labels))
    again = Sample({"namespace": "ns-0", "pod": "web-0", "port": "80"}, 1.0, 7.0)
    rootless = Sample({"pod": "web-0"}, 1.0, 8.0)
    vector = await indexed(Vector((*samples, again, rootless)), objects=[("namespace", "pod")])
    found = await by_object(vector, ("namespace", "pod"))
    assert found["ns-0"]["web-0"] == [samples[0], again]
    assert found["ns-1"]["web-0"] is samples[1]
    assert found[""]["web-0"] is rootless
    assert "web-1" not in found[""]
    assert await by_object(vector, ("namespace", "pod")) is found
    several = (await by_object(vector, ("", "pod")))[""]["web-0"]
    assert isinstance(several, list)
    assert len(several) == 4
