"""Each parser reads its seeds, and mutations of them; `make fuzz` goes on from there for longer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.values.quantity import Quantity
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(
        [b"\0", b"\xff", b"\xcc\xcc", b"\xed\xa0\x80", b"%", b'"', b"\\", b"{", b"[", b"(", b"9" * 40, b"e999"]
    ),
    st.sampled_from([b"null", b"-1", b"1e400", b"true", b"<<", b">>", b"&a", b"*a", b"\r\n", b"\\ud800", b"__name__"]),
)


EDITS = st.tuples(st.floats(0, 1), st.integers(0, 16), st.one_of(PIECES, st.floats(0, 1)))


def edited(text: bytes, edits: list[tuple[float, int, bytes | float]]) -> bytes:
    """Replace slices of a text; an edit is (place, length, new bytes or the place of a slice that is copied)."""
    for place, length, new in edits:
        start = int(place * len(text))
        piece = new if isinstance(new, bytes) else text[int(new * len(text)) :][:64]
        text = text[:start] + piece + text[start + length :]
    return text


@pytest.mark.parametrize("name", TARGETS)
def test_parser_reads_its_seeds(name: str) -> None:
    for seed in seeds(name):
        TARGETS[name].read(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_parser_reads_any_bytes_or_raises_its_own_error(name: str) -> None:
    target = TARGETS[name]

    @given(seed=st.sampled_from(list(seeds(name))), edits=st.lists(EDITS, max_size=3))
    @settings(max_examples=200)
    def read(seed: bytes, edits: list[tuple[float, int, bytes | float]]) -> None:
        target.read(edited(seed, edits)[: target.max_bytes])

    read()


def test_a_huge_quantity_is_infinite_as_a_float() -> None:
    assert Quantity.parse("-9223372036854775809e1759").as_float() == float("-inf")
    assert Quantity.parse("9223372036854775809e1759").as_float() == float("inf")
