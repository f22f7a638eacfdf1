"""Whether forecasts would have saved pods in the last days, and how well they were: a causal replay without a cluster.

The load is that of an HPA with a plain target: what pods can serve is such that the mean load needs 20 of them, new
ones are ready after the horizon, and a reconciliation is once a minute, with the default tolerance, stabilization and
no policy that is narrower than doubling every 15 s. Plain and with forecasts it runs at many targets; of each, the one
with the fewest pods counts that has no more overload than the plain one at 70 % of what pods can serve.

One day with an unusual load can have most of the overload, and what a forecast saves there says nothing about the next
days. So the saving is that of all days or, if that is less, of all but one. A load may have lost its pattern: on the
last day, and on the last two, forecasts must not have cost more than a percent. And a surge may come that nothing
announces: forecasts leave its overload as it is, so what they save elsewhere must be worth their pods also if it has
most of the overload.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapter.forecasts.model import (
    DAY_MINUTES,
    LEAST_HISTORY,
    MINUTE,
    MISSING_SHARE,
    Floats,
    Indices,
    MinuteSeries,
    fit,
)
from adapter.forecasts.options import ForecastOptions
from adapter.gil import releasing_gil

_JUDGED_DAYS: Final = 7
_LEAST_DAYS: Final = 2
_LEAST_JUDGED: Final = _LEAST_DAYS * DAY_MINUTES * (1 - MISSING_SHARE)
"""So many minutes must be known."""
_PODS: Final = 20
_TARGETS: Final = np.linspace(0.5, 1.0, 41)
_PLAIN: Final = int(np.abs(_TARGETS - 0.7).argmin())
_LEAST_OVERLOAD: Final = 1e-5
_RECENT_DAYS: Final = (1, 2)
_MOST_COST: Final = 0.01
_SURGE: Final = 4
"""Times the mean load, until new pods are ready."""
_MOST_COST_WITH_SURGE: Final = 0.02
_TOLERANCE: Final = 0.1
_STABILIZATION_MINUTES: Final = 5
_MOST_GROWTH: Final = 16
"""Of the replicas in a minute: doubled four times."""
_NEAR: Final = 0.1
"""A load by at most this share more or less than expected was expected well."""


class Judgement(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What forecasts would have saved in the last days, and how well the load was forecast; shares of 1."""

    days: float
    """That were replayed."""
    holds: bool
    """Forecasts are served."""
    text: str
    """What the gate says."""
    saved: float | None = None
    """Of the pod-hours, at equal overload; less than 0: they would have cost some. None: not known."""
    overload: float = 0.0
    """The share of the load that was above capacity without forecasts, at a target of 70 % of it."""
    overload_with: float = 0.0
    """The same with forecasts, at the same target."""
    minutes: int = 0
    """For which the highest load within the horizon is compared with what was expected."""
    above: float = 0.0
    """Of them, those whose load was more than 10 % higher than expected."""
    below: float = 0.0
    """Likewise lower."""

    @property
    def accuracy(self) -> str:
        """How well the last days were forecast, in a sentence."""
        within = 1 - self.above - self.below if self.minutes else 0.0
        return (
            f"last {self.days:.0f} days: {within:.0%} of {self.minutes:,} minutes within 10 %, {self.above:.0%} above,"
            f" {self.below:.0%} below"
        )


def is_long_enough(history: MinuteSeries, options: ForecastOptions) -> bool:
    """Return whether a history has the days that a model needs, and the days after these that the gate needs."""
    known = np.isfinite(history.values)
    judged = not options.gate or known[LEAST_HISTORY:].sum() >= _LEAST_JUDGED
    return bool(judged and known.sum() >= LEAST_HISTORY * (1 - MISSING_SHARE))


def judge(history: MinuteSeries, options: ForecastOptions) -> Judgement:
    """Replay the last days of a history, with what was known at each moment only. Takes a second of CPU."""
    return served(history, options, len(history.values))[1][0]


def served(series: MinuteSeries, options: ForecastOptions, first: int) -> tuple[Floats, list[Judgement]]:
    """Return what would have been served at each minute from `first` on, and what the gate said at each day's begin.

    The gate judges and a model is fitted at `first` and each day after it, by the minutes before only. Where nothing is
    expected or the gate does not hold, and before `first`, a minute is NaN.
    """
    tested = min(max(first - _JUDGED_DAYS * DAY_MINUTES, LEAST_HISTORY), first)
    expected = _backtest(series, options, tested)
    found, judgements = np.full(len(expected), np.nan), list[Judgement]()
    for begin in range(first, max(len(expected), first + 1), DAY_MINUTES):
        since = max(begin - _JUDGED_DAYS * DAY_MINUTES, tested)
        judgements.append(judge_expected(series.part(since, begin), expected[since:begin], options))
        if judgements[-1].holds:
            found[begin : begin + DAY_MINUTES] = expected[begin : begin + DAY_MINUTES]
    return found, judgements


def _backtest(series: MinuteSeries, options: ForecastOptions, first: int) -> Floats:
    """Return what was expected at each minute from `first` on, by models of the minutes before it; NaN: nothing.

    A model is fitted at `first` and each day after it. What is before `first` is NaN, too.
    """
    expected = np.full(len(series.values), np.nan)
    for begin in range(first, len(series.values), DAY_MINUTES):
        end = min(begin + DAY_MINUTES, len(series.values))
        model = fit(series.part(0, begin), options)
        if not isinstance(model, str):
            expected[begin:end] = model.expect_each(series.part(0, end), begin, end)
    return expected


def judge_expected(series: MinuteSeries, expected: Floats, options: ForecastOptions) -> Judgement:
    """Judge what was expected at each minute of a series, the highest load within the horizon, by what came."""
    load = series.values.astype(np.float64)
    known = np.isfinite(load)
    days = float(known.sum()) / DAY_MINUTES
    is_off = not options.gate
    if known.sum() < _LEAST_JUDGED or not load[known].any():
        why = f"{days:.1f} days can be replayed after the first 3, and at least {_LEAST_DAYS} are needed"
        text = "the gate is off" if is_off else f"whether it saves is not known: {why}"
        return Judgement(days=days, holds=is_off, text=text)
    unit = float(load[known].mean()) / _PODS
    load, expected = load / unit, expected / unit
    metrics = np.stack([load, np.fmax(load, expected)])
    startup = math.ceil(options.horizon / MINUTE)
    pods, above_pods = _replayed(load, metrics, startup)
    day = _days_of(len(load))
    loads = np.array([np.nansum(load[day == each]) for each in range(len(pods))])
    overload = above_pods.sum(axis=0)[:, _PLAIN] / loads.sum()
    some_days = [np.ones(len(loads), dtype=bool), *~np.eye(len(loads), dtype=bool)]
    saved = min(_saved(pods[some], above_pods[some], loads[some]) for some in some_days)
    recent = min(_saved(pods[-last:], above_pods[-last:], loads[-last:]) for last in _RECENT_DAYS)
    surge = startup * _PODS * (_SURGE - 1 / _TARGETS)
    with_surge = _saved(pods, above_pods + surge / len(pods), loads)
    said = f"in the last {days:.0f} days it would have saved {saved:.1%} of pod-hours"
    if recent < -_MOST_COST:
        loss = f"but lost {-recent:.1%} on the last day or two"
    elif with_surge < -_MOST_COST_WITH_SURGE:
        loss = f"but lost {-with_surge:.1%} if a surge had come"
    else:
        loss = ""
    came = outcomes(load, np.maximum(load, expected), options)
    minutes = came.total()
    return Judgement(
        days=days,
        holds=is_off or (saved >= options.gate and not loss),
        text="the gate is off" if is_off else f"{said}, {loss or f'and {options.gate:.1%} is required'}",
        saved=saved,
        overload=float(overload[0]),
        overload_with=float(overload[1]),
        minutes=minutes,
        above=came["above"] / max(minutes, 1),
        below=came["below"] / max(minutes, 1),
    )


def _days_of(count: int) -> Indices:
    """Return the number of each minute's day; the last day ends with the last minute, the first may be shorter."""
    return (np.arange(count) + -count % DAY_MINUTES) // DAY_MINUTES


def _saved(pods: Floats, above: Floats, loads: Floats) -> float:
    """Return the share of pods that forecasts save at equal overload, by the results of some days' replay."""
    overload = above.sum(axis=0) / max(float(loads.sum()), 1e-9)
    limit = max(float(overload[0, _PLAIN]), _LEAST_OVERLOAD)
    fewest = np.where(overload <= limit, pods.sum(axis=0), np.inf).min(axis=1)
    return float(1 - fewest[1] / fewest[0]) if math.isfinite(fewest[1]) else -1.0


def _replayed(load: Floats, metrics: Floats, startup: int) -> tuple[Floats, Floats]:
    """Replay HPAs at all targets.

    Args:
        load: in what one pod can serve, by the minute.
        metrics: what the HPAs see, a row for each.
        startup: how many minutes a new pod takes to become ready.

    Returns:
        (pods, load above ready pods), both summed over the minutes of each day: by day, metric and target.
    """
    day = _days_of(len(load))
    shape = (int(day[-1]) + 1, len(metrics), len(_TARGETS))
    known = np.flatnonzero(np.isfinite(load))
    replicas = np.maximum(np.ceil(metrics[:, known[0], None] / _TARGETS), 1.0)
    proposals = np.repeat(replicas[None], _STABILIZATION_MINUTES, axis=0)
    running = np.repeat(replicas[None], startup + 1, axis=0)  # the youngest go first: those of all minutes are ready
    pods, above = np.zeros(shape), np.zeros(shape)
    for minute in releasing_gil(range(len(load)), every=50):
        if math.isfinite(load[minute]):
            wanted = metrics[:, minute, None] / _TARGETS
            is_near = np.abs(wanted - replicas) <= _TOLERANCE * replicas
            proposed = np.where(is_near, replicas, np.maximum(np.ceil(wanted), 1.0))
            proposals[minute % _STABILIZATION_MINUTES] = proposed
            highest = proposals.max(axis=0)
            replicas = np.clip(replicas, proposed, np.minimum(highest, replicas * _MOST_GROWTH))
            running[minute % (startup + 1)] = replicas
            above[day[minute]] += np.maximum(load[minute] - running.min(axis=0), 0.0)
        else:
            running[minute % (startup + 1)] = replicas
        pods[day[minute]] += replicas
    return pods, above


def outcomes(load: NDArray[np.floating], expected: NDArray[np.floating], options: ForecastOptions) -> Counter[str]:
    """Count minutes by how the highest load within the horizon compared with what was expected.

    Returns:
        By at most 10 % more or less: `within`; `above` or `below` that. A minute is not counted if either is not known.
    """
    ahead = math.ceil(options.horizon / MINUTE)
    if len(load) <= ahead:
        return Counter()
    came = np.lib.stride_tricks.sliding_window_view(load, ahead + 1).max(axis=1)
    ratio = came / np.maximum(expected[: len(came)], 1e-9)
    ratio = ratio[np.isfinite(ratio)]
    above, below = int((ratio > 1 + _NEAR).sum()), int((ratio < 1 - _NEAR).sum())
    return Counter(within=len(ratio) - above - below, above=above, below=below)
