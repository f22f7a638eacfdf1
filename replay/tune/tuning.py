"""Tune an HPA: search for a better spec on the whole history, and check the search by days that it has not seen.

Each day is left out once: the best of all replayed specs is chosen by the other days, and counted on that day. So the
figures of unseen days are those of the method, and every day is unseen once. They accept or reject the winner, which is
the choice by all days, and where they exceed a limit, they bound the targets of the next choice. They never choose by
what is saved, which would make them part of the search: a saving counts only if the limits are kept, so it is judged
once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from replay.hpa_files import parse_hpa_document
from replay.load import ReplayError
from replay.reality import shown_capacity
from replay.results import Figures, total
from replay.simulation import sync_period_ms
from replay.tune.candidates import TARGET, Candidate, Field, other_fields, target_field
from replay.tune.evaluation import LEAST_DAYS, Days, Problem, Run, evaluate
from replay.tune.goal import Goal, saved, saved_interval
from replay.tune.search import Search, Trial, choose
from replay.tune.workers import Pool

Replay: TypeAlias = Callable[[Sequence[Run]], Sequence[tuple[Figures, ...]]]
"""Returns the figures of each day of some runs."""
GIVEN_NAME: Final = "given"
TUNED_NAME: Final = "tuned"
SURE_GAIN: Final = 0.015
"""The least gain by the lower end of the interval: in simulations, one of 1 % passes in less than 5 % of cases."""
_PHASES: Final = 3
"""Of the sync period, at which the winner must keep the limits."""
_STEPS_BACK: Final = 4
_MOST_REPLAYS: Final = 40
"""Of the search and the check of its winner."""
_OTHER_TARGETS: Final = 6
"""At most, in the trade-off."""


class Verdict(StrEnum):
    """The verdict on the winner of the search."""

    BETTER = "better"
    """It is recommended."""
    TOO_FEW_DAYS = "too-few-days"
    """It is better on the unseen days, or not, but these are too few to recommend anything by."""
    REJECTED = "rejected"
    """It was not surely better than the given spec on the unseen days."""
    KEEPS_LIMIT = "keeps-limit"
    """It keeps --max-overload, which the given spec exceeds, but is not cheaper."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSpec(Trial):
    """A trial of the report."""

    name: str
    document: Mapping[str, Any]
    unseen: tuple[Figures, ...]
    """Of the winner: on each day the choice by the others; of others the same as `days`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(Problem):
    """The result of a search."""

    verdict: Verdict
    specs: Sequence[TunedSpec]
    """The given one, the winner if there is one, and the given one with other targets."""
    replays: int
    is_interrupted: bool
    steps_back: int = 0
    """How often lower targets were tried, because the winner exceeded the limits on unseen days."""

    @property
    def name(self) -> str:
        """Of the HPA."""
        return str(self.file.hpa.key)

    @property
    def given(self) -> TunedSpec:
        """The given spec."""
        return self.specs[0]

    @property
    def winner(self) -> TunedSpec | None:
        """The winner of the search, whether recommended or not."""
        return next((spec for spec in self.specs if spec.name == TUNED_NAME), None)

    @property
    def recommended(self) -> TunedSpec | None:
        """The winner if it is better than the given spec on the unseen days."""
        return self.winner if self.verdict is Verdict.BETTER else None

    def pairs(self) -> list[tuple[Figures, Figures]]:
        """Return (figures of the winner, figures of the given spec) of each unseen day that has load."""
        return with_load(self.winner.unseen, self.given.days) if self.winner is not None else []


def with_load(days: Sequence[Figures], given: Sequence[Figures]) -> list[tuple[Figures, Figures]]:
    """Return (figures, the given spec's) of the days that have load."""
    return [pair for pair in zip(days, given, strict=True) if pair[1].has_load]


def tune(problem: Problem, *, on_progress: Callable[[Search], None] = lambda _: None) -> Tuned:
    """Look for a better spec. Ctrl-C ends the search; the best spec so far is checked and reported.

    `on_progress` is called after some replays.

    Raises:
        ReplayError: the load is too short, there is nothing to search, or a metric is not in the load.
        KeyboardInterrupt: Ctrl-C before there is anything to report.
    """
    hpa = problem.file.hpa
    if not problem.settings.capacity:
        shown = [f"{value:.4g} of {key}" for key, (value, _) in shown_capacity(hpa, problem.load).items()]
        known = f"; reality carried {' and '.join(shown)} per ready pod, so it is at least that" if shown else ""
        unknown = f"what a pod of {hpa.key} can serve is not known, so overload is not"
        raise ReplayError(f"{unknown}: give --capacity METRIC=QUANTITY{known}")
    with Pool(jobs=problem.options.jobs or os.cpu_count() or 1) as pool:
        replay = functools.partial(pool.map, functools.partial(evaluate, problem))
        [given] = replay([Run({}, is_given=True)])
        search = make_search(problem, given, replay, on_progress)
        phases = Phases(sync_period_ms(hpa, problem.settings), replay)
        try:
            if search.goal.value(given) > 0:
                search.run()
                search.replay_between()
            tuned = result(problem, search, phases.best(search))
            last, steps = tuned, 0
            while _exceeds_limits(last) and search.step_back(at_most=phases.left(search) - phases.count):
                last, steps = result(problem, search, phases.best(search)), steps + 1
            if last.verdict is Verdict.BETTER:
                return last
        except KeyboardInterrupt:
            if len(search.trials) < 2:
                raise
            return result(problem, search, search.best, is_interrupted=True)
    return replace(tuned, replays=search.replays, steps_back=steps)


def _exceeds_limits(tuned: Tuned) -> bool:
    """Return True if the winner was rejected because the unseen days exceed the limits."""
    found, given = [each for each, _ in tuned.pairs()], [each for _, each in tuned.pairs()]
    return tuned.verdict is Verdict.REJECTED and not tuned.options.goal.keeps_limits(found, given)


def make_search(
    problem: Problem,
    given: tuple[Figures, ...],
    replay: Replay,
    on_progress: Callable[[Search], None] = lambda _: None,
) -> Search:
    """Return the search for a better spec than the given one, whose figures are known.

    Raises:
        ReplayError: there is nothing to search, or no load.
    """
    if not any(each.has_load for each in given):
        raise ReplayError("the load is zero or has no values: there is nothing to tune for")
    hpa, settings, options, whole = problem.file.hpa, problem.settings, problem.options, total(given)
    target: Field | None = None
    if TARGET in options.fields:
        target = target_field(hpa, problem.load, settings, max_target=options.max_target)
    mean_replicas = whole.pod_hours * 3_600_000 / max(whole.milliseconds, 1)
    fields = other_fields(hpa, settings, mean_replicas=mean_replicas, names=options.fields)
    if target is None and not any(each.choices for each in fields):
        raise ReplayError("none of --fields can change: a target must be one per pod, of a metric with a capacity")
    return Search(
        target=target,
        fields=fields,
        goal=options.goal,
        given=given,
        replay=lambda candidates: replay([Run(candidate) for candidate in candidates]),
        on_trials=on_progress,
    )


def result(problem: Problem, search: Search, best: Trial, *, is_interrupted: bool = False) -> Tuned:
    """Return the result of a search whose winner is known; the given spec if there is none."""
    goal, trials, given = search.goal, search.trials, search.given
    if not (goal.gains(best.days, given) or goal.given_exceeds(given)):
        best = trials[0]
    named = [(GIVEN_NAME, trials[0]), *([(TUNED_NAME, best)] if best.candidate else [])]
    named += [
        (f"target {trial.candidate[TARGET]:g}%", trial) for trial in _other_targets([*trials, *search.refused], best)
    ]
    days = range(len(given))
    unseen = tuple([choose(trials, goal, [each for each in days if each != index]).days[index] for index in days])
    specs = [
        TunedSpec(
            name=name,
            candidate=trial.candidate,
            document=problem.document(trial.candidate),
            days=trial.days,
            unseen=unseen if name == TUNED_NAME else trial.days,
        )
        for name, trial in named
    ]
    for spec in specs:  # what the API server would refuse is not printed
        parse_hpa_document(spec.document, spec.name, scale_to_zero=problem.settings.config.scale_to_zero)
    return Tuned(
        file=problem.file,
        load=problem.load,
        settings=problem.settings,
        options=problem.options,
        verdict=verdict_on(goal, problem.days, unseen, given) if best.candidate else Verdict.NONE,
        specs=specs,
        replays=search.replays,
        is_interrupted=is_interrupted,
    )


class Phases:
    """Checks that trials keep the limits whenever the reconciliations are.

    A target at the very edge keeps them by chance only: the same load half a sync period later is another one.
    `step_ms` is the sync period.
    """

    def __init__(self, step_ms: int, replay: Replay) -> None:
        self._offsets = [step_ms * phase // _PHASES for phase in range(1, _PHASES)]
        self._replay = replay
        self._given: Sequence[tuple[Figures, ...]] = ()
        self._passed: list[Trial] = []
        self._replays = 0

    @property
    def count(self) -> int:
        """The number of replays of a check."""
        return len(self._offsets)

    def left(self, search: Search) -> int:
        """Return how many more replays there may be."""
        return _MOST_REPLAYS - search.replays - self._replays

    def best(self, search: Search) -> Trial:
        """Return the best trial that keeps the limits, without the better ones that do not; else the given spec."""
        for _ in range(_STEPS_BACK):
            best = search.best
            if not best.candidate or best in self._passed:
                return best
            if self.left(search) < self.count * (1 if self._given else 2):
                break
            self._given = self._given or self._runs({}, is_given=True)
            found = self._runs(best.candidate)
            if all(search.goal.keeps_limits(*pair) for pair in zip(found, self._given, strict=True)):
                self._passed.append(best)
                return best
            search.refuse(best)
        return search.trials[0]

    def _runs(self, candidate: Candidate, *, is_given: bool = False) -> Sequence[tuple[Figures, ...]]:
        self._replays += self.count
        return self._replay([Run(candidate, offset, is_given=is_given) for offset in self._offsets])


def _other_targets(trials: Sequence[Trial], best: Trial) -> list[Trial]:
    """Return the trials of which only the target differs from the given spec, the nearest to the winner's."""
    found = [trial for trial in trials if list(trial.candidate) == [TARGET] and trial is not best]
    around = best.candidate.get(TARGET, 100.0)
    found.sort(key=lambda trial: abs(trial.candidate[TARGET] - around))
    return sorted(found[:_OTHER_TARGETS], key=lambda trial: trial.candidate[TARGET])


def verdict_on(goal: Goal, days: Days, unseen: Sequence[Figures], given: Sequence[Figures]) -> Verdict:
    """Return the verdict on a winner by its figures on unseen days."""
    pairs = with_load(unseen, given)
    if not days.are_days or len(pairs) < LEAST_DAYS:
        return Verdict.TOO_FEW_DAYS
    found, before = [each for each, _ in pairs], [each for _, each in pairs]
    if goal.keeps_limits(found, before):
        low, _ = saved_interval(goal.costs(found), goal.costs(before))
        if goal.gains(found, before) and low >= SURE_GAIN:
            return Verdict.BETTER
        if goal.given_exceeds(before) and saved(goal.costs(found), goal.costs(before)) <= 0:
            return Verdict.KEEPS_LIMIT
    return Verdict.REJECTED
