"""Tune an HPA: search on the training part of a history, and check the winner on the part that the search has not seen.

The winner is chosen by the training part alone. The unseen part only accepts or rejects it: choosing among candidates
by the unseen part would make it part of the search.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from replay.hpa_files import HPAFile, parse_hpa_document
from replay.load import Load, ReplayError, metric_name
from replay.simulation import Settings
from replay.tune.bounds import Bounds
from replay.tune.evaluation import Figures, Limits, Problem, total
from replay.tune.goal import Goal, Margin, Objective
from replay.tune.search import Search
from replay.tune.space import TARGET, Candidate, Field, Space, make_space, number, target_percents
from replay.tune.specs import candidate_object, describe
from replay.tune.split import Split, split_load
from replay.tune.workers import Run, Training, Workers

GIVEN_NAME: Final = "given"
TUNED_NAME: Final = "tuned"
_OTHER_TARGETS: Final = {GIVEN_NAME: (10, 20), TUNED_NAME: (-10, -5, 5, 10)}
"""Of the trade-off, in points of percent of the capacity."""
_SIMPLIFY: Final = 4
"""One of so many replays is kept for the simplification of the winner."""
_PHASES: Final = 3
"""Of the sync period, at which the winner must keep the limit."""
_STEPS_BACK: Final = 8
_TINY: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """The options of `tune`."""

    goal: Goal = field(default_factory=Goal)
    bounds: Bounds = field(default_factory=dict)
    train: float = 0.7
    """The share of the history to search on."""
    trials: int = 100
    """The most replays of the search. Those that check its winner are not counted."""
    jobs: int | None = None
    """Processes; None: one for each core."""
    seed: int = 0


class Verdict(StrEnum):
    """The verdict on the winner of the search."""

    BETTER = "better"
    """It is recommended."""
    REJECTED = "rejected"
    """It was not better than the given spec on the unseen part."""
    KEEPS_LIMIT = "keeps-limit"
    """It keeps --max-overload, which the given spec exceeds, but is not cheaper."""
    NONE = "none"
    """No candidate was better on the training part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSpec:
    """A spec of the report, with its figures."""

    name: str
    candidate: Candidate
    document: Mapping[str, Any]
    """The HPA's object."""
    train: tuple[Figures, ...]
    """For each training part."""
    unseen: tuple[Figures, ...]
    """For each unseen part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of a search."""

    name: str
    """Of the HPA."""
    options: TuneOptions
    load: Load
    settings: Settings
    split: Split
    verdict: Verdict
    specs: Sequence[TunedSpec]
    """The given one, the winner if there is one, and both with other targets."""
    trials: int
    targets_at_capacity: Sequence[str]
    """The metrics whose given target is 100 % of the capacity, as it is without `--capacity`."""
    cpu_seconds: float
    """Of all replays."""
    is_interrupted: bool

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
        """The winner if it is better than the given spec on the unseen part."""
        return self.winner if self.verdict is Verdict.BETTER else None


OnProgress = Callable[[Search], None]


def tune(
    file: HPAFile,
    load: Load,
    settings: Settings,
    options: TuneOptions,
    *,
    on_progress: OnProgress = lambda _: None,
) -> Tuned:
    """Look for a better spec. Ctrl-C ends the search; the best spec so far is checked and reported.

    Args:
        file: the given HPA.
        load: the recorded load.
        settings: what replays assume. At least one metric must have a capacity.
        options: the goal and the bounds.
        on_progress: called after some replays.

    Raises:
        ReplayError: the load is too short, there is nothing to search, or a metric is not in the load.
        KeyboardInterrupt: Ctrl-C before there is anything to report, or a second one.
    """
    if not settings.capacity:
        raise ReplayError(
            f"what a pod of {file.hpa.key} can serve is not known, so overload is not: give --capacity METRIC=QUANTITY"
        )
    split = split_load(load, train=options.train)
    problem = Problem(document=file.document, load=load, settings=settings, split=split)
    with Workers(problem, jobs=options.jobs or os.cpu_count() or 1) as workers:
        [given] = workers.evaluate([Run(candidate={})])
        _check_load(given.parts, split)
        space = _space(file, load, settings, options.bounds, given.parts[: split.train], split)
        search = _search(file, space, options, given.parts, workers, split, on_progress)
        winner, is_interrupted = _run(search, options, workers, problem)
        if winner is None:
            candidates = _trade_off(space, {GIVEN_NAME: {}})
        else:
            candidates = _trade_off(space, {GIVEN_NAME: {}, TUNED_NAME: winner})
        others = workers.evaluate([Run(candidate=candidate) for candidate in list(candidates.values())[1:]])
    specs = [
        TunedSpec(
            name=name,
            candidate=candidate,
            document=candidate_object(file.document, file.hpa, load, settings, candidate),
            train=evaluation.parts[: split.train],
            unseen=evaluation.parts[split.train :],
        )
        for (name, candidate), evaluation in zip(candidates.items(), (given, *others), strict=True)
    ]
    for spec in specs:  # what the API server would refuse is not printed
        parse_hpa_document(spec.document, spec.name, scale_to_zero=settings.config.scale_to_zero)
    return Tuned(
        name=str(file.hpa.key),
        options=options,
        load=load,
        settings=settings,
        split=split,
        verdict=_verdict(options.goal, specs),
        specs=specs,
        trials=len(search.trials) - 1,
        targets_at_capacity=[
            metric_name(file.hpa.spec.metrics[index].source)
            for index, percent in target_percents(file.hpa, load, settings).items()
            if abs(percent - 100) < _TINY
        ],
        cpu_seconds=workers.cpu_seconds + sum(trial.cpu_seconds for trial in search.trials),
        is_interrupted=is_interrupted,
    )


def _check_load(given: Sequence[Figures], split: Split) -> None:
    if not any(part.has_load for part in given):
        raise ReplayError("the load is zero or has no values: there is nothing to tune for")
    for name, parts, where in (
        ("to search on", given[: split.train], "first"),
        ("that the search does not see", given[split.train :], "last"),
    ):
        if not any(part.has_load for part in parts):
            raise ReplayError(
                f"the part {name}, the {where} {split.count(len(parts))}, has no load: choose another range or --train"
            )


def _space(
    file: HPAFile, load: Load, settings: Settings, bounds: Bounds, given: Sequence[Figures], split: Split
) -> Space:
    hours = (split.split_ms - load.start_ms - split.warm_up_ms) / 3_600_000
    mean = total(given).pod_hours / hours
    space = make_space(file.hpa, load, settings, bounds, mean_replicas=mean)
    if space.is_empty:
        raise ReplayError("the bounds leave nothing to search: give a range to a field")
    if TARGET in bounds and not target_percents(file.hpa, load, settings):
        raise ReplayError("the bounds name target, but no metric has a target per pod and a capacity")
    for candidate in space.extremes():
        if space.is_valid(candidate, file.hpa.spec):
            document = candidate_object(file.document, file.hpa, load, settings, candidate)
            parse_hpa_document(document, f"bounds: {describe(candidate)}", scale_to_zero=settings.config.scale_to_zero)
    return space


def _search(
    file: HPAFile,
    space: Space,
    options: TuneOptions,
    given: tuple[Figures, ...],
    workers: Workers,
    split: Split,
    on_progress: OnProgress,
) -> Search:
    goal, train = options.goal, given[: split.train]
    figures = total(train)
    if goal.objective is Objective.POD_HOURS:
        limits = Limits(overloads=tuple(goal.allowed(train) * load for _, load in figures.loads))
    else:
        limits = Limits(pod_hours=figures.pod_hours)
    training = Training(
        target=space.target,
        goal=goal,
        margin=Margin(goal, train, unseen=split.unseen, seed=options.seed),
        given=train,
        limits=limits,
    )
    return Search(
        space=space,
        spec=file.hpa.spec,
        goal=goal,
        given=train,
        seed=options.seed,
        search_lines=lambda lines: workers.search(training, lines),
        on_trials=on_progress,
    )


def _run(search: Search, options: TuneOptions, workers: Workers, problem: Problem) -> tuple[Candidate | None, bool]:
    """Return the winner, and whether the search was interrupted."""
    is_interrupted = False
    if search.goal.value(search.given) <= 0:
        return None, is_interrupted
    try:
        search.run(options.trials - options.trials // _SIMPLIFY)
        best = search.simplify(options.trials)
    except KeyboardInterrupt:
        if len(search.trials) < 2:
            raise
        best, is_interrupted = search.best, True
    goal = search.goal
    if best is None or not (goal.is_better(best.parts, search.given) or goal.given_exceeds(search.given)):
        return None, is_interrupted
    try:
        return _hold_at_all_phases(search, best.candidate, options, workers, problem), is_interrupted
    except KeyboardInterrupt:
        if is_interrupted:
            raise
        return best.candidate, True


def _hold_at_all_phases(
    search: Search, candidate: Candidate, options: TuneOptions, workers: Workers, problem: Problem
) -> Candidate | None:
    """Return the candidate with the next target at which it keeps the limit whenever the reconciliations are.

    A target at the very edge keeps it by chance only: the same load half a sync period later is another one.
    """
    goal, target, train = search.goal, search.space.target, problem.split.train
    offsets = [problem.settings.step_ms * phase // _PHASES for phase in range(_PHASES)]

    def at_all_phases(candidate: Candidate) -> list[tuple[Figures, ...]]:
        runs = [Run(candidate=candidate, parts=train, offset_ms=offset) for offset in offsets]
        return [each.parts for each in workers.evaluate(runs)]

    given = at_all_phases({})
    margins = [Margin(goal, each, unseen=problem.split.unseen, seed=options.seed) for each in given]
    for other in _safer(candidate, target, goal):
        found = at_all_phases(other)
        pairs = list(zip(found, given, strict=True))
        if not goal.gains(*pairs[0]) and not goal.given_exceeds(given[0]):
            return None
        kept = [margin.excess(parts) <= 0 for margin, parts in zip(margins, found, strict=True)]
        if all(kept) and all(goal.keeps_limits(*pair) for pair in pairs):
            return other
    return None


def _safer(candidate: Candidate, target: Field | None, goal: Goal) -> Iterator[Candidate]:
    """Yield the candidate, and the same with other targets, ever farther from the limit."""
    yield candidate
    if target is None:
        return
    choices = target.choices[::-1] if goal.objective is Objective.POD_HOURS else target.choices
    now = number(candidate, TARGET, otherwise=target.given)
    start = min(range(len(choices)), key=lambda index: abs(choices[index] - now))
    for choice in choices[start + 1 : start + 1 + _STEPS_BACK]:
        yield {**candidate, TARGET: choice}


def _trade_off(space: Space, named: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Return the specs by name, and after them the same specs with other targets."""
    found = dict(named)
    target = space.target
    for name, candidate in named.items() if target is not None else ():
        assert target is not None
        now = number(candidate, TARGET, otherwise=target.given)
        for points in _OTHER_TARGETS[name]:
            nearest = min(target.choices, key=lambda choice: abs(choice - now - points))
            other = {**candidate, TARGET: nearest}
            if abs(nearest - now - points) <= 1 and other not in found.values():
                found[f"{name}, target {nearest:g}%"] = other
    return found


def _verdict(goal: Goal, specs: Sequence[TunedSpec]) -> Verdict:
    given = specs[0].unseen
    winner = next((spec.unseen for spec in specs if spec.name == TUNED_NAME), None)
    if winner is None:
        return Verdict.NONE
    if goal.is_better(winner, given):
        return Verdict.BETTER
    if goal.given_exceeds(given) and goal.keeps_limits(winner, given):
        return Verdict.KEEPS_LIMIT
    return Verdict.REJECTED
