"""The gate: it serves what would have saved pods, and only what was known at the time counts."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from adapter.forecasts.gate import Judgement, judge, judge_expected, served
from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.series import DAY_MINUTES, MinuteSeries
from tests.adapter.forecasts.loads import START, changed, daily_steps, random_walk, until

OPTIONS = ForecastOptions(horizon=300.0)
DAY = DAY_MINUTES


def test_steps_of_each_day_save_pods_and_what_never_repeats_does_not() -> None:
    steps = judge(daily_steps(7), OPTIONS)
    assert steps.saved is not None
    assert steps.saved > 0.15
    assert steps.overload > 10 * steps.overload_with
    assert steps.days == 4
    assert steps.accuracy.within > 0.98
    assert steps.holds(OPTIONS)
    walk = judge(random_walk(7), OPTIONS)
    assert walk.saved is not None
    assert walk.saved < 0.03
    assert not walk.holds(OPTIONS)
    assert walk.holds(dataclasses.replace(OPTIONS, gate=0.0))


def test_two_days_after_the_first_three_are_needed() -> None:
    found = judge(daily_steps(4), OPTIONS)
    assert found.saved is None
    assert found.reason == "1.0 days can be replayed after the first 3, and at least 2 are needed"
    assert not found.holds(OPTIONS)
    assert judge(daily_steps(5), OPTIONS).saved is not None
    assert judge(MinuteSeries(START, np.empty(0)), OPTIONS).saved is None
    assert judge(changed(daily_steps(6), 0, 6 * DAY, 0.0), OPTIONS).saved is None


def test_served_forecast_stays_down_to_half_of_what_is_required() -> None:
    found = Judgement(days=7.0, saved=0.02)
    assert not found.holds(OPTIONS)
    assert not found.holds(OPTIONS, before=False)
    assert found.holds(OPTIONS, before=True)
    assert not dataclasses.replace(found, saved=0.014).holds(OPTIONS, before=True)


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


def test_nothing_is_served_where_it_would_not_have_saved() -> None:
    found, judgements = served(random_walk(6), OPTIONS, 5 * DAY)
    assert [each.holds(OPTIONS) for each in judgements] == [False]
    assert np.isnan(found).all()
