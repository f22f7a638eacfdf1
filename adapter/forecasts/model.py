"""The forecast: ridge regression of how much a load grows within the horizon, from its own history.

What is predicted is the logarithm of (highest load within the horizon / load now). The inputs are how the load has
changed in the last two hours, how it grew at the same time of day in the last 7 days and a week ago, and the time of
day and of the week. The penalty shrinks the prediction to "no growth" where nothing repeats. The expected load is never
below the load now, and at most `ceiling` times the highest of the last 7 days at that time of day; more only where the
load has been higher than these days for most of the last hour.

All of it is causal: what is expected at a minute follows from this minute and those before it. So one call can compute
the expectations of a whole recorded week, as a replay needs.

The same time of day is that on the clocks of a time zone.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from adapter.forecasts.options import ForecastOptions, number_text

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]

MINUTE: Final = 60
DAY_MINUTES: Final = 24 * 60
_OFFSET_MINUTES: Final = 15
"""No time zone changes its offset but at a quarter of an hour."""
LEAST_HISTORY: Final = 3 * DAY_MINUTES
"""In minutes; with less there is no forecast."""
MISSING_SHARE: Final = 0.05
"""So much of the least history may be missing."""
SEASON_DAYS: Final = 7
_DAYS: Final = range(1, SEASON_DAYS + 1)
RECENT_MINUTES: Final = (SEASON_DAYS + 1) * DAY_MINUTES + 60
"""How much `ForecastModel.expect` looks at; a day more than a week, and an hour, which a clock change may take."""
_SYNC_SECONDS: Final = 15
"""An HPA's reading may be so old when it acts."""
_LAGS: Final = (1, 2, 3, 5, 10, 15, 30, 60, 120)
_PENALTY: Final = 10.0
_MAX_LOG: Final = math.log(5.0)
"""No growth counts as more than 5 times."""
_LEAST_SHARE: Final = 0.01
"""A load below this share of the usual one counts as this share: logarithms have no 0."""
_MAX_DEVIATION: Final = 10.0
"""Inputs further from their mean count as so many standard deviations. Steps are that rare, bad samples rarer."""
_LEVEL_MINUTES: Final = 60
"""A load above those of the last 7 days for most of this time is a new level, which raises the ceiling."""
_HOLE_MINUTES: Final = 10
"""A hole that is not longer is bridged by the value before it."""
_LEAST_GROWTH: Final = 1.02
_LEAST_PART: Final = 1.05
"""Growth, and parts of it, that a sentence names."""


@dataclass(frozen=True, slots=True, eq=False)
class MinuteSeries:
    """A load with one value a minute, the sum over a group's pods or an object's value; read-only."""

    start: int
    """Of the first minute, in seconds since the epoch; a multiple of 60."""
    values: NDArray[np.floating]
    """The value at the beginning of each minute, or the newest since then in the last one; NaN: none is known."""

    def part(self, first: int, last: int | None = None) -> MinuteSeries:
        """Return the minutes from one index to before another; indices below 0 count from the end."""
        first = max(first + len(self.values), 0) if first < 0 else first
        return MinuteSeries(self.start + first * MINUTE, self.values[first:last])


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The highest load that is expected from a time to the horizon after it."""

    options: ForecastOptions
    time: float
    now: float
    """The load at this time."""
    value: float
    """At least `now`."""
    grew: tuple[float, ...] = ()
    """How many times it grew within the horizon at this time of day, on each of the last 7 days that is known."""
    parts: tuple[tuple[str, float], ...] = ()
    """(inputs in words, the factor that they contribute), the greatest first."""
    is_limited: bool = False
    """The ceiling made it lower."""

    @property
    def growth(self) -> float:
        """`value` / `now`."""
        return self.value / self.now if self.now else 1.0

    @property
    def sentence(self) -> str:
        """Such as "expects 91 within 5 minutes (now 52): between 06:55 and 07:00 it grew 1.7 times on 6 of 7 days"."""
        minutes = round(self.options.horizon / MINUTE)
        within = f"within {minutes} minute{'s' * (minutes != 1)} (now {number_text(self.now)})"
        if self.growth < _LEAST_GROWTH:
            return f"expects no growth {within}"
        text = f"expects {number_text(self.value)} {within}"
        grown = [each for each in self.grew if each >= (1 + self.growth) / 2]
        if self.grew:
            times = f" {statistics.median(grown):.2g} times" if grown else ""
            begin, end = (
                f"{datetime.fromtimestamp(at, self.options.zone):%H:%M}"
                for at in (self.time, self.time + self.options.horizon)
            )
            text += f": between {begin} and {end} it grew{times} on {len(grown)} of {len(self.grew)} days"
        parts = [f"{name} (x {part:.2f})" for name, part in self.parts if not 1 / _LEAST_PART < part < _LEAST_PART]
        if parts:
            text += f"; by {', '.join(parts)}"
        if self.is_limited:
            text += f"; limited to {self.options.ceiling:g} times the highest of the last 7 days at this time"
        return text


@dataclass(frozen=True, slots=True, eq=False)
class ForecastModel:
    """A fitted regression; without the history, so it is small."""

    options: ForecastOptions
    floor: float
    """Loads below this count as this."""
    intercept: float
    means: Floats
    deviations: Floats
    weights: Floats
    """Of the standardised inputs."""

    def expect(self, recent: MinuteSeries) -> Expectation | str:
        """Return what is expected after the last of some minutes, or why nothing is: a clause without a full stop.

        `recent` has best at least `RECENT_MINUTES`.
        """
        recent = recent.part(-RECENT_MINUTES)
        if not len(recent.values) or not math.isfinite(recent.values[-1]):
            return "there is no value of this minute"
        inputs = _Inputs(recent, self.options, self.floor)
        at = np.array([inputs.count - 1])
        load, limit = float(inputs.load[-1]), float(inputs.limits(at)[0])
        if math.isnan(limit):
            return "nothing is known of this time of day in the last 7 days"
        if load > limit:
            return "the load is higher than any that the model has seen at this time of day"
        rows = self._rows(inputs, at)
        grown = load * float(self._growth(rows)[0])
        grew = np.exp(inputs.of_days(at, inputs.rises[0])[:, 0])
        return Expectation(
            options=self.options,
            time=recent.start + MINUTE * (inputs.count - 1),
            now=load,
            value=min(grown, limit),
            grew=tuple(round(float(each), 3) for each in grew if math.isfinite(each)),
            parts=self._parts(rows[0]),
            is_limited=grown > limit,
        )

    def expect_each(self, series: MinuteSeries, first: int, last: int) -> Floats:
        """Return what `expect` would at each of the minutes from `first` to before `last`; NaN: no forecast."""
        inputs = _Inputs(series, self.options, self.floor)
        at = np.arange(first, last)
        load, limit = inputs.load[at], inputs.limits(at)
        value = np.maximum(np.minimum(load * self._growth(self._rows(inputs, at)), limit), load)
        value[~(load <= limit)] = np.nan
        return value

    def _rows(self, inputs: _Inputs, at: Indices) -> Floats:
        return _standardised(inputs.rows(at), self.means, self.deviations)

    def _growth(self, rows: Floats) -> Floats:
        growth: Floats = np.exp(np.clip(self.intercept + rows @ self.weights, 0.0, _MAX_LOG))
        return growth

    def _parts(self, row: Floats) -> tuple[tuple[str, float], ...]:
        sums: dict[str, float] = {}
        for name, part in zip(_NAMES, row * self.weights, strict=True):
            sums[name] = sums.get(name, 0.0) + float(part)
        found = sorted(sums.items(), key=lambda item: -abs(item[1]))
        return tuple((name, round(math.exp(part), 3)) for name, part in found)


def fit(history: MinuteSeries, options: ForecastOptions) -> ForecastModel | str:
    """Return a model of a history, at most `options.history` of it, or why there is none: a clause."""
    history = history.part(-math.ceil(options.history / MINUTE))
    known = history.values[np.isfinite(history.values)].astype(np.float64)
    if len(known) < LEAST_HISTORY * (1 - MISSING_SHARE):
        return f"there are {len(known) / DAY_MINUTES:.1f} days of history, and at least 3 are needed"
    usual = float(np.median(known[known > 0])) if (known > 0).any() else 0.0
    if usual <= 0:
        return "the load is always 0"
    inputs = _Inputs(history, options, usual * _LEAST_SHARE)
    at = np.arange(DAY_MINUTES, inputs.count - inputs.ahead)
    target = inputs.rises[0][at]
    rows = inputs.rows(at)
    there = np.isfinite(target)
    rows, target = rows[there], np.clip(target[there], -1.0, _MAX_LOG)
    if len(rows) < DAY_MINUTES:
        return "the history has too many holes"
    counts = np.maximum(np.isfinite(rows).sum(axis=0), 1)
    means = np.nansum(rows, axis=0) / counts
    deviations = np.sqrt(np.nansum((rows - means) ** 2, axis=0) / counts)
    deviations[deviations < 1e-9] = 1.0
    rows, intercept = _standardised(rows, means, deviations), float(target.mean())
    square = rows.T @ rows + _PENALTY * np.eye(rows.shape[1])
    weights = np.linalg.solve(square, rows.T @ (target - intercept)).astype(np.float64)
    if not np.isfinite(weights).all():
        return "the regression has no solution"
    return ForecastModel(options, usual * _LEAST_SHARE, intercept, means, deviations, weights)


def _standardised(rows: Floats, means: Floats, deviations: Floats) -> Floats:
    """Return the inputs as standard deviations from their means; unknown ones are the mean."""
    return np.clip(np.nan_to_num((rows - means) / deviations, nan=0.0), -_MAX_DEVIATION, _MAX_DEVIATION)


_RECENT: Final = "the last two hours"
_SAME_TIME: Final = "the same time on other days"
_CALENDAR: Final = "the time of day and of the week"
_NAMES: Final = (*[_RECENT] * len(_LAGS), *[_SAME_TIME] * 16, *[_CALENDAR] * 11)
"""Of the columns of `_Inputs.rows`, for people."""


class _Inputs:
    """The inputs of the regression at minutes of a series.

    Args:
        series: the load.
        options: the rule's.
        floor: loads below this count as this.
    """

    def __init__(self, series: MinuteSeries, options: ForecastOptions, floor: float) -> None:
        self.count = len(series.values)
        self.ahead = math.ceil((options.horizon + _SYNC_SECONDS) / MINUTE)
        """Minutes after this one that the forecast covers."""
        self._options = options
        self.load: Floats = np.where(np.isfinite(series.values), series.values, np.nan).astype(np.float64)
        self._log = np.log(np.maximum(_bridged(self.load), floor))
        self._local = local_minutes(series.start, self.count, options.zone)
        self.rises = [
            np.clip(_highest_after(self._log, minutes) - self._log, -_MAX_LOG, _MAX_LOG)
            for minutes in (self.ahead, 1, max(self.ahead // 2, 1), 2 * self.ahead)
        ]
        """The logarithm of the growth after each minute, over four horizons."""
        self._highest = np.fmax(_highest_after(self.load, self.ahead), self.load)

    def rows(self, at: Indices) -> Floats:
        """Return the inputs, one row for each of the minutes."""
        columns = [self._log[at] - taken(self._log, at - lag) for lag in _LAGS]
        for rises in self.rises:
            grown = self.of_days(at, rises)
            mean, median, highest = summaries(grown)
            week_ago = np.where(np.isfinite(grown[-1]), grown[-1], median)
            columns += [mean, median, highest, week_ago]
        minute = self._local[at] % DAY_MINUTES * (2 * math.pi / DAY_MINUTES)
        weekday = (self._local[at] // DAY_MINUTES + 3) % 7
        columns += [np.sin(minute), np.cos(minute), np.sin(2 * minute), np.cos(2 * minute)]
        columns += [(weekday == day).astype(np.float64) for day in range(7)]
        return np.stack(columns, axis=1)

    def of_days(self, at: Indices, values: Floats) -> Floats:
        """Return the values at this time of day, a row for each of the last 7 days; NaN: unknown."""
        return np.stack([taken(values, days_before(self._local, at, day)) for day in _DAYS])

    def limits(self, at: Indices) -> Floats:
        """Return the ceiling; NaN: this time is known of none of the last 7 days."""
        highest = np.fmax.reduce(self.of_days(at, self._highest))
        hour = np.arange(at[0] - _LEVEL_MINUTES + 1, at[-1] + 1)
        before = np.fmax.reduce(self.of_days(np.maximum(hour, 0), self.load))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(taken(self.load, hour) / before, nan=0.0, posinf=0.0)
        levels = np.median(sliding_window_view(ratios, _LEVEL_MINUTES), axis=1)
        limits: Floats = self._options.ceiling * highest * np.maximum(levels[at - at[0]], 1.0)
        return limits


def local_minutes(start: int, count: int, zone: ZoneInfo) -> Indices:
    """Return the time on the clocks of a zone at the beginning of each minute, in minutes since 1970-01-01 there."""
    first = start // MINUTE
    days = range(first // DAY_MINUTES, (first + count) // DAY_MINUTES + 1)
    offsets = np.concatenate([_offsets(day, zone) for day in days])
    minutes = np.arange(first, first + count)
    local: Indices = minutes + offsets[minutes // _OFFSET_MINUTES - days[0] * (DAY_MINUTES // _OFFSET_MINUTES)]
    return local


@lru_cache(maxsize=1024)
def _offsets(day: int, zone: ZoneInfo) -> Indices:
    """Return the offset from UTC in minutes at each quarter of an hour of a day since the epoch, in UTC."""
    times = range(day * 86_400, (day + 1) * 86_400, _OFFSET_MINUTES * MINUTE)
    found = [datetime.fromtimestamp(time, zone).utcoffset() for time in times]
    return np.array([0 if offset is None else int(offset.total_seconds()) // MINUTE for offset in found])


def days_before(local: Indices, at: Indices, days: int) -> Indices:
    """Return the indices of the minutes with the same time on the clock some days before; below 0: before the first.

    `local`: see `local_minutes`; of all minutes.
    """
    found = at - days * DAY_MINUTES
    there: Indices = found + (local[at] - local[np.maximum(found, 0)] - days * DAY_MINUTES)
    return there


def taken(values: Floats, at: Indices) -> Floats:
    """Return the values at indices, NaN where these are before the first."""
    return np.where(at >= 0, values[np.maximum(at, 0)], np.nan)


def _highest_after(values: Floats, minutes: int) -> Floats:
    """Return the highest of so many values after each one; NaN at the end, and if one of them is NaN."""
    padded = np.concatenate([values[1:], np.full(minutes, np.nan)])
    highest, have = padded, 1
    while have < minutes:
        step = min(have, minutes - have)
        highest = np.maximum(highest[: len(highest) - step], highest[step:])
        have += step
    return highest[: len(values)]


def _bridged(values: Floats) -> Floats:
    """Return values in which short holes have the value before them."""
    known = np.where(np.isfinite(values), np.arange(len(values)), -_HOLE_MINUTES - 1)
    last = np.maximum.accumulate(known)
    near = np.arange(len(values)) - last <= _HOLE_MINUTES
    return np.where(near, values[np.maximum(last, 0)], np.nan)


def summaries(grown: Floats) -> list[Floats]:
    """Return mean, median and maximum of each column's known values; NaN: none is."""
    known = np.isfinite(grown)
    count = known.sum(axis=0)
    ordered = np.sort(grown, axis=0)  # NaN last
    columns = np.arange(grown.shape[1])
    middle = (ordered[np.maximum(count - 1, 0) // 2, columns] + ordered[count // 2 % len(grown), columns]) / 2
    mean = np.where(known, grown, 0.0).sum(axis=0) / np.maximum(count, 1)
    highest = ordered[np.maximum(count - 1, 0), columns]
    return [np.where(count > 0, each, np.nan) for each in (mean, middle, highest)]
