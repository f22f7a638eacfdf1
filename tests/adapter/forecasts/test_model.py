"""The regression: what it expects of loads that repeat, and that it has no opinion on any doubt."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from adapter.forecasts.model import DAY_MINUTES, MINUTE, Expectation, ForecastModel, MinuteSeries, fit
from adapter.forecasts.options import ForecastOptions
from tests.adapter.forecasts.loads import START, STEP, changed, daily_steps, random_walk, until

OPTIONS = ForecastOptions(horizon=300.0)
DAY = DAY_MINUTES


def fitted(history: MinuteSeries, options: ForecastOptions = OPTIONS) -> ForecastModel:
    model = fit(history, options)
    assert isinstance(model, ForecastModel), model
    return model


def expected(series: MinuteSeries, minute: int, *, days: int, options: ForecastOptions = OPTIONS) -> Expectation:
    """Return what a model of the first days expects at a minute."""
    found = fitted(until(series, days * DAY - 1), options).expect(until(series, minute))
    assert isinstance(found, Expectation), found
    return found


def test_daily_step_is_expected_before_it_comes_and_explained() -> None:
    series = daily_steps(11)
    found = expected(series, 10 * DAY + STEP - 4, days=10)
    assert found.value == pytest.approx(200, rel=0.06)
    assert found.now == pytest.approx(100, rel=0.05)
    assert len(found.grew) == 7
    assert all(each == pytest.approx(2, rel=0.1) for each in found.grew)
    assert found.parts[0][0] == "the same time on other days"
    assert found.parts[0][1] > 1.7
    assert expected(series, 10 * DAY + STEP - 20, days=10).value == pytest.approx(100, rel=0.06)


def test_step_follows_the_clocks_of_its_time_zone_through_their_change() -> None:
    series = daily_steps(15, zone="Europe/Berlin")  # 06:00 UTC, and from the 29th, the day 13, 05:00
    after = 14 * DAY + STEP - 120 - 4
    in_berlin = dataclasses.replace(OPTIONS, timezone="Europe/Berlin")
    assert expected(series, after, days=14, options=in_berlin).value == pytest.approx(200, rel=0.06)
    on_the_day = 13 * DAY + STEP - 120 - 4
    assert expected(series, on_the_day, days=13, options=in_berlin).value == pytest.approx(200, rel=0.06)
    assert expected(series, on_the_day, days=13).value < 125  # UTC has no such step


def test_nothing_is_expected_to_grow_where_nothing_repeats() -> None:
    series = random_walk(12)
    model = fitted(until(series, 10 * DAY - 1))
    found = model.expect_each(series, 10 * DAY, 12 * DAY)
    grown = np.nan_to_num(found / series.values[10 * DAY :], nan=1.0)
    assert np.quantile(grown, 0.99) < 1.25


def test_expectation_is_never_below_the_load_nor_above_the_ceiling() -> None:
    series = daily_steps(12)
    early = changed(series, 11 * DAY + STEP - 40, 11 * DAY + STEP - 20, 1.6)  # growth at a time that never had any
    model = fitted(until(series, 10 * DAY - 1))
    found = model.expect_each(early, 10 * DAY, 12 * DAY)
    for minute in range(10 * DAY, 12 * DAY, 7):
        load, value = early.values[minute], found[minute - 10 * DAY]
        highest = max(series.values[minute - day * DAY :][:7].max() for day in range(1, 8))
        if load > 1.1 * highest:
            assert math.isnan(value)
        else:
            assert load <= value <= 1.1 * highest * 1.0001


def test_many_minutes_at_once_are_the_same_as_one_after_the_other() -> None:
    series = changed(random_walk(10), 9 * DAY + 100, 9 * DAY + 130, math.nan)
    model = fitted(until(series, 9 * DAY - 1))
    at_once = model.expect_each(series, 9 * DAY, 10 * DAY)
    for minute in range(9 * DAY, 10 * DAY, 61):
        one = model.expect(until(series, minute))
        value = one.value if isinstance(one, Expectation) else math.nan
        assert value == pytest.approx(at_once[minute - 9 * DAY], nan_ok=True)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        (daily_steps(2), "there are 2.0 days of history, and at least 3 are needed"),
        (changed(daily_steps(5), 0, 3 * DAY, math.nan), "there are 2.0 days of history, and at least 3 are needed"),
        (changed(daily_steps(5), 0, 5 * DAY, 0.0), "the load is always 0"),
        (MinuteSeries(START, np.empty(0)), "there are 0.0 days of history, and at least 3 are needed"),
    ],
    ids=["short", "holes", "zero", "empty"],
)
def test_history_that_says_nothing_has_no_model(history: MinuteSeries, reason: str) -> None:
    assert fit(history, OPTIONS) == reason


def test_doubt_is_no_forecast() -> None:
    series = daily_steps(10)
    model = fitted(until(series, 9 * DAY - 1))
    noon = 9 * DAY + 720
    hole = changed(series, noon, noon + 1, math.nan)
    assert model.expect(until(hole, noon)) == "there is no value of this minute"
    unseen = changed(series, noon, 10 * DAY, 3.0)
    found = model.expect(until(unseen, noon))
    assert found == "the load is higher than any that the model has seen at this time of day"
    lonely = MinuteSeries(START + noon * MINUTE, series.values[noon : noon + 1])
    found = model.expect(lonely)
    assert found == "nothing is known of this time of day in the last 7 days"


def test_new_level_is_known_after_an_hour_and_its_steps_are_expected() -> None:
    series = daily_steps(11)
    doubled = changed(series, 10 * DAY, 11 * DAY, 2.0)
    found = expected(doubled, 10 * DAY + STEP - 4, days=10)
    assert found.value == pytest.approx(400, rel=0.12)


def test_bad_samples_and_holes_in_the_history_do_not_hide_a_step() -> None:
    series = daily_steps(11)
    for minute in (3 * DAY + STEP + 10, 8 * DAY + 720, 9 * DAY + STEP - 2):
        series = changed(series, minute, minute + 1, 100.0)
    series = changed(series, 4 * DAY + 30, 4 * DAY + 31, math.inf)
    series = changed(changed(series, 5 * DAY, 6 * DAY, math.nan), 7 * DAY + 30, 7 * DAY + 31, 0.0)
    assert expected(series, 10 * DAY + STEP - 4, days=10).value == pytest.approx(200, rel=0.15)
