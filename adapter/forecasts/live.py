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
_SPARE_MINUTES: Final = 60
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
        count = self._history_minutes + DAY_MINUTES + _SPARE_MINUTES
        self._values = np.full(count, np.nan, dtype=np.float32)
        self._first = int(now // MINUTE) + _SPARE_MINUTES // 2 - count  # since the epoch, in minutes
        # What was expected at the last of these minutes.
        self._expected = np.full(DAY_MINUTES + 2 * _SPARE_MINUTES, np.nan, dtype=np.float32)
        self._counted = int(now // MINUTE)  # up to this minute, since the epoch
        self._newest: tuple[tuple[ForecastModel, int, float], Expectation | str] | None = None

    def history_start(self, now: float) -> int:
        """Return where the history of a forecast's day begins that began up to a day ago; a multiple of 60."""
        return (int(now // MINUTE) - self._history_minutes - DAY_MINUTES) * MINUTE

    @staticmethod
    def as_array(points: Sequence[tuple[float, float]]) -> Floats:
        """Return points of the history, (time, value). A fortnight takes some milliseconds: call it in a thread."""
        return np.array(points, dtype=np.float64).reshape(-1, 2)

    def extend(self, found: Floats, now: float) -> float | None:
        """Add points of the history; see `as_array`. They replace values that were observed, and outcomes are counted.

        Returns:
            How many times the history was what was observed at the same minutes, in the median; None: nothing was.
        """
        minute = int(now // MINUTE)
        self._shift(minute)
        index = (found[:, 0] // MINUTE).astype(np.int64) - self._first
        inside = (index >= 0) & (index < len(self._values))
        index, values = index[inside], found[inside, 1]
        observed = self._values[index]
        both = (observed > 0) & (values > 0)
        ratio = float(np.median(values[both] / observed[both])) if both.any() else None
        self._values[index] = values
        self._newest = None
        first = max(self._counted, self._first_expected)
        ahead = math.ceil(self.options.horizon / MINUTE)
        if first < minute - ahead:
            load = self._values[first - self._first : minute - self._first]
            expected = self._expected[first - self._first_expected : minute - self._first_expected]
            self._outcomes.update(outcomes(load, expected, self.options))
            self._counted = minute - ahead
        return ratio

    def observe(self, now: float, value: float) -> None:
        """Add the present value."""
        minute = int(now // MINUTE)
        self._shift(minute)
        if minute >= self._first:
            self._values[minute - self._first] = value

    def expect(self, now: float) -> Expectation | str:
        """Return what is expected after the value that was observed now, or why nothing is."""
        model = self.model
        if model is None:
            return "there is no model yet"
        minute = int(now // MINUTE)
        last = minute - self._first + 1
        known = int(np.isfinite(self._values[max(last - _NEWEST_MINUTES, 0) : last]).sum())
        if known < _NEWEST_MINUTES - _MISSING_MINUTES:
            return f"{_NEWEST_MINUTES - known} of the last {_NEWEST_MINUTES} minutes have no value"
        # Several HPAs and frequent clients request one value: a model takes a millisecond or two for each.
        inputs = (model, minute, float(self._values[last - 1]))
        if self._newest is None or self._newest[0] != inputs:
            self._newest = inputs, model.expect(MinuteSeries(self._first * MINUTE, self._values[:last]))
        found = self._newest[1]
        if not isinstance(found, str):
            self._expected[minute - self._first_expected] = found.value
        return found

    def history(self, until: float) -> MinuteSeries:
        """Return a copy of the history until a time for a worker thread: what is known, up to the options' length."""
        last = max(int(until // MINUTE) - self._first, 0)
        first = max(last - self._history_minutes, 0)
        known = np.flatnonzero(np.isfinite(self._values[first:last]))
        first = first + int(known[0]) if len(known) else last
        return MinuteSeries((self._first + first) * MINUTE, self._values[first:last].copy())

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
        """Return (time, value, expected value) of each minute of the last day; NaN: not known.

        Without further requests it ends at most half an hour after the last one.
        """
        first_value, first_expected = self._first, self._first_expected
        end = min(int(now // MINUTE) + 1, first_value + len(self._values))
        first = max(end - DAY_MINUTES, first_expected)
        times = range(first * MINUTE, end * MINUTE, MINUTE)
        values = self._values[first - first_value : end - first_value].tolist()
        expected = self._expected[first - first_expected : end - first_expected].tolist()
        return list(zip(times, values, expected, strict=True))

    @property
    def _first_expected(self) -> int:
        """The first minute of `_expected`, since the epoch."""
        return self._first + len(self._values) - len(self._expected)

    def _shift(self, minute: int) -> None:
        """Move the minutes, so that there is a place for this one."""
        beyond = minute - self._first - len(self._values) + 1
        if beyond <= 0:
            return
        beyond += _SPARE_MINUTES // 2
        for values in (self._values, self._expected):
            by = min(beyond, len(values))
            values[:-by] = values[by:].copy()
            values[-by:] = np.nan
        self._first += beyond


def _highest(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None
