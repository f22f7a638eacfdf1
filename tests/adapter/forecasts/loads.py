"""Loads that repeat each day, and those that do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from adapter.forecasts.model import DAY_MINUTES, Floats, MinuteSeries

START = round(datetime(2026, 3, 16, tzinfo=UTC).timestamp())
"""A Monday; Berlin's clocks go forward on the 29th at 01:00 UTC."""
STEP = 7 * 60
"""The minute of the day from which a daily step lasts two hours."""


def daily_steps(
    days: int, *, zone: str = "UTC", low: float = 100.0, high: float = 200.0, seed: int = 1
) -> MinuteSeries:
    """Return a load that doubles at 07:00 on the clocks of a zone, for two hours, with noise of a percent."""
    begin = datetime.fromtimestamp(START, UTC)
    local = [(begin + timedelta(minutes=15 * quarter)).astimezone(ZoneInfo(zone)) for quarter in range(days * 96)]
    of_day = np.repeat([each.hour * 60 + each.minute for each in local], 15) + np.tile(np.arange(15), days * 96)
    values = np.where((of_day >= STEP) & (of_day < STEP + 120), high, low)
    return MinuteSeries(START, values * _noise(len(values), seed))


def random_walk(days: int, seed: int = 1) -> MinuteSeries:
    """Return a load that returns to its mean, and never repeats."""
    generator = np.random.default_rng(seed)
    level, values = 0.0, []
    for step in generator.normal(0, 0.03, days * DAY_MINUTES):
        level = 0.995 * level + step
        values.append(100 * np.exp(level))
    return MinuteSeries(START, np.array(values))


def changed(series: MinuteSeries, first: int, last: int, factor: float) -> MinuteSeries:
    """Return a load multiplied between two minutes; NaN makes a hole."""
    values: Floats = series.values.astype(np.float64)
    values[first:last] *= factor
    return MinuteSeries(series.start, values)


def until(series: MinuteSeries, minute: int) -> MinuteSeries:
    """Return the minutes to this one."""
    return series.part(0, minute + 1)


def _noise(count: int, seed: int) -> Floats:
    noise: Floats = np.random.default_rng(seed).normal(1, 0.01, count)
    return noise
