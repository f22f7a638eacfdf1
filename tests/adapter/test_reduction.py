"""The list of series, made small while it arrives."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.prometheus.reduction import SeriesReducer

LABELS = st.dictionaries(st.sampled_from(["pod", "ns", "__name__", "ü"]), st.text(max_size=8), max_size=4)


def reduced(body: bytes, *, size: int) -> object:
    reducer = SeriesReducer()
    for start in range(0, len(body), size):
        reducer.feed(body[start : start + size])
    return json.loads(reducer.result())


def answer(*series: dict[str, str]) -> dict[str, object]:
    return {"status": "success", "data": list(series), "warnings": ["w"]}


def test_series_of_a_name_become_one_with_all_their_labels() -> None:
    body = json.dumps(
        answer({"__name__": "a", "pod": "x"}, {"__name__": "b", "n": "}]"}, {"__name__": "a", "ns": "y"}, {"pod": "z"})
    ).encode()
    assert reduced(body, size=7) == answer({"__name__": "a", "ns": "", "pod": ""}, {"__name__": "b", "n": ""})


@given(st.lists(LABELS, max_size=8), st.integers(1, 40), st.booleans())
def test_however_it_arrives_names_and_labels_are_those_that_were_sent(
    series: list[dict[str, str]], size: int, escaped: bool
) -> None:
    body = json.dumps(answer(*series), ensure_ascii=escaped).encode()
    found = reduced(body, size=size)
    assert isinstance(found, dict)
    wanted: dict[str, set[str]] = {}
    for one in series:
        if one.get("__name__"):
            wanted.setdefault(one["__name__"], set()).update(one)
    assert {one["__name__"]: set(one) for one in found["data"]} == wanted


@pytest.mark.parametrize("body", [b"<html>", b'{"data": {"a": 1}}', b'{"status": "success"}', b'{"data": [5, {}]}'])
def test_what_is_no_list_of_series_passes_through(body: bytes) -> None:
    reducer = SeriesReducer()
    reducer.feed(body)
    assert reducer.result() == body


@pytest.mark.parametrize("body", [b'{"data": [{"__name__": 5}]}', b'{"data": [{"a": "' + b"x" * 2_000_000, b'{"\xff'])
def test_what_no_prometheus_says_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"name|too long|decode"):
        SeriesReducer().feed(body)


def test_many_series_take_no_more_room_than_one() -> None:
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
