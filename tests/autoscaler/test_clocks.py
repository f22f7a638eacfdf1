"""The difference of the two clocks is constant, until the wall clock is set."""

from __future__ import annotations

from random import Random

import pytest

from autoscaler.loop.clocks import Clocks

BOOT = 1_767_000_000.0003
"""When the monotonic clock began, in seconds since the epoch."""


class Machine:
    """`now` is the true time in seconds; `ahead` is by how much the wall clock is ahead of it."""

    def __init__(self) -> None:
        self.random = Random(1)
        self.now = BOOT + 1000.0
        self.ahead = 0.0
        self.interruptions = 0.0
        self.clocks = Clocks(self.wall, lambda: self.now - BOOT)

    def wall(self) -> float:
        interrupted = self.random.random() < self.interruptions
        return self.now + self.ahead + (self.random.uniform(0.0, 2.0) if interrupted else 0.0)

    def difference_ms(self) -> int:
        self.now += self.random.uniform(0.5, 1.5)
        wall_ms, monotonic_ms = self.clocks.read_ms()
        assert abs(monotonic_ms - 1000 * (self.now - BOOT)) <= 0.5
        return wall_ms - monotonic_ms


@pytest.mark.parametrize("interruptions", [0.0, 0.1])
def test_difference_does_not_change(interruptions: float) -> None:
    machine = Machine()
    machine.interruptions = interruptions
    assert {machine.difference_ms() for _ in range(1000)} == {round(1000 * BOOT)}


@pytest.mark.parametrize("seconds", [3600.0, 0.5, -0.01, -3600.0])
def test_wall_clock_that_is_set_is_followed(seconds: float) -> None:
    machine = Machine()
    before = machine.difference_ms()
    machine.ahead = seconds
    assert abs(machine.difference_ms() - before - 1000 * seconds) <= 1
