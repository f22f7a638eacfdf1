"""Whether forecasts would have saved pods in the last days, and how well they were: a causal replay without a cluster.

The load is that of an HPA with a plain target: what pods can serve is such that the mean load needs 20 of them, new
ones are ready after the horizon, and a reconciliation is once a minute, with the default tolerance, stabilization and
no policy that is narrower than doubling every 15 s. Plain and with forecasts it runs at many targets; of each, the one
with the fewest pods counts that has no more overload than the plain one at 70 % of what pods can serve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from adapter.forecasts.model import LEAST_HISTORY, fit
from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.series import DAY_MINUTES, MINUTE, Floats, MinuteSeries
from adapter.gil import releasing_gil

JUDGED_DAYS: Final = 7
_LEAST_DAYS: Final = 2
_PODS: Final = 20
_TARGETS: Final = np.linspace(0.5, 1.0, 41)
_PLAIN_TARGET: Final = 0.7
_LEAST_OVERLOAD: Final = 1e-5
_TOLERANCE: Final = 0.1
_STABILIZATION_MINUTES: Final = 5
_MOST_GROWTH: Final = 16
"""Of the replicas in a minute: doubled four times."""
NEAR: Final = 0.1
"""A load by at most this share more or less than expected was expected well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How the highest load within the horizon compared with what was expected; shares of the minutes that have both."""

    minutes: int = 0
    within: float = 0.0
    """By at most 10 % more or less."""
    above: float = 0.0
    """The load was higher than that."""
    below: float = 0.0
    """The load was lower than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What forecasts would have saved in the last days."""

    days: float
    """That were replayed."""
    saved: float | None
    """The share of pod-hours at equal overload; less than 0: they would have cost some. None: not known."""
    overload: float = 0.0
    """The share of the load that was above capacity without forecasts, at a target of 70 % of it."""
    overload_with: float = 0.0
    """The same with forecasts, at the same target."""
    accuracy: Accuracy = Accuracy()
    reason: str = ""
    """Why `saved` is not known."""

    def holds(self, options: ForecastOptions, *, before: bool | None = None) -> bool:
        """Return whether forecasts are served; `before`: whether they were until now.

        Forecasts that are served stay so down to half of what `gate` requires: an HPA's target relies on them.
        """
        if options.gate <= 0:
            return True
        return self.saved is not None and self.saved >= options.gate * (0.5 if before else 1.0)


def judge(history: MinuteSeries, options: ForecastOptions) -> tuple[Judgement, bool]:
    """Judge the last days of a history, and whether forecasts are served after it. Takes a second of CPU.

    If they saved between half of what the gate requires and all of it, they are served if they were the day before,
    by the history until then. So the verdict follows from the history alone: all replicas have the same one, also
    after a restart.
    """
    judgement = last = _judged(history, options)
    while last.saved is not None and options.gate / 2 <= last.saved < options.gate:
        history = history.part(0, -DAY_MINUTES)
        last = _judged(history, options)
    return judgement, last.holds(options)


def _judged(history: MinuteSeries, options: ForecastOptions) -> Judgement:
    """Replay the last days of a history, with what was known at each moment only."""
    first = _first_judged(len(history.values))
    expected = backtest(history, options, first)
    return judge_expected(history.part(first), expected[first:], options)


def served(series: MinuteSeries, options: ForecastOptions, first: int) -> tuple[Floats, list[Judgement]]:
    """Return what would have been served at each minute from `first` on, and what the gate said at each day's begin.

    The gate judges and a model is fitted at `first` and each day after it, by the minutes before only. Where nothing is
    expected or the gate does not hold, and before `first`, a minute is NaN.
    """
    tested = min(_first_judged(first), first)
    expected = backtest(series, options, tested)
    found, judgements = np.full(len(expected), np.nan), list[Judgement]()
    holds: bool | None = None
    for begin in range(first, len(expected), DAY_MINUTES):
        since = max(begin - JUDGED_DAYS * DAY_MINUTES, tested)
        judgements.append(judge_expected(series.part(since, begin), expected[since:begin], options))
        holds = judgements[-1].holds(options, before=holds)
        if holds:
            found[begin : begin + DAY_MINUTES] = expected[begin : begin + DAY_MINUTES]
    return found, judgements


def _first_judged(count: int) -> int:
    """Return the index of the first minute that is judged of a history."""
    return max(count - JUDGED_DAYS * DAY_MINUTES, LEAST_HISTORY)


def backtest(series: MinuteSeries, options: ForecastOptions, first: int) -> Floats:
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
    if days < _LEAST_DAYS or not load[known].any():
        why = f"{max(days, 0):.1f} days can be replayed after the first 3, and at least {_LEAST_DAYS} are needed"
        return Judgement(days=days, saved=None, reason=why)
    unit = float(load[known].mean()) / _PODS
    load = load / unit
    with_forecast = np.fmax(load, expected / unit)
    pods, overload = _replayed(load, np.stack([load, with_forecast]), math.ceil(options.horizon / MINUTE))
    plain = int(np.abs(_TARGETS - _PLAIN_TARGET).argmin())
    limit = max(float(overload[0, plain]), _LEAST_OVERLOAD)
    fewest = np.where(overload <= limit, pods, np.inf).min(axis=1)
    return Judgement(
        days=days,
        saved=float(1 - fewest[1] / fewest[0]) if math.isfinite(fewest[1]) else -1.0,
        overload=float(overload[0, plain]),
        overload_with=float(overload[1, plain]),
        accuracy=_accuracy(load, with_forecast, expected, options),
    )


def _replayed(load: Floats, metrics: Floats, startup: int) -> tuple[Floats, Floats]:
    """Replay HPAs at all targets.

    Args:
        load: in what one pod can serve, by the minute.
        metrics: what the HPAs see, a row for each.
        startup: how many minutes a new pod takes to become ready.

    Returns:
        (mean pods, share of the load above ready pods), a row for each of the metrics and a column for each target.
    """
    shape = (len(metrics), len(_TARGETS))
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
            above += np.maximum(load[minute] - running.min(axis=0), 0.0)
        else:
            running[minute % (startup + 1)] = replicas
        pods += replicas
    return pods / len(load), above / max(float(load[known].sum()), 1e-9)


def _accuracy(load: Floats, with_forecast: Floats, expected: Floats, options: ForecastOptions) -> Accuracy:
    """Compare the highest load within the horizon with what was expected."""
    minutes = math.ceil(options.horizon / MINUTE)
    if len(load) <= minutes:
        return Accuracy()
    came = np.lib.stride_tricks.sliding_window_view(load, minutes + 1).max(axis=1)
    ratio = came / np.maximum(with_forecast[: len(came)], 1e-9)
    ratio = ratio[np.isfinite(expected[: len(came)]) & np.isfinite(ratio)]
    count = max(len(ratio), 1)
    above, below = float((ratio > 1 + NEAR).sum()) / count, float((ratio < 1 - NEAR).sum()) / count
    return Accuracy(minutes=len(ratio), within=1 - above - below if len(ratio) else 0.0, above=above, below=below)
