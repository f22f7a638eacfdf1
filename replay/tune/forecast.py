"""`tune --forecast`: the best spec without forecasts against the best one with them, on days that neither has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from replay.results import Figures, total
from replay.tune import report
from replay.tune.evaluation import Problem
from replay.tune.goal import LEAST_DAYS_OF_INTERVAL, LEAST_GAIN, LEAST_OVERLOAD, pod_hours_of, saved, saved_interval
from replay.tune.search import Search
from replay.tune.tuning import SURE_GAIN, Tuned, Verdict, tune, with_load


@dataclass(frozen=True, slots=True)
class Compared:
    """Two tunings of the same HPA, with the same limits: of the given spec without forecasts."""

    plain: Tuned
    forecast: Tuned

    @property
    def best(self) -> Tuned:
        """The one whose HPA should be applied."""
        return self.forecast if self.saves else self.plain

    @property
    def pairs(self) -> list[tuple[Figures, Figures]]:
        """(with forecasts, without) of each unseen day with load; where nothing better was found, the given spec."""
        unseen = [
            tuned.winner.unseen if tuned.winner and tuned.verdict is not Verdict.REJECTED else tuned.given.days
            for tuned in (self.forecast, self.plain)
        ]
        return with_load(*unseen)

    @property
    def saved(self) -> tuple[float, float, float]:
        """The share of pod-hours that forecasts save on unseen days, and the interval that it is surely in."""
        costs = pod_hours_of(self.pairs)
        return saved(*costs), *saved_interval(*costs)

    @property
    def saves(self) -> bool:
        """Whether forecasts surely save pod-hours, or overload with `--objective overload`, on unseen days."""
        share, low, _ = self.saved
        return self.forecast.verdict is Verdict.BETTER and share >= LEAST_GAIN and low >= SURE_GAIN

    def verdict(self) -> list[str]:
        """Return the verdict in a few sentences."""
        forecasts = self.forecast.load.forecasts
        names = " and ".join(each.key for each in forecasts)
        if self.forecast.verdict is Verdict.TOO_FEW_DAYS:
            first = f"Whether a forecast of {names} saves is not known: there are too few days."
        elif self.saves:
            options = " and ".join(dict.fromkeys(f"`forecast: {{{each.options.text}}}`" for each in forecasts))
            first = f"A forecast of {names} saves here: write {options} in its rule."
        else:
            first = f"No forecast of {names}: it does not save here."
        pairs, (share, low, high) = self.pairs, self.saved
        interval = f" ({low:.1%} to {high:.1%})" if len(pairs) >= LEAST_DAYS_OF_INTERVAL else ""
        fewer = sum(each.pod_hours < other.pod_hours for each, other in pairs)
        effect = (
            f"The best HPA with it against the best one without, on {self.plain.days.count(len(pairs))} that neither "
            f"has seen: {report.changes_of(self.forecast, pairs)}."
        )
        return [
            first,
            effect,
            f"Pod-hours saved by the forecast: {share:.1%}{interval}; fewer on {fewer} of {len(pairs)} days.",
        ]

    def text(self) -> str:
        """Return the report, with the recommended HPA as YAML."""
        return "".join(f"# {line}\n" for line in self.verdict()) + "#\n" + report.text(self.best)

    def json(self) -> dict[str, Any]:
        """Return the verdict for `report.json`."""
        pairs, (share, low, high) = self.pairs, self.saved
        is_sure = len(pairs) >= LEAST_DAYS_OF_INTERVAL
        kind = "saves" if self.saves else "does-not-save"
        return {
            "verdict": "too-few-days" if self.forecast.verdict is Verdict.TOO_FEW_DAYS else kind,
            "savedPodHours": {"share": share, "low": low if is_sure else None, "high": high if is_sure else None},
            "without": report.json_figures([each for _, each in pairs]),
            "with": report.json_figures([each for each, _ in pairs]),
        }


def compare_forecast(problem: Problem, *, on_progress: Callable[[Search], None]) -> Compared:
    """Tune without and with forecasts; see `tune`.

    Where no overload is given, forecasts may have as much as the given spec on all days together: they move it to other
    days, so that some day always has more than it had. Either may flap once a day more than `--max-flaps` allows.
    """
    goal = replace(problem.options.goal, spare_flaps=1)
    problem = replace(problem, options=replace(problem.options, goal=goal))
    plain = tune(replace(problem, load=replace(problem.load, seen={}, forecasts=())), on_progress=on_progress)
    if goal.max_overload is None:
        goal = replace(goal, max_overload=max(total(plain.given.days).overload_ratio, LEAST_OVERLOAD))
        problem = replace(problem, options=replace(problem.options, goal=goal))
    return Compared(plain, tune(problem, on_progress=on_progress))
