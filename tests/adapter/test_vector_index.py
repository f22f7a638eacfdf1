"""The index of a cached vector: its results, and how often it scans the vector."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from adapter.planning import vectors
from adapter.planning.vectors import IndexedVector, VectorCache, as_sequence, indexed, matching
from adapter.prometheus import DEFAULT_DESTINATION, Sample, Vector
from adapter.prometheus.results import sample_order
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import CannedPrometheus

COUNT = 2_000
LONG = Vector(
    tuple(
        sorted(
            (
                Sample({"namespace": f"ns-{n % 5}", "queue": f"q{n}", **({"tier": "gold"} if n % 3 else {})}, 1.0, n)
                for n in range(COUNT)
            ),
            key=sample_order,
        )
    )
)


def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the indexes that are built."""
    made: list[str] = []
    index = vectors._index

    def note(samples: Sequence[Sample], labels: tuple[str, ...]) -> object:
        made.extend(labels)
        return index(samples, labels)

    monkeypatch.setattr(vectors, "_index", note)
    return made


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
async def test_index_finds_matching_samples_in_order(namespace: str, selector: str) -> None:
    parsed = LabelSelector.parse(selector)
    expected = [
        sample.value
        for sample in LONG.samples
        if (not namespace or sample.labels["namespace"] == namespace) and parsed.matches(sample.labels)
    ]
    assert await found(await indexed(LONG), namespace, selector) == expected
    assert await found(LONG, namespace, selector) == expected


async def test_long_vector_is_scanned_once_for_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    index, select = vectors._index, vectors._matching

    def note_all(samples: Sequence[Sample], labels: tuple[str, ...]) -> object:
        looked_at.append(len(samples))
        return index(samples, labels)

    def note_some(found: Sequence[Sequence[Sample]], *rest: object) -> object:
        looked_at.append(sum(map(len, found)))
        return select(found, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(vectors, "_index", note_all)
    monkeypatch.setattr(vectors, "_matching", note_some)
    vector = await indexed(LONG)
    keys = [random.Random(n).randrange(COUNT) for n in range(100)]
    results = await asyncio.gather(*(found(vector, f"ns-{n % 5}", f"queue=q{n}") for n in keys))
    assert results == [[float(n)] for n in keys]
    assert sorted(looked_at, reverse=True) == [COUNT, COUNT, *[1] * 100]


async def test_labels_that_clients_make_up_get_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    made = built(monkeypatch)
    vector = await indexed(LONG)
    for n in range(20):
        assert await found(vector, "", f"label{n}=a") == []
        assert await found(vector, "", f"label{n}!=a,queue=q{n}") == [n]
    assert made == ["queue"], "labels that no sample has get no index"


async def test_refreshed_vector_has_the_indexes_that_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made = built(monkeypatch)
    prometheus = CannedPrometheus(result=LONG)
    async with VectorCache(prometheus, ttl=600.0) as shared:

        async def following(before: IndexedVector) -> IndexedVector:
            made.clear()
            shared._refresh(("queue_depth", DEFAULT_DESTINATION))
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
        assert made == ["namespace"], "indexes that were not used are not built again"


async def test_vector_has_at_most_four_indexes() -> None:
    labels = {f"label{n}": "a" for n in range(20)}
    vector = await indexed(Vector(tuple(Sample({**labels, "queue": f"q{n}"}, 1.0, float(n)) for n in range(1_000))))
    assert isinstance(vector, IndexedVector)
    for n in range(20):
        assert await found(vector, "", f"label{n}=a,queue=q7") == [7.0]
    assert len(vector.index._by_labels) == 4


@pytest.mark.parametrize("count", [3, 2_000])
async def test_samples_are_found_by_object_whatever_their_number(count: int) -> None:
    labels = [{"namespace": f"ns-{n % 2}", "pod": f"web-{n // 2}"} for n in range(count)]
    samples = tuple(Sample(one, 1.0, float(n)) for n, one in enumerate(labels))
    again = Sample({"namespace": "ns-0", "pod": "web-0", "port": "80"}, 1.0, 7.0)
    cluster_scoped = Sample({"pod": "web-0"}, 1.0, 8.0)
    vector = await indexed(Vector((*samples, again, cluster_scoped)), [("namespace", "pod"), ("", "pod")])
    first, second, unnamed = (vector.index.objects(("namespace", "pod"), space) for space in ("ns-0", "ns-1", ""))
    assert first is not None
    assert first["web-0"] == [samples[0], again]
    assert second is not None
    assert second["web-0"] is samples[1]
    assert unnamed == {"web-0": cluster_scoped}
    everywhere = vector.index.objects(("", "pod"), "")
    assert everywhere is not None
    assert len(as_sequence(everywhere["web-0"])) == 4
    assert vector.index.objects(("namespace", "service"), "ns-0") is None, "there is no such index"


async def test_prepared_values_are_bounded() -> None:
    index = (await indexed(LONG)).index
    owner = object()
    for n in range(5 * COUNT):
        index.prepare(index.prepared((owner,), ("shop", f"selector {n}")), "web-0", n)
    assert sum(len(values) for _, values in index._prepared.values()) <= COUNT + 500
    assert index.prepared((owner,), ("shop", f"selector {5 * COUNT - 1}")) == {"web-0": 5 * COUNT - 1}
    assert index.prepared((object(),), ("shop", f"selector {5 * COUNT - 1}")) == {}, "of another source"
