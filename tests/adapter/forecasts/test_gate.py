"""The gate: it serves what would have saved pods, and only what was known at the time counts."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from adapter.forecasts import gate
from adapter.forecasts.gate import Judgement, judge, judge_expected, served
from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.series import DAY_MINUTES, MinuteSeries
from tests.adapter.forecasts.loads import START, changed, daily_steps, random_walk, until

OPTIONS = ForecastOptions(horizon=300.0)
DAY = DAY_MINUTES


def test_steps_of_each_day_save_pods_and_what_never_repeats_does_not() -> None:
    steps, are_served = judge(daily_steps(7), OPTIONS)
    assert steps.saved is not None
    assert steps.saved > 0.15
    assert steps.overload > 10 * steps.overload_with
    assert steps.days == 4
    assert steps.accuracy.within > 0.98
    assert are_served
    walk, is_served = judge(random_walk(7), OPTIONS)
    assert walk.saved is not None
    assert walk.saved < 0.03
    assert not is_served
    assert walk.holds(dataclasses.replace(OPTIONS, gate=0.0))


def test_two_days_after_the_first_three_are_needed() -> None:
    found, is_served = judge(daily_steps(4), OPTIONS)
    assert found.saved is None
    assert found.reason == "1.0 days can be replayed after the first 3, and at least 2 are needed"
    assert not is_served
    assert judge(daily_steps(5), OPTIONS)[0].saved is not None
    assert judge(MinuteSeries(START, np.empty(0)), OPTIONS)[0].saved is None
    assert judge(changed(daily_steps(6), 0, 6 * DAY, 0.0), OPTIONS)[0].saved is None


@pytest.mark.parametrize(
    ("savings", "is_served"),
    [
        ([0.03], True),
        ([0.02], False),
        ([0.04, 0.02, 0.016], True),
        ([0.04, 0.014, 0.02], False),
        ([None, 0.02, 0.02], False),
        ([0.04, None], False),
    ],
)
def test_forecast_that_was_served_the_day_before_stays_down_to_half_of_what_is_required(
    monkeypatch: pytest.MonkeyPatch, savings: list[float | None], is_served: bool
) -> None:
    """The verdict follows from the history alone, not from what a replica has served: `savings` are day by day."""
    found = [Judgement(days=day, saved=saved) for day, saved in enumerate([None, *savings])]
    monkeypatch.setattr(gate, "_judged", lambda history, _: found[len(history.values) // DAY])
    assert judge(daily_steps(len(savings)), OPTIONS) == (found[-1], is_served)
    before = None
    for each in found[1:]:  # as in a replay
        before = each.holds(OPTIONS, before=before)
    assert before == is_served


def test_perfect_expectation_is_within_and_wrong_ones_are_above_or_below() -> None:
    load = daily_steps(3)
    values = load.values.astype(np.float64)
    ahead = np.lib.stride_tricks.sliding_window_view(np.append(values, [0.0] * 5), 6).max(axis=1)
    perfect = judge_expected(load, ahead, OPTIONS)
    assert perfect.accuracy.within == 1
    assert perfect.saved is not None
    assert perfect.saved > 0.2
    low = judge_expected(load, values * 0.5, OPTIONS)  # the present value counts then: only steps are above it
    assert 0.001 < low.accuracy.above < 0.01
    assert judge_expected(load, ahead * 1.5, OPTIONS).accuracy.below == 1
    assert judge_expected(load, np.full(len(ahead), math.nan), OPTIONS).accuracy.minutes == 0


def test_nothing_is_served_by_what_comes_later() -> None:
    """A spike that is planted after a minute changes nothing that was served up to it: no model, gate or scale."""
    series, spike = daily_steps(7), 6 * DAY + 700
    planted, judgements = served(changed(series, spike, spike + 5, 4.0), OPTIONS, 5 * DAY)
    cut, _ = served(until(series, spike - 1), OPTIONS, 5 * DAY)
    assert np.array_equal(planted[:spike], cut, equal_nan=True)
    assert np.isnan(planted[: 5 * DAY]).all()
    assert np.isfinite(planted[5 * DAY : spike]).mean() > 0.95
    assert len(judgements) == 2
