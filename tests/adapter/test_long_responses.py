"""Long responses of Prometheus are decoded while they arrive, within a limit that all of them share."""

from __future__ import annotations

import asyncio
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.prometheus import PrometheusBadResponse, PrometheusResultError, Vector
from adapter.prometheus.long_responses import MemoryBudget
from adapter.prometheus.results import VectorReader, decode

TEXTS = st.sampled_from(["", 'a},{"metric":', "\\", "ü"])
LABELS = st.dictionaries(st.text(max_size=6) | st.just('},{"metric":{'), TEXTS)
VALUE = st.tuples(st.integers(0, 9), st.sampled_from(["1", "NaN", "+Inf"]))
HISTOGRAM = st.just([1, {"count": "1", "buckets": [[0, "1", "2", "3"]]}])
SERIES = st.fixed_dictionaries({"metric": LABELS, "value": VALUE}, optional={"histogram": HISTOGRAM})


def read(body: bytes, *, size: int = 1_000) -> Vector:
    reader = VectorReader()
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    return reader.finish()


def response(result: object, kind: str = "vector") -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


@settings(deadline=None)
@given(st.lists(SERIES, max_size=6), st.integers(1, 40), st.booleans(), st.booleans(), st.sampled_from([None, 2]))
def test_pieces_decode_to_the_same_result(
    result: list[object], size: int, sort_keys: bool, escaped: bool, indent: int | None
) -> None:
    data = {"status": "success", "data": {"resultType": "vector", "result": result}, "warnings": ["w"]}
    body = json.dumps(data, sort_keys=sort_keys, ensure_ascii=escaped, indent=indent).encode()
    reader = VectorReader()
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    received, whole = reader.finish(), decode(body)
    assert repr(received).partition("memory")[0] == repr(whole).partition("memory")[0]
    assert received.notices.warnings == whole.notices.warnings == ["w"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b" " * 100_000, "it begins with no result"),
        (b'{"status":"success","data":{"resultType":"vector","result":[' + b" " * 300_000, "an entry is too long"),
        (response([{"metric": {f"l{n}": "v" for n in range(30_000)}, "value": [1, "1"]}]), "an entry is too long"),
        (response([{"metric": {"a": 1}, "value": [1, "1"]}] * 50), "cannot be read"),
        (response([{"metric": {}, "value": [1, "one"]}] * 50), "not a sample's value"),
        (response([{"metric": {}, "value": [1, "1"]}] * 50)[:-3], "cannot be read"),
        (response("[" * 200_000), "cannot be read"),
    ],
)
def test_garbage_is_noticed_early(body: bytes, error: str) -> None:
    with pytest.raises(PrometheusBadResponse, match=error):
        read(body)


def test_result_of_another_type_ends_with_its_head() -> None:
    with pytest.raises(PrometheusResultError, match="'matrix'"):
        VectorReader().feed(response([], "matrix"))


def test_samples_take_about_as_much_memory_as_is_counted() -> None:
    labels = [{"namespace": "shop", "pod": f"web-{n:07}", **{f"l{m}": "x" for m in range(n % 8)}} for n in range(5_000)]
    body = response([{"metric": one, "value": [1.5, "2.5"]} for one in labels])
    tracemalloc.start()
    try:
        result = read(body, size=64 * 1024)
        taken, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(result, Vector)
    assert 0.7 < taken / result.memory < 1.3
    assert peak < 1.5 * taken


async def test_beyond_half_of_the_limit_only_the_largest_response_is_read() -> None:
    budget = MemoryBudget(100)
    with budget.share() as small:
        await small.take(20)
        with budget.share() as large:
            await large.take(40)  # the largest when the half is reached
            waiting = asyncio.create_task(small.take(15))
            await asyncio.sleep(0)
            await large.take(50)
            assert not waiting.done()
        await waiting
        assert budget.used == 35
    assert budget.used == 0


async def test_response_beyond_the_limit_is_an_error_and_frees_its_memory() -> None:
    budget = MemoryBudget(100)

    async def take_too_much() -> None:
        with budget.share() as share:
            await share.take(90)
            await share.take(20)

    with pytest.raises(PrometheusBadResponse, match="--prometheus-response-memory-mb"):
        await take_too_much()
    assert budget.used == 0
    with budget.share() as share:
        await share.take(100)
