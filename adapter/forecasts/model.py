"""The forecast: ridge regression of how much a load grows within the horizon, from its own history.

What is predicted is the logarithm of (highest load within the horizon / load now). The inputs are how the load has
changed in the last two hours, how it grew at the same time of day in the last 7 days and a week ago, and the time of
day and of the week. The penalty shrinks the prediction to "no growth" where nothing repeats. The expected load is never
below the load now, and at most `ceiling` times the highest of the last 7 days at that time of day; more only where the
load has been higher than these days for most of the last hour.

All of it is causal: what is expected at a minute follows from this minute and those before it. So one call can compute
the expectations of a whole recorded week, as a replay needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.series import DAY_MINUTES, MINUTE, Floats, Indices, MinuteSeries, days_before, local_minutes

LEAST_HISTORY: Final = 3 * DAY_MINUTES
"""Minutes with a value; with fewer there is no forecast."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The highest load that is expected from a time to the horizon after it."""

    time: float
    now: float
    """The load at this time."""
    value: float
    """At least `now`."""
    horizon: float
    """In seconds."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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

    def expect(self, recent: MinuteSeries, now: float) -> Expectation | str:
        """Return what is expected, or why nothing is: a clause without a full stop.

        Args:
            recent: the last minutes up to now, best `RECENT_MINUTES`; the last one is that of `now`.
            now: seconds since the epoch.
        """
        index = int((now - recent.start) // MINUTE)
        if not 0 <= index < len(recent.values) or not math.isfinite(recent.values[index]):
            return "there is no value of this minute"
        inputs = _Inputs(recent.between(now - RECENT_MINUTES * MINUTE, now + 1), self.options, self.floor)
        at = np.array([inputs.count - 1])
        load = float(inputs.load[at[0]])
        rows = self._standardised(inputs.rows(at))
        limit = float(inputs.limits(at)[0])
        if math.isnan(limit):
            return "nothing is known of this time of day in the last 7 days"
        if load > limit:
            return "the load is higher than any that the model has seen at this time of day"
        growth = float(self._growth(rows)[0])
        value = max(min(load * growth, limit), load)
        return Expectation(
            time=now,
            now=load,
            value=value,
            horizon=self.options.horizon,
            grew=tuple(round(float(each), 3) for each in np.exp(inputs.grown(at)[:, 0]) if math.isfinite(each)),
            parts=self._parts(rows[0]),
            is_limited=load * growth > value,
        )

    def expect_each(self, series: MinuteSeries, first: int, last: int) -> Floats:
        """Return what `expect` would at each of the minutes from `first` to before `last`; NaN: no forecast."""
        inputs = _Inputs(series, self.options, self.floor)
        at = np.arange(first, last)
        load, limit = inputs.load[at], inputs.limits(at)
        value = np.maximum(np.minimum(load * self._growth(self._standardised(inputs.rows(at))), limit), load)
        value[~(load <= limit)] = np.nan
        return value

    def _standardised(self, rows: Floats) -> Floats:
        rows = (rows - self.means) / self.deviations
        return np.clip(np.nan_to_num(rows, nan=0.0), -_MAX_DEVIATION, _MAX_DEVIATION)

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
    history = history.between(history.end - options.history, history.end)
    known = history.values[np.isfinite(history.values)].astype(np.float64)
    if len(known) < LEAST_HISTORY:
        return f"there are {len(known) / DAY_MINUTES:.1f} days of history, and at least 3 are needed"
    usual = float(np.median(known[known > 0])) if (known > 0).any() else 0.0
    if usual <= 0:
        return "the load is always 0"
    inputs = _Inputs(history, options, usual * _LEAST_SHARE)
    at = np.arange(DAY_MINUTES, inputs.count - inputs.ahead)
    target = inputs.ahead_of(at)
    rows = inputs.rows(at)
    there = np.isfinite(target)
    rows, target = rows[there], np.clip(target[there], -1.0, _MAX_LOG)
    if len(rows) < DAY_MINUTES:
        return "the history has too many holes"
    counts = np.isfinite(rows).sum(axis=0)
    means = np.where(counts > 0, np.nansum(rows, axis=0) / np.maximum(counts, 1), 0.0)
    rows = np.nan_to_num(rows - means, nan=0.0)
    deviations = np.sqrt((rows**2).sum(axis=0) / np.maximum(counts, 1))
    deviations[deviations < 1e-9] = 1.0
    rows = np.clip(rows / deviations, -_MAX_DEVIATION, _MAX_DEVIATION)
    intercept = float(target.mean())
    square = rows.T @ rows + _PENALTY * np.eye(rows.shape[1])
    weights = np.linalg.solve(square, rows.T @ (target - intercept))
    if not np.isfinite(weights).all():
        return "the regression has no solution"
    return ForecastModel(
        options=options,
        floor=usual * _LEAST_SHARE,
        intercept=intercept,
        means=means,
        deviations=deviations,
        weights=weights,
    )


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
        self._rises = [
            np.clip(_highest_after(self._log, minutes) - self._log, -_MAX_LOG, _MAX_LOG)
            for minutes in (self.ahead, 1, max(self.ahead // 2, 1), 2 * self.ahead)
        ]
        self._highest = np.fmax(_highest_after(self.load, self.ahead), self.load)

    def rows(self, at: Indices) -> Floats:
        """Return the inputs, one row for each of the minutes."""
        columns = [self._log[at] - taken(self._log, at - lag) for lag in _LAGS]
        for rises in self._rises:
            grown = self._grown(at, rises)
            mean, median, highest = summaries(grown)
            week_ago = np.where(np.isfinite(grown[-1]), grown[-1], median)
            columns += [mean, median, highest, week_ago]
        minute = self._local[at] % DAY_MINUTES * (2 * math.pi / DAY_MINUTES)
        weekday = (self._local[at] // DAY_MINUTES + 3) % 7
        columns += [np.sin(minute), np.cos(minute), np.sin(2 * minute), np.cos(2 * minute)]
        columns += [(weekday == day).astype(np.float64) for day in range(7)]
        return np.stack(columns, axis=1)

    def grown(self, at: Indices) -> Floats:
        """Return the logarithm of the growth at this time, a row for each of the last 7 days; NaN: unknown."""
        return self._grown(at, self._rises[0])

    def _grown(self, at: Indices, rises: Floats) -> Floats:
        return np.stack([taken(rises, days_before(self._local, at, day)) for day in _DAYS])

    def limits(self, at: Indices) -> Floats:
        """Return the ceiling; NaN: this time is known of none of the last 7 days."""
        highest = np.fmax.reduce([taken(self._highest, days_before(self._local, at, day)) for day in _DAYS])
        hour = np.arange(at[0] - _LEVEL_MINUTES + 1, at[-1] + 1)
        before = np.fmax.reduce([taken(self.load, days_before(self._local, np.maximum(hour, 0), day)) for day in _DAYS])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(taken(self.load, hour) / before, nan=0.0, posinf=0.0)
        levels = np.median(sliding_window_view(ratios, _LEVEL_MINUTES), axis=1)
        limits: Floats = self._options.ceiling * highest * np.maximum(levels[at - at[0]], 1.0)
        return limits

    def ahead_of(self, at: Indices) -> Floats:
        """Return the logarithm of the growth after each of the minutes; needs the minutes after it."""
        return self._rises[0][at]


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
