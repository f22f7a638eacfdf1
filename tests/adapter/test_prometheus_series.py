"""Lists of series are reduced while they arrive."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.prometheus import PrometheusBadResponse
from adapter.prometheus.series import SeriesReader

LABELS = st.dictionaries(st.sampled_from(["pod", "ns", "__name__", "ü"]), st.text(max_size=8), max_size=4)


def reduced(body: bytes, *, size: int, max_names: int = 1_000) -> dict[str, set[str]]:
    """The labels of each name."""
    reader = SeriesReader(max_names=max_names)
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    return {series.name: set(series.labels) for series in reader.finish()}


def response(*series: dict[str, str]) -> dict[str, object]:
    return {"status": "success", "data": list(series), "warnings": ["w"]}


@given(st.lists(LABELS, max_size=8), st.integers(1, 40), st.booleans())
def test_pieces_of_any_size_decode_alike(series: list[dict[str, str]], size: int, escaped: bool) -> None:
    body = json.dumps(response(*series), ensure_ascii=escaped).encode()
    expected: dict[str, set[str]] = {}
    for one in series:
        if one.get("__name__"):
            expected.setdefault(one["__name__"], set()).update(one.keys() - {"__name__"})
    assert reduced(body, size=size) == expected


def test_more_names_than_memory_has_room_for_are_refused() -> None:
    names = [{"__name__": f"m{number % 1_000}"} for number in range(1_200)]
    assert len(reduced(json.dumps(response(*names)).encode(), size=64 * 1024)) == 1_000
    with pytest.raises(PrometheusBadResponse, match="more than 1000 names; select fewer with the rule's seriesQuery"):
        reduced(json.dumps(response(*names, {"__name__": "one_more"})).encode(), size=64 * 1024)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"data": {"a": 1}}',
        b'{"status": "success"}',
        b'{"status": "error", "data": []}',
        b'{"data": [5, {}]}',
        b'{"data": [{"__name__": 5}]}',
        b'{"data": [{"a": "' + b"x" * 2_000_000,
        b'{"data": [{"a": "\xff"}]}',
        rb'{"data": [{"__name__": "x\ud800"}]}',
        rb'{"data": [{"__name__": "x", "\udc00": ""}]}',
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_malformed_lists_are_refused(body: bytes) -> None:
    with pytest.raises(PrometheusBadResponse, match="cannot be read"):
        reduced(body, size=len(body))


def test_many_series_of_a_name_take_the_memory_of_one() -> None:
    one = b'{"__name__":"packets_total","namespace":"shop","pod":"web-%07d","instance":"10.0.0.1:80"}'
    body = b'{"status":"success","data":[' + b",".join(one % number for number in range(20_000)) + b"]}"
    tracemalloc.start()
    try:
        reader = SeriesReader()
        for start in range(0, len(body), 64 * 1024):
            reader.feed(body[start : start + 64 * 1024])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(body) / 3
