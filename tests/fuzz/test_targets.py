"""Each parser reads its seeds, and mutations of them; `make fuzz` goes on from there for longer."""

from __future__ import annotations

import random

import pytest

from kube.values.quantity import Quantity
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

PIECES = [
    *(b"\0", b"\xff", b"\xcc\xcc", b"\xed\xa0\x80", b"%", b'"', b"\\", b"{", b"[", b"(", b"9" * 40, b"e999"),
    *(b"null", b"-1", b"1e400", b"true", b"<<", b">>", b"&a", b"*a", b"\r\n", b"\\ud800", b"__name__"),
]


def edited(text: bytes, rng: random.Random) -> bytes:
    """Replace a slice of a text: by a piece of a format, by any bytes, or by another slice."""
    start, length, copied = rng.randrange(len(text) + 1), rng.randrange(17), rng.randrange(len(text) + 1)
    new = rng.choice([rng.choice(PIECES), rng.randbytes(rng.randrange(5)), text[copied : copied + 64]])
    return text[:start] + new + text[start + length :]


@pytest.mark.parametrize("name", TARGETS)
def test_parser_reads_its_seeds(name: str) -> None:
    for seed in seeds(name):
        TARGETS[name].read(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_parser_reads_any_bytes_or_raises_its_own_error(name: str) -> None:
    target, rng, texts = TARGETS[name], random.Random(name), list(seeds(name))
    for _ in range(300):
        text = rng.choice(texts)
        for _ in range(rng.randrange(4)):
            text = edited(text, rng)
        text = text[: target.max_bytes]
        try:
            target.read(text)
        except Exception as error:
            error.add_note(f"read {text!r}")
            raise


def test_a_huge_quantity_is_infinite_as_a_float() -> None:
    assert Quantity.parse("-9223372036854775809e1759").as_float() == float("-inf")
    assert Quantity.parse("9223372036854775809e1759").as_float() == float("inf")
