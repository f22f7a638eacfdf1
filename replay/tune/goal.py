"""The objective of the search, and the acceptance of a candidate on the training part and the unseen part.

A candidate is chosen by the training part alone, where it must keep the limit with a margin: in 95 of 100 random
selections of training days, half as many as there are unseen ones. So single bad days count. The unseen part then only
accepts or rejects the candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from replay.tune.evaluation import Figures, total

SURE: Final = 0.95
"""The share of random selections of days in which the limit must be kept."""
LEAST_GAIN: Final = 0.03
"""A smaller gain is not worth a change: it is within what differs from one week to the next."""
_RESAMPLES: Final = 400
_GAIN_RESAMPLES: Final = 4000
_ROUNDING: Final = 0.02
"""--max-overload may be a rounded figure of the given spec's."""
_TINY: Final = 1e-9


class Objective(StrEnum):
    """The quantity to minimize."""

    POD_HOURS = "pod-hours"
    """With no more overload than allowed."""
    OVERLOAD = "overload"
    """With no more pod-hours than the given spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The objective and its limits."""

    objective: Objective = Objective.POD_HOURS
    max_overload: float | None = None
    """The allowed share of requests above capacity; None: as much as the given spec has at the same time."""

    def value(self, parts: Sequence[Figures]) -> float:
        """Return the value to minimize."""
        figures = total(parts)
        return figures.pod_hours if self.objective is Objective.POD_HOURS else figures.overload_ratio

    def allowed(self, given: Sequence[Figures]) -> float:
        """Return the allowed overload ratio."""
        return total(given).overload_ratio if self.max_overload is None else self.max_overload

    def keeps_limits(self, parts: Sequence[Figures], given: Sequence[Figures]) -> bool:
        """Return True if a candidate keeps the limits, without a margin."""
        figures, reference = total(parts), total(given)
        if self.objective is Objective.OVERLOAD:
            return figures.pod_hours <= reference.pod_hours
        return figures.overload_ratio <= self.allowed(given) + _TINY

    def given_exceeds(self, given: Sequence[Figures]) -> bool:
        """Return True if the given spec itself has more overload than allowed."""
        if self.max_overload is None or self.objective is Objective.OVERLOAD:
            return False
        return total(given).overload_ratio > self.max_overload * (1 + _ROUNDING) + _TINY

    def is_better(self, parts: Sequence[Figures], given: Sequence[Figures]) -> bool:
        """Return True if a candidate is better than the given spec: it keeps the limit, and gains enough."""
        return self.keeps_limits(parts, given) and self.gains(parts, given)

    def gains(self, parts: Sequence[Figures], given: Sequence[Figures]) -> bool:
        """Return True if a candidate gains enough. From nothing, nothing can be gained."""
        now = self.value(given)
        return now > 0 and self.value(parts) <= now * (1 - LEAST_GAIN)


class Margin:
    """How far a candidate is from the limit on the training part.

    Args:
        goal: the limit.
        given: the given spec's parts.
        unseen: the number of unseen parts.
        seed: of the random selections.
    """

    def __init__(self, goal: Goal, given: Sequence[Figures], *, unseen: int, seed: int) -> None:
        self._goal = goal
        self._selections = _selections(len(given), max(unseen // 2, 1), count=_RESAMPLES, seed=seed)
        self._given_pods = total(given).pod_hours
        limit = goal.max_overload
        self._allowed = self._ratios(given) if limit is None else [limit] * _RESAMPLES
        self._scale = max(goal.allowed(given), _TINY)

    def excess(self, parts: Sequence[Figures]) -> float:
        """Return by how much the limit is exceeded, as a share of it; 0 or less: it is kept with the margin."""
        if self._goal.objective is Objective.OVERLOAD:
            return total(parts).pod_hours / max(self._given_pods, _TINY) - 1
        over = [ratio - allowed for ratio, allowed in zip(self._ratios(parts), self._allowed, strict=True)]
        return _quantile(over, SURE) / self._scale

    def _ratios(self, parts: Sequence[Figures]) -> list[float]:
        """Return the overload ratio of each selection."""
        return [total([parts[index] for index in selection]).overload_ratio for selection in self._selections]


def gain_interval(parts: Sequence[Figures], given: Sequence[Figures], *, seed: int) -> tuple[float, float]:
    """Return the 90 % interval of the share of pod-hours saved, from random selections of the parts."""
    gains: list[float] = []
    for selection in _selections(len(parts), len(parts), count=_GAIN_RESAMPLES, seed=seed):
        given_pods = sum(given[index].pod_hours for index in selection)
        gains.append(1 - sum(parts[index].pod_hours for index in selection) / max(given_pods, _TINY))
    return _quantile(gains, 0.05), _quantile(gains, 0.95)


def _selections(parts: int, size: int, *, count: int, seed: int) -> list[list[int]]:
    """Return random selections of parts, with repetition."""
    random = Random(seed)  # noqa: S311  # the same selections each time
    return [random.choices(range(parts), k=size) for _ in range(count)]


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]
