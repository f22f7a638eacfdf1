"""The next day as a model sees it, beside the last ones. Takes some tenths of a second: call it in a worker thread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from adapter.forecasts.model import RECENT_MINUTES, ForecastModel, summaries
from adapter.forecasts.series import DAY_MINUTES, MINUTE, Floats, MinuteSeries, days_before, local_minutes

_DAYS: Final = 7
_HOUR_MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of the next day; values are the highest of the hour, NaN if none is known.

    Attributes:
        start: seconds since the epoch.
        days: the values of the last days at this time, those of yesterday last.
        usual: the median of the last 7 days, by the minute.
        expected: what the forecast would be if the load were the usual one until then.
    """

    start: int
    days: tuple[float, ...]
    usual: float
    expected: float


def next_day(model: ForecastModel, history: MinuteSeries, *, days: int = 3) -> list[Hour]:
    """Return the 24 hours that begin with the hour of the history's end, with the last `days`."""
    recent = history.between(history.end - RECENT_MINUTES * MINUTE, history.end)
    known = recent.values.astype(np.float64)
    ahead = DAY_MINUTES + _HOUR_MINUTES
    values = np.concatenate([known, np.full(ahead, np.nan)])
    local = local_minutes(recent.start, len(values), model.options.zone)
    at = np.arange(len(known), len(values))
    past = np.stack([_at(values, days_before(local, at, day), len(known)) for day in range(1, _DAYS + 1)])
    _, usual, _ = summaries(past)
    values[len(known) :] = usual
    expected = model.expect_each(MinuteSeries(recent.start, values), len(known), len(values))
    first = -(recent.start // MINUTE + len(known)) % _HOUR_MINUTES  # minutes until the next full hour
    hours = []
    for begin in range(first, first + DAY_MINUTES, _HOUR_MINUTES):
        hour = slice(begin, begin + _HOUR_MINUTES)
        hours.append(
            Hour(
                start=recent.start + (len(known) + begin) * MINUTE,
                days=tuple(_highest(past[day - 1][hour]) for day in range(days, 0, -1)),
                usual=_highest(usual[hour]),
                expected=_highest(expected[hour]),
            )
        )
    return hours


def _at(values: Floats, index: np.ndarray[tuple[int], np.dtype[np.int64]], known: int) -> Floats:
    return np.where((index >= 0) & (index < known), values[np.clip(index, 0, known - 1)], np.nan)


def _highest(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else math.nan
