"""Doubles as milli-values, as recorded from prometheus-adapter."""

from __future__ import annotations

import math

import pytest

from adapter.content.values import to_milli


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        (0.0, 0),
        (1.0, 1000),
        (0.5, 500),
        (1_000_000.0, 1_000_000_000),
        (1234567.8915, 1_234_567_891),
        (math.nan, 0),
        (-2.25, -2250),
        (0.0001, 0),
        (0.9999, 999),  # truncated: HPAs compare with it
        (-0.0005, 0),
        (9e15, 9_000_000_000_000_000_000),
        (9223372036854775.0, None),  # the next double above is 2**63 milli
        (-9223372036854775.0, None),
        (1e16, None),
        (1e25, None),
        (1e308, None),
        (math.inf, None),
        (-math.inf, None),
    ],
)
def test_milli_values(value: float, milli: int | None) -> None:
    assert to_milli(value) == milli
