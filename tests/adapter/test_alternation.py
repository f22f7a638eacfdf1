"""Many names as one expression: shorter, and never more or less than the names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.goregex import GoRegex
from adapter.rules.query import alternation

NAMES = st.lists(st.text("ab.-|(\\", min_size=1, max_size=6), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["web-0"], "web-0"),
        (["web-0", "web-1"], "web-(0|1)"),
        (["web-1", "web-0", "web-1"], "web-(0|1)"),
        (["web-0", "db-0"], "db-0|web-0"),
        (["web", "web-0"], "web(|-0)"),
        (["ax", "ay"], "ax|ay"),  # a group would save nothing
        (["web-a-0", "web-a-1", "web-b-0", "web-b-1"], "web-(a-0|a-1|b-0|b-1)"),
        (["a.b.c.0", "a.b.c.1"], r"a\.b\.c\.(0|1)"),
    ],
)
def test_common_beginnings_are_written_once(names: list[str], expression: str) -> None:
    assert alternation(names) == expression


@given(NAMES, NAMES)
def test_exactly_the_names_are_matched(names: list[str], others: list[str]) -> None:
    expression = re.compile(alternation(names))
    for name in {*names, *others, *(name[:-1] for name in names), *(f"{name}a" for name in names)}:
        assert (expression.fullmatch(name) is not None) == (name in names)


@given(NAMES)
def test_go_reads_the_expression_too(names: list[str]) -> None:
    GoRegex(alternation(names))


def test_the_pods_of_a_large_deployment_are_a_fraction_of_their_list() -> None:
    names = [f"checkout-service-7d9f8b6c5d-{number:05x}" for number in range(3000)]
    assert len(alternation(names)) < len("|".join(names)) / 6


def test_the_longest_names_that_there_are_can_be_nested_to_the_end() -> None:
    names = ["abcd" * n for n in range(1, 64)]
    expression = re.compile(alternation(names))
    assert all(expression.fullmatch(name) for name in names)
