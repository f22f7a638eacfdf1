"""The search for a better spec: a line search over the target, then over one field after the other.

The higher the target, the fewer pods there are and the more overload, nearly always. So the last target that keeps the
limits is found in few replays. Then each other field gets a few values, with the target of
the best spec so far and with those near it. All of it is deterministic, and the same with any number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from replay.results import Figures
from replay.tune.candidates import TARGET, Candidate, Field
from replay.tune.goal import Goal, Objective

MAX_REPLAYS: Final = 34
"""Of a search; with those that check its winner, there are not more than 40."""
SIMPLER: Final = 0.02
"""What each changed field must save, as a share of the objective: otherwise the simpler spec is better."""
_STRIDE: Final = 2
_STRIDES: Final = 2
_POLISH: Final = 6
"""So many targets beyond the best one are tried at the end, if other fields have changed."""
_WORSE: Final = 1.1
"""Where the given target with another field costs so much more, no target near it is worth a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate and its figures of each day."""

    candidate: Candidate
    days: tuple[Figures, ...]


def choose(trials: Sequence[Trial], goal: Goal, among: Sequence[int]) -> Trial:
    """Return the best trial by the days of these indices; the first, the given spec, if no other keeps the limits."""
    given = [trials[0].days[index] for index in among]
    unit = goal.value(given) or 1.0
    best, lowest = trials[0], 1.0 if not goal.given_exceeds(given) else float("inf")
    for trial in trials[1:]:
        days = [trial.days[index] for index in among]
        score = goal.value(days) / unit + SIMPLER * len(trial.candidate)
        if score < lowest and goal.keeps_limits_with_margin(days, given):
            best, lowest = trial, score
    return best


_Line: TypeAlias = Generator[list[Candidate], list[Trial], None]
"""Yields candidates that it wants to be replayed, and is sent their trials."""


@dataclass(slots=True, kw_only=True)
class Search:
    """A search and its trials so far; the first is the given spec's."""

    target: Field | None
    fields: Sequence[Field]
    goal: Goal
    given: tuple[Figures, ...]
    replay: Callable[[Sequence[Candidate]], Sequence[tuple[Figures, ...]]]
    """Replays candidates, at once if there are processes for it."""
    on_trials: Callable[[Search], None] = lambda _: None
    max_replays: int = MAX_REPLAYS
    """The given spec's included."""
    trials: list[Trial] = field(default_factory=list)
    refused: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trials.append(Trial(candidate={}, days=self.given))

    @property
    def best(self) -> Trial:
        """The best trial so far, which may be the given spec."""
        return choose(self.trials, self.goal, range(len(self.given)))

    @property
    def replays(self) -> int:
        """How many specs were replayed."""
        return len(self.trials) + len(self.refused)

    def refuse(self, trial: Trial) -> None:
        """Leave out a trial that did not stand a closer look."""
        self.trials.remove(trial)
        self.refused.append(trial)

    def run(self) -> None:
        """Search. `best` is known at any time, even if this is interrupted."""
        if self.target is not None:
            start, count = self._index(self.target.given), len(self._choices)
            exceeds = self.goal.given_exceeds(self.given)
            self._run([self._highest({}, -1 if exceeds else start, start if exceeds else count)])
        for each in self.fields:
            best = self.best.candidate
            shapes = [{**_without_target(best), each.name: value} for value in each.choices]
            self._run([self._near(shape, self._index_of(best)) for shape in shapes])
        best = self.best.candidate
        if self.target is not None and _without_target(best):
            index = self._index_of(best)
            self._run([self._highest(_without_target(best), index, min(index + _POLISH, len(self._choices)))])
        best = self.best.candidate  # a field may have come with a better target, and no longer matter
        self._run([_once(_without(best, name)) for name in _without_target(best)])

    def step_back(self, *, at_most: int) -> bool:
        """Leave out targets beyond half of the way from the given one to the best, with so many replays at most.

        Days without a surge do not show which target is too high on a day with one: a choice by them may be too bold.

        Returns:
            False if there are no targets between, or no replays left.
        """
        best = self.best.candidate
        start, end = (self._index_of(each) for each in ({}, best))
        if end - start < 2 or at_most < 2:
            return False
        self.max_replays = self.replays + at_most
        middle = (start + end) // 2
        for trial in self.trials[1:]:
            if self._index_of(trial.candidate) > middle:
                self.refuse(trial)
        self._run([_once(self._at(shape, middle)) for shape in ({}, _without_target(best))])
        return True

    def replay_between(self) -> None:
        """Replay a target between the given one and the best, if there is none yet: the report shows the trade-off."""
        if self.target is not None and TARGET in self.best.candidate:
            start, end = sorted((self._index(self.target.given), self._index_of(self.best.candidate)))
            between = [_key(self._at({}, index)) for index in range(start + 1, end)]
            if between and not any(_key(trial.candidate) in between for trial in self.trials):
                self._run([_once(self._at({}, (start + end) // 2))])

    # --- lines

    def _run(self, lines: Sequence[_Line]) -> None:
        """Run lines at the same time, until all have ended or there are no replays left."""
        wanted = [(line, next(line, [])) for line in lines]
        while wanted := [(line, candidates) for line, candidates in wanted if candidates]:
            known = {_key(trial.candidate): trial for trial in self.trials}
            new = {_key(each): each for _, candidates in wanted for each in candidates if _key(each) not in known}
            batch = list(new.values())
            if self.replays + len(batch) > self.max_replays:
                return
            for candidate, days in zip(batch, self.replay(batch) if batch else (), strict=True):
                known[_key(candidate)] = trial = Trial(candidate=candidate, days=days)
                self.trials.append(trial)
            self.on_trials(self)
            wanted = [(line, _send(line, [known[_key(each)] for each in candidates])) for line, candidates in wanted]

    def _highest(self, shape: Candidate, good: int, bad: int) -> _Line:
        """Find the last target that keeps the limits, between one that does and one that does not (or the end).

        The last one of all is tried first: often it keeps them. Then the shares of the limit that are used show where
        it is reached, by the Illinois variant of regula falsi.
        """
        low, high = 0.0, math.inf
        before: bool | None = None
        if good >= 0:
            [trial] = yield [self._at(shape, good)]
            low = self.goal.used(trial.days, self.given)
        if bad == len(self._choices) > good + 1:
            [trial] = yield [self._at(shape, bad - 1)]
            if self._keeps_limits(trial):
                return
            bad, high = bad - 1, self.goal.used(trial.days, self.given)
        while bad - good > 1:
            index = (good + bad) // 2
            if low < 1.0 < high < math.inf:
                index = good + round((bad - good) * (1.0 - low) / (high - low))
                index = min(max(index, good + 1), bad - 1)
            [trial] = yield [self._at(shape, index)]
            used, is_within = self.goal.used(trial.days, self.given), self._keeps_limits(trial)
            if is_within:
                good, low, high = index, used, (1.0 + high) / 2 if before is True else high
            else:
                bad, high, low = index, used, (1.0 + low) / 2 if before is False else low
            before = is_within

    def _near(self, shape: Candidate, start: int) -> _Line:
        """Try a target, and some beyond it if it keeps the limits, or some before it if it may save more than known."""
        [trial] = yield [self._at(shape, start)]
        kept, bar = self._keeps_limits(trial), self.goal.value(self.best.days)
        if self.goal.value(trial.days) > bar * (_WORSE if kept else 1.0):
            return
        for number in range(1, _STRIDES + 1):
            index = start + _STRIDE * number * (1 if kept else -1)
            if not 0 <= index < len(self._choices):
                return
            [trial] = yield [self._at(shape, index)]
            if self._keeps_limits(trial) is not kept:
                return

    def _keeps_limits(self, trial: Trial) -> bool:
        return self.goal.keeps_limits_with_margin(trial.days, self.given)

    # --- targets

    @property
    def _choices(self) -> tuple[float, ...]:
        """The targets, in the direction in which the objective gets better and the limit nearer."""
        if self.target is None:
            return (0.0,)
        return self.target.choices if self.goal.objective is Objective.POD_HOURS else self.target.choices[::-1]

    def _index(self, target: float) -> int:
        return min(range(len(self._choices)), key=lambda index: abs(self._choices[index] - target))

    def _index_of(self, candidate: Candidate) -> int:
        return self._index(candidate.get(TARGET, self.target.given if self.target else 0.0))

    def _at(self, shape: Candidate, index: int) -> Candidate:
        value = self._choices[index]
        return shape if self.target is None or value == self.target.given else {TARGET: value, **shape}


def _send(line: _Line, trials: list[Trial]) -> list[Candidate]:
    try:
        return line.send(trials)
    except StopIteration:
        return []


def _once(candidate: Candidate) -> _Line:
    yield [candidate]


def _without_target(candidate: Candidate) -> dict[str, float]:
    return _without(candidate, TARGET)


def _without(candidate: Candidate, without: str) -> dict[str, float]:
    return {name: value for name, value in candidate.items() if name != without}


def _key(candidate: Candidate) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(candidate.items()))
