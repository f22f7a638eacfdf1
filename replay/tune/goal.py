"""The objective of the search, its limits (overload, scale events and flaps), and how sure a saving is.

A candidate must keep the limit of overload with a margin: on all days together, and on the worst fifth of them. So
single bad days count.

Days are not independent: a busy week has busy days. So the interval of a saving is that of Student's t for independent
days, one half wider. Its coverage, 90 % or more, is tested by simulations: of noise that is normal, skewed, that of
weekends, and correlated from day to day by 0.3. Before a week has passed, weekends are missing, and it is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from replay.results import Figures, total

LEAST_GAIN: Final = 0.03
"""A smaller gain is not worth a change: it is within what differs from one week to the next."""
_WORST: Final = 5
"""One of so many days is a bad one."""
LEAST_OVERLOAD: Final = 1e-5
"""A lower limit has no effect for users, and no target could be expected to meet it on other days."""
_ROUNDING: Final = 0.02
"""--max-overload may be a rounded figure of the given spec's."""
_TINY: Final = 1e-9
LEAST_DAYS_OF_INTERVAL: Final = 7
_WIDER: Final = 1.5
"""Correlation of r from day to day makes it wider by the root of (1 + r) / (1 - r); skewed noise needs more, too."""
_STUDENT_95: Final = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753),
    *(1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697),
)
"""The 95 % quantile of Student's t for 1, 2, ... 30 degrees of freedom; for more, the last is a little too high."""


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
    """The allowed share of requests above capacity; None: as much as the given spec has on the same days, but at least
    `LEAST_OVERLOAD`."""
    max_scale_events: float = 1.5
    """The allowed scale events, as a multiple of the given spec's."""
    max_flaps: float = 1.5
    """The same of flaps."""
    spare_flaps: int = 0
    """So many more on each day. Of few flaps, 150 % are within chance."""

    def costs(self, days: Sequence[Figures]) -> list[float]:
        """Return the quantity to minimize on each day, so that it can be added up."""
        if self.objective is Objective.POD_HOURS:
            return [each.pod_hours for each in days]
        return [each.overload_ratio for each in days]

    def value(self, days: Sequence[Figures]) -> float:
        """Return the value to minimize."""
        figures = total(days)
        return figures.pod_hours if self.objective is Objective.POD_HOURS else figures.overload_ratio

    def keeps_limits(self, days: Sequence[Figures], given: Sequence[Figures]) -> bool:
        """Return True if a candidate keeps the limits on these days together, without a margin."""
        return not self.exceeded(days, given)

    def exceeded(self, days: Sequence[Figures], given: Sequence[Figures]) -> str:
        """Return what exceeds its limit on these days together, such as "overload"; "" if nothing does."""
        figures, reference = total(days), total(given)
        if figures.scale_events > self.max_scale_events * reference.scale_events + _TINY:
            return "the number of scale events"
        if figures.flaps > self.max_flaps * reference.flaps + self.spare_flaps * len(days) + _TINY:
            return "the number of flaps"
        if self.objective is Objective.OVERLOAD:
            return "the number of pod-hours" if figures.pod_hours > reference.pod_hours else ""
        return "overload" if figures.overload_ratio > self._allowed(reference) + _TINY else ""

    def keeps_limits_with_margin(self, days: Sequence[Figures], given: Sequence[Figures]) -> bool:
        """Return True if it keeps the limits on these days, and that of overload also on the worst fifth of them."""
        return self.keeps_limits(days, given) and self.used(days, given) <= 1.0

    def used(self, days: Sequence[Figures], given: Sequence[Figures]) -> float:
        """Return the share of the limit that a candidate uses; 1 is all of it.

        The limit is that of overload, on these days and on the worst fifth of them; if overload is minimized, it is
        that of pod-hours.
        """
        if self.objective is Objective.OVERLOAD:
            return total(days).pod_hours / max(total(given).pod_hours, _TINY)
        shares = [
            (total([each for each, _ in some]).overload_ratio - _TINY)
            / max(self._allowed(total([each for _, each in some])), _TINY)
            for some in (list(zip(days, given, strict=True)), self.worst_days(days, given))
        ]
        return max(shares)

    def worst_days(self, days: Sequence[Figures], given: Sequence[Figures]) -> list[tuple[Figures, Figures]]:
        """Return the fifth of the days with the most overload beyond the allowed one, and those of the given spec."""
        pairs = sorted(
            zip(days, given, strict=True),
            key=lambda pair: pair[0].overload_ratio - self._allowed(pair[1]),
            reverse=True,
        )
        return pairs[: max(round(len(pairs) / _WORST), 1)]

    def given_exceeds(self, given: Sequence[Figures]) -> bool:
        """Return True if the given spec itself has more overload than allowed."""
        if self.max_overload is None or self.objective is Objective.OVERLOAD:
            return False
        return total(given).overload_ratio > self.max_overload * (1 + _ROUNDING) + _TINY

    def gains(self, days: Sequence[Figures], given: Sequence[Figures]) -> bool:
        """Return True if a candidate gains enough. From nothing, nothing can be gained."""
        now = self.value(given)
        return now > 0 and self.value(days) <= now * (1 - LEAST_GAIN)

    def _allowed(self, given: Figures) -> float:
        return max(given.overload_ratio, LEAST_OVERLOAD) if self.max_overload is None else self.max_overload


def pod_hours_of(pairs: Sequence[tuple[Figures, Figures]]) -> tuple[list[float], list[float]]:
    """Return the pod-hours of each of the two, for `saved` and `saved_interval`."""
    return [ours.pod_hours for ours, _ in pairs], [given.pod_hours for _, given in pairs]


def saved(costs: Sequence[float], before: Sequence[float]) -> float:
    """Return the share of the cost that is saved over all days."""
    return 1 - sum(costs) / sum(before) if sum(before) > 0 else 0.0


def saved_interval(costs: Sequence[float], before: Sequence[float]) -> tuple[float, float]:
    """Return an interval that holds the true share saved in 90 % of cases; the share is below it in 5 %.

    `costs` are those of each day, and `before` the given spec's on the same days.
    """
    count, share = len(costs), saved(costs, before)
    if count < 2 or sum(before) <= 0:
        return -math.inf, math.inf
    residuals = [cost - (1 - share) * given for cost, given in zip(costs, before, strict=True)]
    error = math.sqrt(count / (count - 1) * sum(each * each for each in residuals)) / sum(before)
    half = _WIDER * _STUDENT_95[min(count - 1, len(_STUDENT_95)) - 1] * error
    return share - half, share + half
