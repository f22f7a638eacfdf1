"""Whether forecasts would have saved pods in the last days, and how well they were."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.forecasts.options import ForecastOptions
from adapter.forecasts.series import MinuteSeries


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

    time: int
    """The end of the history."""
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
        """Return whether forecasts are served; `before`: whether they were until now."""
        raise NotImplementedError


def judge(history: MinuteSeries, options: ForecastOptions) -> Judgement:
    """Replay the last days of a history, with what was known at each moment only."""
    raise NotImplementedError
