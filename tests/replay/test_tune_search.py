"""The search of `tune`: days, goal and limits, and the whole search with a scripted simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from replay.load import Load, ReplayError
from replay.results import Figures, total
from replay.tune.candidates import Candidate, Field
from replay.tune.evaluation import DAY_MS, Run, days_of
from replay.tune.goal import Goal, Objective
from replay.tune.search import Search, Trial, choose
from replay.tune.tuning import Phases
from tests.replay.builders import load_of

HOUR_MS = 3_600_000
TARGETS = Field(name="target", choices=tuple(float(each) for each in range(30, 91)), given=70.0)


def days(*overloads: float, pods: float = 100.0, scale_events: int = 20, flaps: int = 2) -> tuple[Figures, ...]:
    """Days with this overload, in thousandths of the load."""
    return tuple(Figures(pods, ((each, 1000.0),), scale_events, flaps, DAY_MS) for each in overloads)


# --- days


def load_of_length(milliseconds: int) -> Load:
    load = load_of(rps=[1.0])
    return replace(load, end_ms=load.start_ms + milliseconds)


@pytest.mark.parametrize(
    ("length_ms", "count", "name"),
    [
        (14 * DAY_MS, 14, "1 day"),
        (7 * DAY_MS + 5 * HOUR_MS, 7, "1 day"),  # the last one is longer
        (2 * DAY_MS, 2, "1 day"),
        (3 * DAY_MS + DAY_MS // 2, 3, "1 day"),
        (DAY_MS, 8, "1 part"),
        (HOUR_MS, 8, "1 part"),
    ],
)
def test_history_is_cut_into_days_or_into_parts_if_there_is_no_second_one(
    length_ms: int, count: int, name: str
) -> None:
    load = load_of_length(length_ms)
    found = days_of(load)
    assert (len(found), found.count(1)) == (count, name)
    assert (found.starts_ms[0], found.ends_ms[-1]) == (load.start_ms, load.end_ms)
    assert load.start_ms < found.counted_from_ms <= load.start_ms + HOUR_MS


def test_less_than_an_hour_is_too_short() -> None:
    with pytest.raises(ReplayError, match="40 minutes of load are too short to tune on"):
        days_of(load_of_length(40 * 60_000))


def test_figures_add_up() -> None:
    assert total([Figures(1, ((2, 4),), 1, 1), Figures(3, ((0, 4),), 2, 1)]) == Figures(4, ((2, 8),), 3, 2)
    assert Figures(1, ((2, 4), (9, 10), (0, 0))).overload_ratio == 0.9
    assert Figures().overload_ratio == 0


# --- limits


def test_overload_above_the_limit_is_not_kept() -> None:
    goal = Goal(max_overload=0.001)
    assert goal.keeps_limits_with_margin(days(*[1.0] * 10), days(*[0.0] * 10))
    assert not goal.keeps_limits_with_margin(days(*[1.1] * 10), days(*[0.0] * 10))


def test_worst_fifth_of_the_days_keeps_the_limit_too() -> None:
    goal, given = Goal(max_overload=0.001), days(*[0.0] * 10)
    assert goal.keeps_limits(days(2.5, 2.5, *[0.0] * 8), given)
    assert not goal.keeps_limits_with_margin(days(2.5, 2.5, *[0.0] * 8), given)
    assert goal.keeps_limits_with_margin(days(1.5, 0.5, *[0.0] * 8), given)


def test_without_a_limit_overload_is_compared_on_the_same_days() -> None:
    given = days(9, 0, 0, 0, 9, 0, 0, 0, 0, 0)
    assert Goal().keeps_limits_with_margin(given, given)
    assert Goal().keeps_limits_with_margin(days(8, 0, 0, 0, 8, 0, 0, 0, 0, 0), given)
    assert not Goal().keeps_limits_with_margin(days(0, 9, 0, 0, 0, 9, 0, 0, 0, 0), given)


def test_without_a_limit_overload_of_one_in_a_hundred_thousand_requests_is_allowed() -> None:
    assert Goal().keeps_limits_with_margin(days(*[0.01] * 10), days(*[0.0] * 10))
    assert not Goal().keeps_limits_with_margin(days(*[0.011] * 10), days(*[0.0] * 10))


@pytest.mark.parametrize(
    ("scale_events", "flaps", "kept"), [(30, 3, True), (31, 3, False), (30, 4, False), (10, 0, True)]
)
def test_churn_is_limited_to_half_as_much_again(scale_events: int, flaps: int, kept: bool) -> None:
    found = days(0, 0, scale_events=scale_events, flaps=flaps)
    assert Goal(max_overload=0.001).keeps_limits(found, days(0, 0)) is kept
    assert Goal(max_overload=0.001, max_scale_events=2, max_flaps=2).keeps_limits(found, days(0, 0))


def test_least_overload_must_not_cost_pods() -> None:
    goal = Goal(objective=Objective.OVERLOAD)
    assert goal.keeps_limits(days(9, 9), days(1, 1))
    assert not goal.keeps_limits(days(0, 0, pods=101), days(1, 1))


def test_given_spec_that_exceeds_the_limit_by_rounding_does_not_exceed_it() -> None:
    goal = Goal(max_overload=0.0010)
    assert not goal.given_exceeds(days(1.01))
    assert goal.given_exceeds(days(1.1))
    assert not Goal().given_exceeds(days(9))


def test_three_percent_are_the_least_gain() -> None:
    assert Goal().gains(days(0, pods=97), days(0))
    assert not Goal().gains(days(0, pods=97.1), days(0))
    assert not Goal(objective=Objective.OVERLOAD).gains(days(0), days(0))  # from nothing


# --- the choice


def trial(candidate: Candidate, pods: float, *overloads: float) -> Trial:
    return Trial(candidate=candidate, days=days(*overloads or [0.0] * 5, pods=pods))


def test_simpler_spec_is_chosen_unless_another_saves_clearly_more() -> None:
    simple, other = {"target": 90.0}, {"target": 88.0, "scaleDown.tolerance": 0.05}
    given = trial({}, 100)
    for pods, chosen in ((78.5, simple), (77.5, other)):
        trials = [given, trial(simple, 80), trial(other, pods)]
        assert choose(trials, Goal(max_overload=0.001), range(5)).candidate == chosen


def test_choice_is_by_the_given_days_only() -> None:
    bold = trial({"target": 90.0}, 78, 5.0, 0.0, 0.0, 0.0, 0.0)
    trials = [trial({}, 100), trial({"target": 80.0}, 88), bold]
    assert choose(trials, Goal(max_overload=0.001), [1, 2, 3, 4]) is bold
    assert choose(trials, Goal(max_overload=0.001), [0, 2, 3, 4]) is trials[1]


def test_given_spec_is_chosen_if_no_other_keeps_the_limits() -> None:
    trials = [trial({}, 100, *[9.0] * 5), trial({"target": 60.0}, 110, *[8.0] * 5)]
    assert choose(trials, Goal(max_overload=0.001), range(5)) is trials[0]


# --- the whole search

FIELDS = (
    Field(name="scaleUp.tolerance", given=0.1, choices=(0.02, 0.05)),
    Field(name="scaleDown.tolerance", given=0.1, choices=(0.02, 0.05)),
    Field(name="scaleDown.stabilizationWindowSeconds", given=300, choices=(60.0, 120.0, 600.0)),
    Field(name="minReplicas", given=1, choices=(5.0, 10.0)),
)


class Simulation:
    """Pods fall with the target; overload begins above a target that the other fields determine."""

    def __init__(self, goal: Goal | None = None, *, highest: float = 75.0) -> None:
        self.goal = goal or Goal(max_overload=0.001)
        self.highest = highest
        self.replayed: list[Candidate] = []

    def days(self, candidate: Candidate) -> tuple[Figures, ...]:
        target, window = candidate.get("target", 70.0), candidate.get("scaleDown.stabilizationWindowSeconds", 300.0)
        lower = 0.1 - candidate.get("scaleUp.tolerance", 0.1)
        highest = self.highest + 100 * lower
        events = 20 if window >= 120 else 40
        pods = 7000 / target * (1 + window / 5_000)
        return days(*[max(target - highest, 0) * 0.3 + 0.5] * 10, pods=pods, scale_events=events)

    def replay(self, candidates: Sequence[Candidate]) -> list[tuple[Figures, ...]]:
        self.replayed += candidates
        return [self.days(each) for each in candidates]

    def search(self, *, target: Field | None = TARGETS, fields: Sequence[Field] = ()) -> Search:
        search = Search(target=target, fields=fields, goal=self.goal, given=self.days({}), replay=self.replay)
        search.run()
        return search


def test_refused_trial_is_followed_by_the_next_best_and_still_counts_as_replayed() -> None:
    search = Simulation(highest=80.0).search()
    replays, first = search.replays, search.best.candidate["target"]
    search.refuse(search.best)
    assert 70 < search.best.candidate["target"] < first
    assert search.replays == replays


def test_the_search_and_the_check_of_its_winner_replay_at_most_40_times() -> None:
    search = Search(target=TARGETS, fields=(), goal=Goal(), given=days(1.0), replay=lambda _: [])
    search.trials += [Trial(candidate={"target": 30.0 + each}, days=days(0.0, pods=99.0 - each)) for each in range(33)]
    runs: list[Run] = []

    def replay(some: Sequence[Run]) -> list[tuple[Figures, ...]]:
        runs.extend(some)
        return [days(900.0 if run.candidate else 1.0) for run in some]

    phases = Phases(15_000, replay)
    assert phases.best(search) is search.trials[0]
    assert search.replays + len(runs) == 40
    assert not search.step_back(at_most=phases.left(search) - phases.count)


@pytest.mark.parametrize("highest", [28.0, 29.0, 40.0, 68.5, 71.0, 74.0, 75.0, 80.0, 88.0])
def test_highest_target_that_keeps_the_limit_is_found_in_few_replays(highest: float) -> None:
    simulation = Simulation(highest=highest)
    search = simulation.search()
    kept = [each for each in TARGETS.choices if 0.5 + 0.3 * max(each - highest, 0) <= 1]
    assert search.best.candidate == ({"target": kept[-1]} if kept and kept[-1] != 70 else {})
    assert len(simulation.replayed) <= 10


def test_highest_target_of_all_is_tried_first() -> None:
    simulation = Simulation(highest=95.0)
    assert simulation.search().best.candidate == {"target": 90.0}
    assert len(simulation.replayed) == 1


def test_lowest_target_without_more_pods_has_the_least_overload() -> None:
    search = Simulation(Goal(objective=Objective.OVERLOAD), highest=60.0).search(fields=FIELDS)
    # A shorter window leaves pods for a lower target.
    assert search.best.candidate == {
        "target": 68.0,
        "scaleUp.tolerance": 0.02,
        "scaleDown.stabilizationWindowSeconds": 120.0,
    }


def test_other_fields_change_where_they_save_enough() -> None:
    search = Simulation().search(fields=FIELDS)
    # The tolerance allows a higher target. A window of 60 s would have too many scale events; the others save nothing.
    assert search.best.candidate == {
        "target": 84.0,
        "scaleUp.tolerance": 0.02,
        "scaleDown.stabilizationWindowSeconds": 120.0,
    }


def test_no_candidate_is_replayed_twice_and_there_is_a_limit() -> None:
    for goal in (Goal(max_overload=0.001), Goal(max_overload=0.0007), Goal(), Goal(objective=Objective.OVERLOAD)):
        for highest in (40.0, 66.0, 75.0, 95.0):
            simulation = Simulation(goal, highest=highest)
            search = simulation.search(fields=FIELDS)
            keys = [tuple(sorted(each.candidate.items())) for each in search.trials]
            assert len(keys) == len(set(keys)) == len(simulation.replayed) + 1 <= 34


def test_search_without_a_candidate_that_keeps_the_limit_ends_with_the_given_spec() -> None:
    assert Simulation(Goal(max_overload=0.0001)).search(fields=FIELDS).best.candidate == {}


def test_without_a_target_the_other_fields_are_searched() -> None:
    simulation = Simulation()
    search = simulation.search(target=None, fields=FIELDS[2:])
    assert search.best.candidate == {"scaleDown.stabilizationWindowSeconds": 120.0}
    assert len(simulation.replayed) == 5
