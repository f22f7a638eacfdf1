"""Lists of series are reduced while they arrive."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.prometheus.series import SeriesReducer

LABELS = st.dictionaries(st.sampled_from(["pod", "ns", "__name__", "ü"]), st.text(max_size=8), max_size=4)


def reduced(body: bytes, *, size: int) -> dict[str, set[str]]:
    """The labels of each name; the rest of the answer stays as it was."""
    reducer = SeriesReducer()
    for start in range(0, len(body), size):
        reducer.feed(body[start : start + size])
    assert json.loads(reducer.rest()) == answer()
    return {series.name: set(series.labels) for series in reducer.series()}


def answer(*series: dict[str, str]) -> dict[str, object]:
    return {"status": "success", "data": list(series), "warnings": ["w"]}


def test_series_of_a_name_are_one_with_all_labels() -> None:
    body = json.dumps(
        answer({"__name__": "a", "pod": "x"}, {"__name__": "b", "n": "}]"}, {"__name__": "a", "ns": "y"}, {"pod": "z"})
    ).encode()
    assert reduced(body, size=7) == {"a": {"ns", "pod"}, "b": {"n"}}


@given(st.lists(LABELS, max_size=8), st.integers(1, 40), st.booleans())
def test_pieces_of_any_size_decode_alike(series: list[dict[str, str]], size: int, escaped: bool) -> None:
    body = json.dumps(answer(*series), ensure_ascii=escaped).encode()
    wanted: dict[str, set[str]] = {}
    for one in series:
        if one.get("__name__"):
            wanted.setdefault(one["__name__"], set()).update(one.keys() - {"__name__"})
    assert reduced(body, size=size) == wanted


@pytest.mark.parametrize("body", [b"<html>", b'{"data": {"a": 1}}', b'{"status": "success"}', b'{"data": [5, {}]}'])
def test_other_content_is_left_in_rest(body: bytes) -> None:
    reducer = SeriesReducer()
    reducer.feed(body)
    assert reducer.rest() == body
    assert reducer.series() == ()


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": [{"__name__": 5}]}',
        b'{"data": [{"a": "' + b"x" * 2_000_000,
        b'{"\xff',
        rb'{"data": [{"__name__": "x\ud800"}]}',
        rb'{"data": [{"__name__": "x", "\udc00": ""}]}',
    ],
    ids=["number", "long", "not UTF-8", "half a character in a name", "half a character in a label"],
)
def test_malformed_lists_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"name|too long|decode|surrogates"):
        SeriesReducer().feed(body)


def test_many_series_of_a_name_take_the_memory_of_one() -> None:
    one = b'{"__name__":"packets_total","namespace":"shop","pod":"web-%07d","instance":"10.0.0.1:80"}'
    body = b'{"status":"success","data":[' + b",".join(one % number for number in range(20_000)) + b"]}"
    tracemalloc.start()
    try:
        reducer = SeriesReducer()
        for start in range(0, len(body), 64 * 1024):
            reducer.feed(body[start : start + 64 * 1024])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(body) / 3
