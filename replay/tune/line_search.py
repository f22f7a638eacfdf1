"""Find the best target of a candidate whose other fields are fixed, in few replays.

The higher the target, the fewer pods there are and the more overload, nearly always. So the search begins at the
target of the best candidate so far, goes on in growing strides until the limit is crossed, and halves the interval. It
gives up where a candidate misses the limit although it is already worse than the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from replay.tune.evaluation import Evaluation, Figures, project
from replay.tune.goal import Goal, Margin, Objective
from replay.tune.space import TARGET, Candidate, Field

_STRIDE: Final = 4
MAX_REPLAYS: Final = 10
"""Of a line."""
_WORSE: Final = 1.02
_PENALTY: Final = 0.1
"""Per 100 % above the limit, for the sampler: misses are worse than hits of the same value, big ones more so."""
_MAX_EXCESS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate and its figures on the training part."""

    candidate: Candidate
    parts: tuple[Figures, ...]
    """Projected from the given spec's if the replay was stopped."""
    is_complete: bool
    is_feasible: bool
    """It keeps the limit with the margin."""
    value: float
    """Of the objective."""
    score: float
    """The value, with a penalty if it is not feasible."""
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line search to be done."""

    shape: Candidate
    """Without target."""
    start: float
    """The first target."""
    bar: float | None
    """The best value so far."""
    max_replays: int = MAX_REPLAYS


def trial_of(
    candidate: Candidate, evaluation: Evaluation, goal: Goal, given: Sequence[Figures], *, excess: float | Margin
) -> Trial:
    """Return the trial of an evaluation on the training part.

    Args:
        candidate: the candidate.
        evaluation: its evaluation.
        goal: the objective and its limit.
        given: the given spec's figures.
        excess: by how much the limit is exceeded, or what computes it.
    """
    parts = evaluation.parts if evaluation.is_complete else project(evaluation, given)
    if isinstance(excess, Margin):
        excess = excess.excess(parts)
    value = goal.value(parts)
    is_feasible = evaluation.is_complete and excess <= 0 and goal.keeps_limits(parts, given)
    penalty = 0.0 if is_feasible else _PENALTY * (1 + min(max(excess, 0.0), _MAX_EXCESS))
    return Trial(
        candidate=candidate,
        parts=parts,
        is_complete=evaluation.is_complete,
        is_feasible=is_feasible,
        value=value,
        score=value * (1 + penalty),
        cpu_seconds=evaluation.cpu_seconds,
    )


def search_line(line: Line, target: Field | None, goal: Goal, evaluate: Callable[[Candidate], Trial]) -> list[Trial]:
    """Return the trials of a line search, at least one.

    Args:
        line: what is fixed, and where to begin.
        target: the targets to choose from; None: it stays as given.
        goal: whether fewer pods or less overload is better.
        evaluate: replays a candidate.
    """
    if target is None:
        return [evaluate(line.shape)]
    # In the direction in which the objective gets better and the limit nearer.
    choices = target.choices if goal.objective is Objective.POD_HOURS else target.choices[::-1]
    index = min(range(len(choices)), key=lambda each: abs(choices[each] - line.start))
    trials: list[Trial] = []
    good, bad, stride = -1, len(choices), _STRIDE
    while len(trials) < line.max_replays:
        value = choices[index]
        trial = evaluate(line.shape if value == target.given else {**line.shape, TARGET: value})
        trials.append(trial)
        if trial.is_feasible:
            good = index
        else:
            bad = index
            hopeless = good < 0 and line.bar is not None and trial.value > line.bar * _WORSE
            if hopeless and trial.value > 0:
                break
        if bad - good <= 1:
            break
        if good < 0:
            index, stride = max(bad - stride, 0), stride * 2
        elif bad == len(choices):
            index, stride = min(good + stride, bad - 1), stride * 2
        else:
            index = (good + bad) // 2
    return trials
