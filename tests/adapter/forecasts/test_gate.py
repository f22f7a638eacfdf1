"""The gate: it serves what would have saved pods, and only what was known at the time counts."""

from __future__ import annotations

import dataclasses
import math
import re

import msgspec
import numpy as np
import pytest

from adapter.diagnosis.forecasts import ForecastReport
from adapter.forecasts.gate import judge, judge_expected, served
from adapter.forecasts.model import DAY_MINUTES, MinuteSeries
from adapter.forecasts.options import ForecastOptions
from tests.adapter.forecasts.loads import START, changed, daily_steps, random_walk, until

OPTIONS = ForecastOptions(horizon=300.0)
DAY = DAY_MINUTES


def test_steps_of_each_day_save_pods_and_what_never_repeats_does_not() -> None:
    steps = judge(daily_steps(7), OPTIONS)
    assert steps.holds
    assert steps.saved is not None
    assert steps.saved > 0.15
    assert steps.overload > 10 * steps.overload_with
    assert steps.days == 4
    assert re.fullmatch(
        r"in the last 4 days it would have saved \d\d\.\d% of pod-hours, and 3\.0% is required", steps.text
    )
    assert re.fullmatch(
        r"last 4 days: (98|99|100)% of 5,7\d\d minutes within 10 %, \d% above, \d% below", steps.accuracy
    )
    walk = judge(random_walk(7), OPTIONS)
    assert walk.saved is not None
    assert walk.saved < 0.03
    assert not walk.holds
    off = judge(random_walk(7), dataclasses.replace(OPTIONS, gate=0.0))
    assert (off.holds, off.saved, off.text) == (True, walk.saved, "the gate is off")


def test_json_has_the_gate_with_the_names_of_the_other_fields() -> None:
    gate = judge(daily_steps(4), OPTIONS)
    found = msgspec.to_builtins(ForecastReport(metric="load", rule="rules[0]", of="load", timezone="UTC", gate=gate))
    of_gate = ["days", "holds", "text", "saved", "overload", "overloadWith", "minutes", "above", "below"]
    assert list(found["gate"]) == of_gate


def test_two_days_after_the_first_three_are_needed() -> None:
    found = judge(daily_steps(4), OPTIONS)
    assert found.saved is None
    assert not found.holds
    why = "1.0 days can be replayed after the first 3, and at least 2 are needed"
    assert found.text == f"whether it saves is not known: {why}"
    short_hole = changed(daily_steps(5), 4 * DAY, 4 * DAY + 60, math.nan)  # of a Prometheus that was restarted
    assert judge(short_hole, OPTIONS).holds
    assert judge(MinuteSeries(START, np.empty(0)), OPTIONS).saved is None
    assert judge(changed(daily_steps(6), 0, 6 * DAY, 0.0), OPTIONS).saved is None


def test_perfect_expectation_is_within_and_wrong_ones_are_above_or_below() -> None:
    load = daily_steps(3)
    values = load.values.astype(np.float64)
    ahead = np.lib.stride_tricks.sliding_window_view(np.append(values, [0.0] * 5), 6).max(axis=1)
    perfect = judge_expected(load, ahead, OPTIONS)
    assert (perfect.above, perfect.below) == (0, 0)
    assert perfect.saved is not None
    assert perfect.saved > 0.2
    low = judge_expected(load, values * 0.5, OPTIONS)  # the present value counts then: only steps are above it
    assert 0.001 < low.above < 0.01
    assert judge_expected(load, ahead * 1.5, OPTIONS).below == 1
    assert judge_expected(load, np.full(len(ahead), math.nan), OPTIONS).minutes == 0


def test_nothing_is_served_by_what_comes_later() -> None:
    """A spike that is planted after a minute changes nothing that was served up to it: no model, gate or scale."""
    series, spike = daily_steps(7), 6 * DAY + 700
    planted, judgements = served(changed(series, spike, spike + 5, 4.0), OPTIONS, 5 * DAY)
    cut, known = served(until(series, spike - 1), OPTIONS, 5 * DAY)
    assert np.array_equal(planted[:spike], cut, equal_nan=True)
    assert np.isnan(planted[: 5 * DAY]).all()
    assert np.isfinite(planted[5 * DAY : spike]).mean() > 0.95
    assert len(judgements) == 2
    assert judgements == known


def test_one_day_with_an_unusual_load_does_not_open_the_gate() -> None:
    """A forecast of its spike lets an HPA have a higher target on all days, at the overload of that one day."""
    load = random_walk(6)
    values = 100 + load.values.astype(np.float64) / 100
    expected = values * 1.05
    spike = 2 * DAY + 700
    values[spike : spike + 20] = 3000.0
    expected[spike - 10 : spike + 20] = 3000.0
    found = judge_expected(MinuteSeries(START, values), expected, OPTIONS)
    assert found.overload > 10 * found.overload_with
    assert found.saved is not None
    assert found.saved < 0


@pytest.mark.parametrize("days", [1, 2])
def test_gate_is_closed_soon_after_a_load_has_lost_its_pattern(days: int) -> None:
    """Where nothing repeats any more, forecasts only cost pods; the days before still count."""
    load, since = daily_steps(7, high=250.0).values.astype(np.float64), (7 - days) * DAY
    load[since:] = random_walk(days).values
    expected = np.lib.stride_tricks.sliding_window_view(np.append(load, [0.0] * 5), 6).max(axis=1)
    assert judge_expected(MinuteSeries(START, load), expected, OPTIONS).holds
    expected[since:] = load[since:] * np.where(np.arange(days * DAY) // 60 % 2, 1.5, 1.0)
    found = judge_expected(MinuteSeries(START, load), expected, OPTIONS)
    assert found.saved is not None
    assert found.saved > 0.1
    assert not found.holds
    assert re.search(r"saved \d\d\.\d% of pod-hours, but lost \d+\.\d% on the last day or two$", found.text)


def test_load_for_which_a_surge_would_make_forecasts_cost_pods_is_not_served() -> None:
    """A plain HPA follows such waves without overload, so a higher target saves pods only until a surge comes."""
    values = 100 * np.exp(0.8 * np.sin(np.arange(5 * DAY) * 2 * np.pi / 120))
    ahead = np.lib.stride_tricks.sliding_window_view(np.append(values, values[:5]), 6).max(axis=1)
    found = judge_expected(MinuteSeries(START, values), ahead, OPTIONS)
    assert found.saved is not None
    assert found.saved > 0.03
    assert not found.holds
    assert re.search(r"saved \d+\.\d% of pod-hours, but lost \d\.\d% if a surge had come$", found.text)


def test_last_two_days_end_with_the_history() -> None:
    """Also where the history has been complete for some hours of a day: the day before yesterday counts as a whole."""
    load = daily_steps(5).part(DAY - 60)
    expected = np.lib.stride_tricks.sliding_window_view(np.append(load.values, [0.0] * 5), 6).max(axis=1)
    assert judge_expected(load, expected, OPTIONS).holds
    wrong = slice(60 + 2 * DAY, 3 * DAY)
    expected[wrong] = load.values[wrong] * np.where(np.arange(DAY - 60) // 60 % 2, 3.0, 1.0)
    assert "but lost" in judge_expected(load, expected, OPTIONS).text
