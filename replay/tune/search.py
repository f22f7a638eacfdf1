"""The search for a better spec, on the training part of the history.

More load per pod means fewer pods and more overload, so for given windows, tolerances and policies the best target is
the last one that keeps the limit: a line search finds it in few replays. Optuna's TPE sampler proposes the other
fields; it needs few evaluations, which take seconds each, and knows choices and fields that depend on others. Proposals
come in batches of fixed size and their results are told in order, so that the search is the same with any number of
processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import optuna

from autoscaler.core.model import Spec
from replay.tune.evaluation import Evaluation, Figures
from replay.tune.goal import Goal
from replay.tune.line_search import MAX_REPLAYS, Line, Trial, trial_of
from replay.tune.space import TARGET, Candidate, Policy, PolicyField, Space, Value, number

BATCH: Final = 8
"""Lines that are searched at once; more processes than this have nothing to do."""
SIMPLER: Final = 0.005
"""How much of the objective each simplification may cost."""
_RANDOM_STARTS: Final = 12
_IDLE_PROPOSALS: Final = 24
"""Proposals in a row without a new candidate, after which a small space is taken to be exhausted."""

SearchLines: TypeAlias = Callable[[Sequence[Line]], Iterable[list[Trial]]]
"""Searches lines, and yields the trials of each, in their order."""
_Key: TypeAlias = tuple[tuple[str, Value], ...]


@dataclass(slots=True, kw_only=True)
class Search:
    """A search and its trials so far; the first is the given spec's."""

    space: Space
    spec: Spec
    """The given one."""
    goal: Goal
    given: tuple[Figures, ...]
    """The given spec's figures on the training part."""
    seed: int
    search_lines: SearchLines
    on_trials: Callable[[Search], None]
    """Called after each line, for the progress."""
    trials: list[Trial] = field(default_factory=list)
    _lines: dict[_Key, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trials.append(trial_of({}, Evaluation(self.given, True, 0.0), self.goal, self.given, excess=0.0))

    @property
    def best(self) -> Trial | None:
        """The best trial but the given spec; None if no candidate keeps the limit with the margin."""
        found = [trial for trial in self.trials if trial.is_feasible and trial.candidate]
        return min(found, key=lambda trial: (trial.value, len(trial.candidate)), default=None)

    def run(self, trials: int) -> None:
        """Search with at most this many trials. `best` is known at any time, even if this is interrupted."""
        study = self._study()
        for start in self._starts():
            study.enqueue_trial(start, skip_if_exists=True)
        idle = 0
        while (left := self._left(trials)) > 0 and idle < _IDLE_PROPOSALS:
            # So few lines that all of them can be searched to their end.
            asked = [study.ask() for _ in range(min(max(left // MAX_REPLAYS, 1), BATCH))]
            values = self._values([self._shape(trial) for trial in asked], trials=trials)
            for trial, value in zip(asked, values, strict=True):
                study.tell(trial, value)
            idle = 0 if self._left(trials) < left else idle + len(asked)

    def simplify(self, trials: int) -> Trial | None:
        """Return the best trial, or one with fewer changes that is next to as good; with at most this many trials."""
        best = self.best
        while best is not None and len(best.candidate) > 1:
            names = [name for name in best.candidate if name != TARGET and self._can_be_given(name)]
            shapes = [_without(best.candidate, name, TARGET) for name in names][: self._left(trials)]
            self._values(shapes, trials=trials, start=self._target(best.candidate), anew=True)
            known = {_key(shape) for shape in shapes}
            good = [
                trial
                for trial in self.trials
                if trial.is_feasible
                and _key(_without(trial.candidate, TARGET)) in known
                and trial.candidate
                and trial.value <= best.value * (1 + SIMPLER)
            ]
            if not good:
                break
            best = min(good, key=lambda trial: trial.value)
        return best

    # --- lines

    def _left(self, trials: int) -> int:
        """Return how many of the trials are left; the given spec's does not count."""
        return max(trials - (len(self.trials) - 1), 0)

    def _values(
        self, shapes: Sequence[Candidate], *, trials: int, start: float | None = None, anew: bool = False
    ) -> list[float]:
        """Search the lines of shapes (candidates without target) that are not known; return the value of each.

        There must be a trial left for each shape.
        """
        wanted = {_key(shape): shape for shape in shapes if anew or _key(shape) not in self._lines}
        wanted = {key: shape for key, shape in wanted.items() if self._is_valid(shape)}
        best, given = self.best, self.trials[0]
        bar = best.value if best else None
        if not self.goal.given_exceeds(self.given):
            bar = min(given.value, bar or given.value)
        if start is None:
            start = self._target(best.candidate if best else {})
        most = min(self._left(trials) // max(len(wanted), 1), MAX_REPLAYS)
        lines = [Line(shape=shape, start=start, bar=bar, max_replays=most) for shape in wanted.values()]
        for line, found in zip(lines, self.search_lines(lines), strict=True):
            self.trials.extend(found)
            self._lines[_key(line.shape)] = min(trial.score for trial in found)
            self.on_trials(self)
        worst = max((trial.score for trial in self.trials), default=0.0)
        return [self._lines.get(_key(shape), worst) for shape in shapes]

    def _target(self, candidate: Candidate) -> float:
        return number(candidate, TARGET, otherwise=self.space.target.given if self.space.target else 0.0)

    def _is_valid(self, shape: Candidate) -> bool:
        return self.space.is_valid(shape, self.spec)

    def _can_be_given(self, name: str) -> bool:
        return all(each.given in each.choices for each in self.space.fields if each.name == name)

    # --- optuna

    def _study(self) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=self.seed, n_startup_trials=_RANDOM_STARTS, multivariate=True, group=True, constant_liar=True
            )
        return optuna.create_study(sampler=sampler)

    def _starts(self) -> list[dict[str, Any]]:
        """Return optuna's parameters of simple shapes: the given one, and low tolerances."""
        given: dict[str, Any] = {each.name: _nearest(each.choices, each.given) for each in self.space.fields}
        given |= {each.name: "given" for each in self.space.policies}
        tolerances = [each for each in self.space.fields if each.name.endswith(".tolerance")]
        lower = {each.name: _nearest(each.choices, min(each.given, 0.03)) for each in tolerances}
        return [given, *({**given, name: index} for name, index in lower.items()), {**given, **lower}]

    def _shape(self, trial: optuna.Trial) -> Candidate:
        shape: dict[str, Value] = {}
        for each in self.space.fields:
            value = each.choices[trial.suggest_int(each.name, 0, len(each.choices) - 1)]
            if value != each.given:
                shape[each.name] = value
        for policies in self.space.policies:
            policy = _suggest_policy(trial, policies)
            if policy is not None:
                shape[policies.name] = policy
        return shape


def _suggest_policy(trial: optuna.Trial, field: PolicyField) -> Policy | None:
    kind = trial.suggest_categorical(field.name, ["given", *field.values])
    if kind == "given":
        return None
    values = field.values[kind]
    value = values[trial.suggest_int(f"{field.name} {kind}", 0, len(values) - 1)]
    period = field.periods[trial.suggest_int(f"{field.name} {kind} period", 0, len(field.periods) - 1)]
    return Policy(kind, value, period)


def _nearest(choices: Sequence[float], value: float) -> int:
    return min(range(len(choices)), key=lambda index: abs(choices[index] - value))


def _without(candidate: Candidate, *names: str) -> dict[str, Value]:
    return {name: value for name, value in candidate.items() if name not in names}


def _key(candidate: Mapping[str, Value]) -> _Key:
    return tuple(sorted(candidate.items()))
