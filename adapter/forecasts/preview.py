"""The next day as a model sees it, beside the last ones. Takes some tenths of a second: call it in a worker thread."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
import numpy as np

from adapter.forecasts.model import RECENT_MINUTES, SEASON_DAYS, ForecastModel, summaries, taken
from adapter.forecasts.series import DAY_MINUTES, MINUTE, Floats, MinuteSeries, days_before, local_minutes

_HOUR_MINUTES: Final = 60


class Hour(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An hour of the next day; values are the highest of the hour, None if none is known.

    Attributes:
        start: when it begins, in the model's time zone.
        days: the values of the last days at this time, those of yesterday last.
        usual: the median of the last 7 days, by the minute.
        expected: what the forecast would be if the load were the usual one until then.
    """

    start: datetime
    days: tuple[float | None, ...]
    usual: float | None
    expected: float | None


def next_day(model: ForecastModel, history: MinuteSeries, *, days: int = 3) -> tuple[Hour, ...]:
    """Return the 24 hours that begin with the hour of the history's end, with the last `days`."""
    recent = history.between(history.end - RECENT_MINUTES * MINUTE, history.end)
    known = recent.values.astype(np.float64)
    values = np.concatenate([known, np.full(DAY_MINUTES + _HOUR_MINUTES, np.nan)])
    local = local_minutes(recent.start, len(values), model.options.zone)
    at = np.arange(len(known), len(values))
    past = np.stack([taken(values, days_before(local, at, day)) for day in range(1, SEASON_DAYS + 1)])
    _, usual, _ = summaries(past)
    values[len(known) :] = usual
    expected = model.expect_each(MinuteSeries(recent.start, values), len(known), len(values))
    first = -(recent.start // MINUTE + len(known)) % _HOUR_MINUTES  # minutes until the next full hour
    hours = [slice(begin, begin + _HOUR_MINUTES) for begin in range(first, first + DAY_MINUTES, _HOUR_MINUTES)]
    return tuple(
        Hour(
            start=datetime.fromtimestamp(recent.end + hour.start * MINUTE, model.options.zone),
            days=tuple(_highest(past[day - 1][hour]) for day in range(days, 0, -1)),
            usual=_highest(usual[hour]),
            expected=_highest(expected[hour]),
        )
        for hour in hours
    )


def _highest(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None
