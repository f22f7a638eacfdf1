"""The search of `tune`: split, goal, line search, and the whole search with a scripted simulation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from replay.load import Load, ReplayError
from replay.tune.evaluation import Evaluation, Figures, project
from replay.tune.goal import Goal, Margin, Objective, gain_interval
from replay.tune.line_search import Line, Trial, search_line, trial_of
from replay.tune.search import Search
from replay.tune.space import Candidate, Field, PolicyField, Space, number
from replay.tune.split import DAY_MS, split_load
from tests.replay.builders import load_of, make_hpa

HOUR_MS = 3_600_000
TARGETS = Field(name="target", choices=tuple(float(each) for each in range(30, 101)), given=70.0)


def days(*overloads: float, pods: float = 100.0) -> tuple[Figures, ...]:
    return tuple(Figures(pods, ((each, 1000.0),), 5) for each in overloads)


# --- split


def load_of_length(milliseconds: int) -> Load:
    load = load_of(rps=[1.0])
    return replace(load, end_ms=load.start_ms + milliseconds)


def test_last_days_are_unseen() -> None:
    load = load_of_length(14 * DAY_MS)
    split = split_load(load, train=0.7)
    assert (split.train, split.unseen, split.unit) == (10, 4, "day")
    assert split.split_ms == load.start_ms + 10 * DAY_MS
    assert split.warm_up_ms == HOUR_MS


@pytest.mark.parametrize(
    ("length_ms", "unit", "parts"),
    [
        (3 * DAY_MS, "day", 3),
        (7 * DAY_MS + 5 * HOUR_MS, "day", 7),  # the last part is longer
        (2 * DAY_MS, "6 h", 8),
        (DAY_MS, "1 h", 24),
        (2 * HOUR_MS, "15 min", 8),
    ],
)
def test_short_histories_have_shorter_parts(length_ms: int, unit: str, parts: int) -> None:
    load = load_of_length(length_ms)
    split = split_load(load)
    assert (split.unit, split.parts) == (unit, parts)
    assert split.boundaries_ms[-1] == load.end_ms


def test_too_short_load_is_an_error() -> None:
    with pytest.raises(ReplayError, match="20 minutes of load are too short to tune on"):
        split_load(load_of_length(20 * 60_000))


def test_both_parts_have_a_day_at_least() -> None:
    assert split_load(load_of_length(3 * DAY_MS), train=0.9).unseen == 1
    assert split_load(load_of_length(3 * DAY_MS), train=0.1).train == 1


# --- goal


def test_better_needs_the_limit_and_a_gain() -> None:
    given = days(1, 1)
    goal = Goal(max_overload=0.002)
    assert goal.is_better(days(2, 2, pods=90), given)
    assert not goal.is_better(days(2, 2.1, pods=90), given)  # above 0.2 %
    assert not goal.is_better(days(1, 1, pods=98), given)  # too little gained
    assert not goal.is_better(days(0, 0, pods=101), given)


def test_without_max_overload_the_given_spec_is_the_limit() -> None:
    given = days(1, 3)
    assert Goal().is_better(days(2, 2, pods=90), given)
    assert not Goal().is_better(days(2, 2.1, pods=90), given)


def test_less_overload_may_not_cost_pod_hours() -> None:
    goal = Goal(objective=Objective.OVERLOAD)
    given = days(2, 2)
    assert goal.is_better(days(1, 1), given)
    assert not goal.is_better(days(1, 1, pods=101), given)
    assert not goal.is_better(days(2, 2, pods=50), given)


def test_given_spec_that_exceeds_the_limit_by_rounding_does_not_exceed_it() -> None:
    goal = Goal(max_overload=0.0010)
    assert not goal.given_exceeds(days(1.01))
    assert goal.given_exceeds(days(1.1))
    assert not Goal().given_exceeds(days(9))


def test_margin_counts_single_bad_days() -> None:
    given = days(*[0] * 10)
    margin = Margin(Goal(max_overload=0.001), given, unseen=4, seed=1)
    assert margin.excess(days(*[0.9] * 10)) <= 0
    # The mean of these is 0.05 %, but two of ten days have 0.25 %.
    assert margin.excess(days(2.5, 2.5, *[0] * 8)) > 0


def test_margin_compares_with_the_given_spec_on_the_same_days() -> None:
    given = days(9, 0, 0, 0, 9, 0, 0, 0, 0, 0)
    margin = Margin(Goal(), given, unseen=4, seed=1)
    assert margin.excess(given) <= 0
    assert margin.excess(days(8, 0, 0, 0, 8, 0, 0, 0, 0, 0)) <= 0
    assert margin.excess(days(0, 9, 0, 0, 0, 9, 0, 0, 0, 0)) > 0


def test_interval_of_the_gain_has_ninety_percent_of_the_selections_of_days() -> None:
    given = (*days(0, 0, 0), *days(0, 0, pods=300))
    assert gain_interval(days(0, 0, 0, pods=80), given[:3], seed=1) == pytest.approx((0.2, 0.2))
    found = tuple(figures for pods in (95, 70, 88, 150, 282) for figures in days(0, pods=pods))
    pairs = [(ours.pod_hours, before.pod_hours) for ours, before in zip(found, given, strict=True)]
    gains = sorted(
        1 - sum(ours for ours, _ in selection) / sum(before for _, before in selection)
        for selection in itertools.product(pairs, repeat=len(pairs))
    )
    exact = gains[len(gains) * 5 // 100], gains[len(gains) * 95 // 100]
    assert gain_interval(found, given, seed=1) == pytest.approx(exact, abs=0.008)


# --- a stopped replay


def test_stopped_replay_is_projected_from_the_given_spec() -> None:
    given = (Figures(100, ((1, 1000),)), Figures(200, ((3, 3000),)), Figures(100, ((1, 1000),)))
    stopped = Evaluation((Figures(80, ((4, 1000),)), Figures(80, ((6, 1500),))), False, 0.0)
    parts = project(stopped, given)
    # 160 pod-hours and 10 of overload, where the given spec had 200 and 2.5.
    assert sum(each.pod_hours for each in parts) == pytest.approx(0.8 * 400)
    assert sum(each.overload_requests for each in parts) == pytest.approx(4 * 5)
    assert sum(load for each in parts for _, load in each.loads) == pytest.approx(5000)


# --- line search


class Simulation:
    """Pods fall with the target; overload begins above a target that the other fields determine."""

    def __init__(self, goal: Goal | None = None) -> None:
        self.goal = goal or Goal(max_overload=0.001)
        self.given = self.parts({})
        self.margin = Margin(self.goal, self.given, unseen=3, seed=0)
        self.evaluated: list[Candidate] = []

    def parts(self, candidate: Candidate) -> tuple[Figures, ...]:
        target = number(candidate, "target", otherwise=70.0)
        tolerance = number(candidate, "scaleUp.tolerance", otherwise=0.1)
        window = number(candidate, "scaleDown.stabilizationWindowSeconds", otherwise=300.0)
        highest = 90 - 150 * tolerance  # 75 by default
        pods = 7000 / target * (1 + window / 10_000)
        return days(*[max(target - highest, 0) * 0.3 + 0.5] * 10, pods=pods)

    def trial(self, candidate: Candidate) -> Trial:
        self.evaluated.append(candidate)
        evaluation = Evaluation(self.parts(candidate), True, 0.1)
        return trial_of(candidate, evaluation, self.goal, self.given, excess=self.margin)

    def lines(self, lines: Sequence[Line]) -> Iterator[list[Trial]]:
        for line in lines:
            yield search_line(line, TARGETS, self.goal, self.trial)


@pytest.mark.parametrize("start", [30.0, 70.0, 76.0, 77.0, 100.0])
def test_line_search_finds_the_highest_target_that_keeps_the_limit(start: float) -> None:
    simulation = Simulation()
    trials = search_line(Line(shape={}, start=start, bar=None), TARGETS, simulation.goal, simulation.trial)
    best = min((trial for trial in trials if trial.is_feasible), key=lambda trial: trial.value)
    assert best.candidate == {"target": 76.0}
    assert len(trials) <= 10


def test_line_search_finds_the_lowest_target_that_costs_no_more_pods() -> None:
    simulation = Simulation(Goal(objective=Objective.OVERLOAD))
    shape = {"scaleDown.stabilizationWindowSeconds": 0.0}
    trials = search_line(Line(shape=shape, start=85.0, bar=None), TARGETS, simulation.goal, simulation.trial)
    lowest = min((trial for trial in trials if trial.is_feasible), key=lambda trial: trial.candidate.get("target", 70))
    assert lowest.candidate == {**shape, "target": 68.0}


def test_line_search_gives_up_where_the_limit_is_missed_with_more_pods_than_the_best() -> None:
    simulation = Simulation()
    bar = simulation.goal.value(simulation.parts({"target": 90.0}))
    line = Line(shape={"scaleUp.tolerance": 0.2}, start=80.0, bar=bar)
    assert len(search_line(line, TARGETS, simulation.goal, simulation.trial)) == 1


def test_without_a_target_a_line_is_one_replay() -> None:
    simulation = Simulation()
    [trial] = search_line(Line(shape={}, start=0.0, bar=None), None, simulation.goal, simulation.trial)
    assert trial.candidate == {}


# --- the whole search

SPACE = Space(
    target=TARGETS,
    fields=(
        Field(name="scaleUp.tolerance", choices=(0.0, 0.05, 0.1, 0.15, 0.2), given=0.1),
        Field(name="scaleDown.tolerance", choices=(0.0, 0.1, 0.2), given=0.1),
        Field(name="scaleDown.stabilizationWindowSeconds", choices=(0.0, 300.0, 3600.0), given=300.0),
    ),
    policies=(PolicyField(name="scaleUp.policies", values={"Percent": (50, 100)}, periods=(15, 60)),),
)


def search_with(simulation: Simulation, *, seed: int = 0, space: Space = SPACE) -> Search:
    return Search(
        space=space,
        spec=make_hpa().spec,
        goal=simulation.goal,
        given=simulation.given,
        seed=seed,
        search_lines=simulation.lines,
        on_trials=lambda _: None,
    )


def test_search_finds_the_best_and_simplifies_it() -> None:
    search = search_with(Simulation())
    search.run(150)
    best = search.simplify(200)
    assert len(search.trials) <= 201
    assert best is not None
    # scaleDown.tolerance and scaleUp.policies change nothing, so they are as given.
    assert best.candidate == {
        "target": 91.0,
        "scaleUp.tolerance": 0.0,
        "scaleDown.stabilizationWindowSeconds": 0.0,
    }


def test_search_is_the_same_with_the_same_seed() -> None:
    first, second, third = (search_with(Simulation(), seed=seed) for seed in (7, 7, 8))
    for search in (first, second, third):
        search.run(60)
    assert [trial.candidate for trial in first.trials] == [trial.candidate for trial in second.trials]
    assert [trial.candidate for trial in first.trials] != [trial.candidate for trial in third.trials]


def test_first_candidates_are_simple() -> None:
    simulation = Simulation()
    search = search_with(simulation)
    search.run(1)
    assert all(set(candidate) <= {"target"} for candidate in simulation.evaluated[:3])


def test_search_without_a_candidate_that_keeps_the_limit_has_no_best() -> None:
    search = search_with(Simulation(Goal(max_overload=0.0001)))
    search.run(30)
    assert search.best is None
    assert search.simplify(40) is None


def test_search_of_a_small_space_ends() -> None:
    space = Space(target=None, fields=(SPACE.fields[0],), policies=())
    simulation = Simulation()
    search = Search(
        space=space,
        spec=make_hpa().spec,
        goal=simulation.goal,
        given=simulation.given,
        seed=0,
        search_lines=lambda lines: ([simulation.trial(line.shape)] for line in lines),
        on_trials=lambda _: None,
    )
    search.run(1000)
    assert len(search.trials) <= 6
