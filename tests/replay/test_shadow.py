"""A shadow follows real replicas that are seen by scrapes, and counts what it would have decided otherwise."""

from __future__ import annotations

import math

from replay.shadow import SeenScale, Shadow, seen_scales
from tests.replay.builders import START_MS, STEP_MS, series_of

SCALES = [SeenScale(100_000, 115_000, 5, is_gap=False), SeenScale(400_000, 415_000, 3, is_gap=False)]


def shadow() -> Shadow:
    return Shadow(SCALES, late_ms=30_000)


def test_decision_of_the_real_controller_is_applied_before_a_scrape_sees_it() -> None:
    followed = shadow()
    assert followed.found(71_000) is None
    assert followed.applies(71_000, 4, 5)
    assert followed.found(120_000) is None
    assert (followed.mistakes, followed.scales) == (0, 1)


def test_real_controller_does_not_decide_that_much_later() -> None:
    followed = shadow()
    assert not followed.applies(69_000, 4, 5)
    assert (followed.mistakes, followed.scales) == (1, 0)


def test_reconciliation_after_the_scrape_may_be_the_one_that_decides() -> None:
    """The phase of the real reconciliations is not known."""
    followed = shadow()
    assert followed.found(114_000) is None
    assert followed.found(129_000) is None
    assert followed.waits
    assert followed.applies(129_000, 4, 5)
    assert followed.found(144_000) is None
    assert followed.mistakes == 0


def test_real_replicas_without_a_decision_are_found_and_are_a_mistake() -> None:
    followed = shadow()
    assert [followed.found(now_ms) for now_ms in (110_000, 125_000, 140_000, 155_000)] == [None, None, 5, None]
    assert (followed.mistakes, followed.scales) == (1, 1)


def test_decision_for_other_replicas_in_the_same_direction_is_half_a_mistake() -> None:
    followed = shadow()
    assert [followed.applies(now_ms, 4, 6) for now_ms in (80_000, 95_000)] == [False, False]
    followed.found(120_000)
    assert followed.found(135_000) == 5
    assert followed.mistakes == 0.5


def test_decision_in_the_other_direction_and_one_after_all_scales_are_mistakes() -> None:
    followed = shadow()
    assert not followed.applies(100_000, 4, 3)
    assert followed.applies(100_000, 4, 5)
    assert followed.applies(400_000, 5, 3)
    assert not followed.applies(500_000, 3, 4)
    assert followed.mistakes == 2


def test_in_a_gap_decisions_are_applied_and_the_real_replicas_found_after_it() -> None:
    followed = Shadow([SeenScale(100_000, 700_000, 5, is_gap=True)], late_ms=30_000)
    assert [followed.applies(now_ms, 4, 7) for now_ms in (60_000, 120_000)] == [False, True]
    assert [followed.found(now_ms) for now_ms in (690_000, 705_000, 720_000)] == [None, None, 5]
    assert followed.mistakes == 1


def test_changes_and_gaps_of_recorded_replicas() -> None:
    replicas = series_of([4, 4, math.nan, math.nan, 4, 5, 7])
    times = [START_MS + index * STEP_MS for index in range(7)]
    assert seen_scales(replicas, START_MS, times[-1] + STEP_MS) == [
        SeenScale(times[1], times[4], 4, is_gap=True),
        SeenScale(times[4], times[5], 5, is_gap=False),
        SeenScale(times[5], times[6], 7, is_gap=False),
    ]
