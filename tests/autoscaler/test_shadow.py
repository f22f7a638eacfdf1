"""Shadow mode's comparisons: when two controllers that look at different moments agree."""

from dataclasses import replace

import pytest

from autoscaler.core.config import Config
from autoscaler.core.history import History
from autoscaler.core.model import Behavior, Condition, HPAKey, Status
from autoscaler.core.observation import Observation, Scale, ScaleError
from autoscaler.core.reconcile import decide
from autoscaler.records.shadow import Comparison, Shadow, Verdict, Wish, judge, wish_of
from tests.autoscaler.worlds import NOW, behavior, hpa, percent, rules, some_pods

PERIOD = 10.0
WINDOW = 15_000
"""Milliseconds: one and a half periods."""
AT_ONCE = Config(downscale_stabilization_ms=0)
WEB = HPAKey("default", "web")


def wishes(*pairs: tuple[int, int | None]) -> list[Wish]:
    """(seconds after NOW, replicas)."""
    return [Wish(NOW + seconds * 1000, replicas) for seconds, replicas in pairs]


@pytest.mark.parametrize(
    ("ours", "theirs", "lag_seconds"),
    [
        (3, wishes((-60, 3)), 0),
        (3, wishes((-60, 2), (0, 3)), 0),
        (3, wishes((-60, 2), (8, 3)), 8),
        (3, wishes((-60, 2), (4, 5), (8, 3)), 8),
        (3, wishes((-60, 3), (-8, 2)), -8),
        (3, wishes((-60, 3), (-8, 2), (3, 3)), 3),
        (3, wishes((-60, 3), (8, 2)), 0),
        (None, wishes((-60, None)), 0),
        (None, wishes((-60, 2), (8, None)), 8),
        (0, wishes((-60, 0)), 0),
    ],
    ids=[
        "it has wanted that for long",
        "it comes to it at the same time",
        "it comes to it later",
        "it comes to it by way of another",
        "it has left that already",
        "the nearer of two times counts",
        "it leaves that later",
        "neither has a count",
        "its metrics fail later",
        "both at zero",
    ],
)
def test_agreement_is_the_same_count_at_some_time_in_the_window(
    ours: int | None, theirs: list[Wish], lag_seconds: int
) -> None:
    comparison = judge(NOW, ours, theirs, complete=False)
    assert comparison is not None
    assert comparison.verdict is Verdict.AGREED
    assert comparison.lag_ms == lag_seconds * 1000
    assert comparison.difference == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "difference"),
    [
        (5, wishes((-60, 3)), Verdict.HIGHER, 2),
        (2, wishes((-60, 3)), Verdict.LOWER, -1),
        (5, wishes((-60, 3), (5, 4)), Verdict.HIGHER, 1),
        (5, wishes((-60, 3), (5, 8)), Verdict.PASSED, -3),
        (5, wishes((-60, None)), Verdict.ONLY_OURS, 0),
        (5, wishes((-60, None), (5, 3)), Verdict.HIGHER, 2),
        (None, wishes((-60, 3)), Verdict.ONLY_THEIRS, 0),
    ],
)
def test_a_difference_has_a_direction_and_is_told_when_the_window_is_over(
    ours: int | None, theirs: list[Wish], verdict: Verdict, difference: int
) -> None:
    assert judge(NOW, ours, theirs, complete=False) is None
    comparison = judge(NOW, ours, theirs, complete=True)
    assert comparison is not None
    assert (comparison.verdict, comparison.difference) == (verdict, difference)


def test_what_nobody_answers_is_not_compared() -> None:
    assert judge(NOW, 3, [], complete=True) is None


def condition(type_: str, status: str, reason: str) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="", last_transition_ms=NOW)


@pytest.mark.parametrize(
    ("conditions", "wish"),
    [
        ((condition("AbleToScale", "True", "ReadyForNewScale"), condition("ScalingActive", "True", "Valid")), 4),
        ((condition("ScalingActive", "False", "ScalingDisabled"),), 4),
        ((condition("ScalingLimited", "False", "DesiredWithinRange"),), 4),
        ((condition("ScalingActive", "False", "FailedGetPodsMetric"),), None),
        ((condition("ScalingActive", "False", "AmbiguousSelector"),), None),
        ((condition("AbleToScale", "False", "FailedGetScale"),), None),
    ],
)
def test_what_the_other_wants_is_in_the_status(conditions: tuple[Condition, ...], wish: int | None) -> None:
    assert wish_of(Status(desired_replicas=4, conditions=conditions)) == wish


class Watcher:
    """A shadow on one HPA, its clock, and the other controller's wishes as its status says them."""

    def __init__(self, config: Config = AT_ONCE, rules: Behavior | None = None) -> None:
        self.comparisons: list[Comparison] = []
        self.shadow = Shadow(
            sync_period=PERIOD, config=config, on_comparison=lambda _, made: self.comparisons.append(made)
        )
        self.now_ms = NOW
        self.hpa = hpa(behavior=rules)

    def other_wants(self, replicas: int) -> None:
        active = condition("ScalingActive", "True", "ValidMetricFound")
        status = Status(desired_replicas=replicas, conditions=(active,))
        self.shadow.saw(replace(self.hpa, status=status), self.now_ms)

    def we_want(self, replicas: int) -> None:
        """A step of ours on a target at 1, which must have so many."""
        scale = Scale(spec_replicas=1, status_replicas=1, selector="app=web")
        spec = replace(self.hpa.spec, min_replicas=replicas)
        observation = Observation(hpa=replace(self.hpa, spec=spec), scale=scale)
        self.shadow.decided(decide(observation, History(), self.now_ms))

    def pass_time(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def verdicts(self) -> list[Verdict]:
        self.shadow.standings(self.now_ms)
        return [comparison.verdict for comparison in self.comparisons]


def test_a_decision_waits_for_the_other_to_look() -> None:
    watcher = Watcher()
    watcher.other_wants(2)
    watcher.pass_time(60)
    watcher.we_want(3)
    watcher.pass_time(8)
    assert watcher.verdicts() == []
    watcher.other_wants(3)
    assert watcher.verdicts() == [Verdict.AGREED]
    assert watcher.comparisons[0].lag_ms == 8000


def test_what_comes_after_the_window_is_too_late() -> None:
    watcher = Watcher()
    watcher.other_wants(2)
    watcher.we_want(3)
    watcher.pass_time(WINDOW / 1000 + 0.001)
    watcher.other_wants(3)
    assert watcher.verdicts() == [Verdict.HIGHER]
    assert (watcher.comparisons[0].ours, watcher.comparisons[0].theirs) == (3, 2)


def test_a_difference_that_stays_is_found_when_the_window_no_longer_hides_it() -> None:
    watcher = Watcher()
    watcher.other_wants(3)
    watcher.pass_time(60)
    watcher.other_wants(2)
    for _ in range(4):
        watcher.pass_time(PERIOD)
        watcher.we_want(3)
    watcher.pass_time(60)
    assert watcher.verdicts() == [Verdict.AGREED, Verdict.HIGHER, Verdict.HIGHER, Verdict.HIGHER]


def test_an_hpa_that_the_other_has_not_looked_at_is_not_compared() -> None:
    watcher = Watcher()
    watcher.shadow.saw(watcher.hpa, watcher.now_ms)
    watcher.we_want(3)
    watcher.pass_time(60)
    assert watcher.verdicts() == []


def test_a_step_without_a_scale_is_not_compared() -> None:
    watcher = Watcher()
    watcher.other_wants(2)
    lost = Observation(hpa=watcher.hpa, scale=ScaleError("the API server cannot be reached"))
    watcher.shadow.decided(decide(lost, History(), watcher.now_ms))
    watcher.pass_time(60)
    assert watcher.verdicts() == []


@pytest.mark.parametrize(
    ("config", "rules", "seconds"),
    [
        (Config(downscale_stabilization_ms=120_000), None, 120),
        (Config(downscale_stabilization_ms=120_000), behavior(), 1),
        (AT_ONCE, behavior(up=rules(percent(100, 30), window=90)), 90),
        (AT_ONCE, behavior(down=rules(some_pods(4, 60), window=10)), 60),
        (Config(downscale_stabilization_ms=120_000), behavior(down=rules(percent(10, 60))), 120),
    ],
)
def test_until_every_window_has_passed_differences_are_not_held_against_either(
    config: Config, rules: Behavior | None, seconds: int
) -> None:
    watcher = Watcher(config, rules)
    watcher.other_wants(2)
    watcher.pass_time(seconds - 0.001)
    watcher.we_want(3)
    watcher.we_want(2)
    watcher.pass_time(0.001)
    watcher.we_want(3)
    watcher.pass_time(60)
    assert watcher.verdicts() == [Verdict.WARMING_UP, Verdict.AGREED, Verdict.HIGHER]


def test_the_standing_counts_and_keeps_the_latest_differences() -> None:
    watcher = Watcher()
    watcher.other_wants(2)
    for _ in range(30):
        watcher.we_want(3)
    watcher.pass_time(60)
    watcher.we_want(2)
    standing = watcher.shadow.standings(watcher.now_ms)[WEB]
    assert standing.counts == {Verdict.HIGHER: 30, Verdict.AGREED: 1}
    assert standing.last is not None
    assert standing.last.verdict is Verdict.AGREED
    assert len(standing.differences) == 20


def test_memory_stays_small_however_often_the_other_changes_its_mind() -> None:
    watcher = Watcher()
    for replicas in range(1000):
        watcher.other_wants(replicas)
        watcher.pass_time(1)
    assert len(watcher.shadow.standings(watcher.now_ms)[WEB].wishes) <= WINDOW // 1000 + 1


def test_an_hpa_made_anew_under_the_same_name_begins_anew() -> None:
    watcher = Watcher()
    watcher.other_wants(2)
    watcher.we_want(2)
    watcher.hpa = replace(watcher.hpa, uid="u-2")
    watcher.other_wants(4)
    assert watcher.shadow.standings(watcher.now_ms)[WEB].counts == {}


def test_a_forgotten_one_is_gone() -> None:
    watcher = Watcher()
    watcher.other_wants(2)
    watcher.shadow.forget(WEB)
    watcher.shadow.forget(WEB)
    assert watcher.shadow.standings(watcher.now_ms) == {}
