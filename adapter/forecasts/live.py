"""The forecast of one metric while it is served: the load's minutes, its model, and what was expected and came."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
import numpy as np

from adapter.forecasts.gate import Judgement, is_long_enough, judge, outcomes
from adapter.forecasts.model import (
    DAY_MINUTES,
    MINUTE,
    RECENT_MINUTES,
    SEASON_DAYS,
    Expectation,
    Floats,
    ForecastModel,
    MinuteSeries,
    days_before,
    fit,
    local_minutes,
    summaries,
    taken,
)
from adapter.forecasts.options import ForecastOptions

_HOUR_MINUTES: Final = 60
_SHOWN_DAYS: Final = 3
_UNREAD_MINUTES: Final = 180
"""At most so much passes until what was expected is compared with what came: an hour, and the longest horizon."""
_NEWEST_MINUTES: Final = 120
_MISSING_MINUTES: Final = 10
"""So many of the newest minutes may be missing."""


class Hour(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An hour of the next day; values are the highest of the hour, None if none is known."""

    start: datetime
    """When it begins, in the model's time zone."""
    days: tuple[float | None, ...]
    """The values of the last days at this time, those of yesterday last."""
    usual: float | None
    """The median of the last 7 days, by the minute."""
    expected: float | None
    """What the forecast would be if the load were the usual one until then."""


class LiveForecast:
    """The forecast of one metric. Nothing here does I/O; `fitted` is for worker threads.

    Attributes:
        options: the rule's.
        model: the fitted model; None: there is none yet.
    """

    def __init__(self, options: ForecastOptions, now: float, outcomes: Counter[str]) -> None:
        """Begin without any value; `now` is in seconds since the epoch.

        `outcomes` counts minutes by how the load compared with what was expected: by at most 10 % more or less
        (`within`), `above` or `below` that.
        """
        self.options = options
        self.model: ForecastModel | None = None
        self._outcomes = outcomes
        self._history_minutes = math.ceil(options.history / MINUTE)
        self._end = int(now // MINUTE) + 1  # after the last of the minutes, since the epoch
        self._values = np.full(self._history_minutes + DAY_MINUTES, np.nan, dtype=np.float32)
        # What was expected at the last of these minutes.
        self._expected = np.full(DAY_MINUTES + _UNREAD_MINUTES, np.nan, dtype=np.float32)
        self._counted = self._end - 1  # up to this minute, since the epoch
        self._newest: tuple[tuple[ForecastModel, int, float], Expectation | str] | None = None

    def history_start(self, now: float) -> int:
        """Return where the history of a forecast's day begins that began up to a day ago; a multiple of 60."""
        return (int(now // MINUTE) - self._history_minutes - DAY_MINUTES) * MINUTE

    def extend(self, points: Sequence[tuple[float, float]], now: float) -> float | None:
        """Add (time, value) of the history. They replace values that were observed, and outcomes are counted.

        Returns:
            How many times the history was what was observed at the same minutes, in the median; None: nothing was.
        """
        minute = int(now // MINUTE)
        self._shift(minute)
        found = np.array(points, dtype=np.float64).reshape(-1, 2)
        index = (found[:, 0] // MINUTE).astype(np.int64) - self._end
        inside = (index >= -len(self._values)) & (index < 0)
        index, values = index[inside], found[inside, 1]
        observed = self._values[index]
        both = (observed > 0) & (values > 0)
        ratio = float(np.median(values[both] / observed[both])) if both.any() else None
        self._values[index] = values
        self._newest = None
        ahead = math.ceil(self.options.horizon / MINUTE)
        first = max(self._counted, self._end - len(self._expected))
        if first < minute - ahead:
            counted = slice(first - self._end, minute - self._end)
            self._outcomes.update(outcomes(self._values[counted], self._expected[counted], self.options))
            self._counted = minute - ahead
        return ratio

    def observe(self, now: float, value: float) -> None:
        """Add the present value; `now` is at most a day before that of any call."""
        self._shift(int(now // MINUTE))
        self._values[int(now // MINUTE) - self._end] = value

    def expect(self, now: float) -> Expectation | str:
        """Return what is expected after the value that was observed now, or why nothing is."""
        model = self.model
        if model is None:
            return "there is no model yet"
        minute = int(now // MINUTE)
        recent = self._until(minute + 1)
        missing = int((~np.isfinite(recent.values[-_NEWEST_MINUTES:])).sum())
        if missing > _MISSING_MINUTES:
            return f"{missing} of the last {_NEWEST_MINUTES} minutes have no value"
        # Several HPAs and frequent clients request one value: a model takes a millisecond or two for each.
        inputs = (model, minute, float(recent.values[-1]))
        if self._newest is None or self._newest[0] != inputs:
            self._newest = inputs, model.expect(recent)
        found = self._newest[1]
        if not isinstance(found, str):
            self._expected[minute - self._end] = found.value
        return found

    def history(self, until: float) -> MinuteSeries:
        """Return a copy of the history until a time for a worker thread: what is known, up to the options' length."""
        series = self._until(int(until // MINUTE)).part(-self._history_minutes)
        known = np.flatnonzero(np.isfinite(series.values))
        series = series.part(int(known[0]) if len(known) else len(series.values))
        return MinuteSeries(series.start, series.values.copy())

    def is_long_enough(self, until: float) -> bool:
        """Return whether the history until a time has the days that a model and the gate need."""
        return is_long_enough(self.history(until), self.options)

    def fitted(self, history: MinuteSeries) -> tuple[ForecastModel | None, Judgement | None, str]:
        """Return a model and what the gate says, or why there is none. Takes a second: call it in a worker thread."""
        model = fit(history, self.options)
        return (None, None, model) if isinstance(model, str) else (model, judge(history, self.options), "")

    def next_day(self, now: float) -> tuple[Hour, ...]:
        """Return the next 24 full hours, with the last three days; none without a model. Takes some 0.01 s."""
        model, history = self.model, self.history(now + MINUTE)
        if model is None:
            return ()
        recent = history.part(-RECENT_MINUTES)
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
                start=datetime.fromtimestamp(recent.start + (len(known) + hour.start) * MINUTE, model.options.zone),
                days=tuple(_highest(past[day - 1][hour]) for day in range(_SHOWN_DAYS, 0, -1)),
                usual=_highest(usual[hour]),
                expected=_highest(expected[hour]),
            )
            for hour in hours
        )

    def day(self, now: float) -> list[tuple[int, float, float]]:
        """Return (time, value, expected value) of each minute of the last day, to the last one; NaN: not known."""
        end = min(int(now // MINUTE) + 1, self._end)
        values = self._until(end).part(-DAY_MINUTES).values.tolist()
        expected = self._expected[: len(self._expected) - (self._end - end)][-DAY_MINUTES:].tolist()
        times = range((end - DAY_MINUTES) * MINUTE, end * MINUTE, MINUTE)
        return list(zip(times, values, expected, strict=True))

    def _until(self, minute: int) -> MinuteSeries:
        """Return the minutes before one, since the epoch."""
        first = self._end - len(self._values)
        return MinuteSeries(first * MINUTE, self._values[: max(minute - first, 0)])

    def _shift(self, minute: int) -> None:
        """Move the minutes, so that there is a place for this one."""
        beyond = minute + 1 - self._end
        if beyond <= 0:
            return
        for values in (self._values, self._expected):
            values[:-beyond] = values[beyond:]
            values[-beyond:] = np.nan
        self._end += beyond


def _highest(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None
