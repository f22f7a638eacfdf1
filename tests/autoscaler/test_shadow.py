"""Comparisons of shadow mode: when do two controllers agree that sync at different times?"""

import pytest
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.history import History
from autoscaler.core.model import Behavior, Condition, HPAKey, Status
from autoscaler.core.observation import Observation, Scale, ScaleError
from autoscaler.core.reconcile import decide
from autoscaler.records.shadow import Comparison, DesiredReplicas, ShadowComparer, Verdict, compare, desired_replicas
from tests.autoscaler.worlds import NOW, behavior, hpa, percent, rules, some_pods, with_spec

PERIOD = 10.0
WINDOW = 15_000
"""Milliseconds: one and a half periods."""
AT_ONCE = Config(downscale_stabilization_ms=0)
WEB = HPAKey("default", "web")


def theirs_at(*pairs: tuple[int, int | None]) -> list[DesiredReplicas]:
    """(seconds after NOW, replicas)."""
    return [DesiredReplicas(NOW + seconds * 1000, replicas) for seconds, replicas in pairs]


@pytest.mark.parametrize(
    ("ours", "theirs", "lag_seconds"),
    [
        (3, theirs_at((-60, 3)), 0),
        (3, theirs_at((-60, 2), (0, 3)), 0),
        (3, theirs_at((-60, 2), (8, 3)), 8),
        (3, theirs_at((-60, 2), (4, 5), (8, 3)), 8),
        (3, theirs_at((-60, 3), (-8, 2)), -8),
        (3, theirs_at((-60, 3), (-8, 2), (3, 3)), 3),
        (3, theirs_at((-60, 3), (8, 2)), 0),
        (None, theirs_at((-60, None)), 0),
        (None, theirs_at((-60, 2), (8, None)), 8),
        (0, theirs_at((-60, 0)), 0),
    ],
    ids=[
        "equal for a long time",
        "equal from the same time on",
        "equal later",
        "equal later, after another value",
        "equal earlier",
        "equal earlier and later: the nearer counts",
        "equal until later",
        "neither has a count",
        "their metrics fail later",
        "both at zero",
    ],
)
def test_equal_count_within_the_window_agrees(
    ours: int | None, theirs: list[DesiredReplicas], lag_seconds: int
) -> None:
    comparison = compare(NOW, ours, theirs, window_passed=False)
    assert comparison is not None
    assert comparison.verdict is Verdict.AGREED
    assert comparison.lag_ms == lag_seconds * 1000
    assert comparison.difference == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "difference"),
    [
        (5, theirs_at((-60, 3)), Verdict.HIGHER, 2),
        (2, theirs_at((-60, 3)), Verdict.LOWER, -1),
        (5, theirs_at((-60, 3), (5, 4)), Verdict.HIGHER, 1),
        (5, theirs_at((-60, 3), (5, 8)), Verdict.PASSED, -3),
        (5, theirs_at((-60, None)), Verdict.ONLY_OURS, 0),
        (5, theirs_at((-60, None), (5, 3)), Verdict.HIGHER, 2),
        (None, theirs_at((-60, 3)), Verdict.ONLY_THEIRS, 0),
    ],
)
def test_difference_is_reported_when_the_window_has_passed(
    ours: int | None, theirs: list[DesiredReplicas], verdict: Verdict, difference: int
) -> None:
    assert compare(NOW, ours, theirs, window_passed=False) is None
    comparison = compare(NOW, ours, theirs, window_passed=True)
    assert comparison is not None
    assert (comparison.verdict, comparison.difference) == (verdict, difference)


def test_decision_without_counterpart_is_not_compared() -> None:
    assert compare(NOW, 3, [], window_passed=True) is None


def condition(type_: str, status: str, reason: str) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="", last_transition_ms=NOW)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((condition("AbleToScale", "True", "ReadyForNewScale"), condition("ScalingActive", "True", "Valid")), 4),
        ((condition("ScalingActive", "False", "ScalingDisabled"),), 4),
        ((condition("ScalingLimited", "False", "DesiredWithinRange"),), 4),
        ((condition("ScalingActive", "False", "FailedGetPodsMetric"),), None),
        ((condition("ScalingActive", "False", "AmbiguousSelector"),), None),
        ((condition("AbleToScale", "False", "FailedGetScale"),), None),
    ],
)
def test_desired_replicas_are_read_from_status_and_conditions(
    conditions: tuple[Condition, ...], expected: int | None
) -> None:
    assert desired_replicas(Status(desired_replicas=4, conditions=conditions)) == expected


class World:
    """A comparer with one HPA in shadow mode, and a clock."""

    def __init__(self, config: Config = AT_ONCE, rules: Behavior | None = None) -> None:
        self.comparisons: list[Comparison] = []
        self.shadow = ShadowComparer(
            sync_period=PERIOD, config=config, on_comparison=lambda _, made: self.comparisons.append(made)
        )
        self.now_ms = NOW
        self.hpa = hpa(behavior=rules)

    def they_decide(self, replicas: int) -> None:
        active = condition("ScalingActive", "True", "ValidMetricFound")
        status = Status(desired_replicas=replicas, conditions=(active,))
        self.shadow.add_status(replace(self.hpa, status=status), self.now_ms)

    def we_decide(self, replicas: int) -> None:
        """Reconcile a target of 1 replica with `replicas` as its minimum."""
        scale = Scale(spec_replicas=1, status_replicas=1, selector="app=web")
        observation = Observation(hpa=with_spec(self.hpa, min_replicas=replicas), scale=scale)
        self.shadow.add_decision(decide(observation, History(), self.now_ms))

    def pass_time(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def verdicts(self) -> list[Verdict]:
        self.shadow.comparisons(self.now_ms)
        return [comparison.verdict for comparison in self.comparisons]


def test_decision_is_pending_until_the_status_changes() -> None:
    world = World()
    world.they_decide(2)
    world.pass_time(60)
    world.we_decide(3)
    world.pass_time(8)
    assert world.verdicts() == []
    world.they_decide(3)
    assert world.verdicts() == [Verdict.AGREED]
    assert world.comparisons[0].lag_ms == 8000


def test_equal_count_after_the_window_is_a_difference() -> None:
    world = World()
    world.they_decide(2)
    world.we_decide(3)
    world.pass_time(WINDOW / 1000 + 0.001)
    world.they_decide(3)
    assert world.verdicts() == [Verdict.HIGHER]
    assert (world.comparisons[0].ours, world.comparisons[0].theirs) == (3, 2)


def test_decision_is_pending_to_the_very_end_of_the_window() -> None:
    world = World()
    world.they_decide(2)
    world.we_decide(3)
    world.pass_time(WINDOW / 1000)
    assert world.verdicts() == []
    world.they_decide(3)
    assert world.verdicts() == [Verdict.AGREED]


def test_lasting_difference_is_found_by_later_decisions() -> None:
    world = World()
    world.they_decide(3)
    world.pass_time(60)
    world.they_decide(2)
    for _ in range(4):
        world.pass_time(PERIOD)
        world.we_decide(3)
    world.pass_time(60)
    assert world.verdicts() == [Verdict.AGREED, Verdict.HIGHER, Verdict.HIGHER, Verdict.HIGHER]


def test_hpa_without_conditions_is_not_compared() -> None:
    world = World()
    world.shadow.add_status(world.hpa, world.now_ms)
    world.we_decide(3)
    world.pass_time(60)
    assert world.verdicts() == []


def test_decision_without_scale_is_not_compared() -> None:
    world = World()
    world.they_decide(2)
    lost = Observation(hpa=world.hpa, scale=ScaleError("the API server cannot be reached"))
    world.shadow.add_decision(decide(lost, History(), world.now_ms))
    world.pass_time(60)
    assert world.verdicts() == []


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
def test_differences_are_not_counted_until_every_window_has_passed(
    config: Config, rules: Behavior | None, seconds: int
) -> None:
    world = World(config, rules)
    world.they_decide(2)
    world.pass_time(seconds - 0.001)
    world.we_decide(3)
    world.we_decide(2)
    world.pass_time(0.001)
    world.we_decide(3)
    world.pass_time(60)
    assert world.verdicts() == [Verdict.WARMING_UP, Verdict.AGREED, Verdict.HIGHER]


def test_latest_differences_are_kept() -> None:
    world = World()
    world.they_decide(2)
    for _ in range(30):
        world.we_decide(3)
    world.pass_time(60)
    world.we_decide(2)
    compared = world.shadow.comparisons(world.now_ms)[WEB]
    assert compared.counts == {Verdict.HIGHER: 30, Verdict.AGREED: 1}
    assert compared.last is not None
    assert compared.last.verdict is Verdict.AGREED
    assert len(compared.differences) == 20


def test_old_desired_replicas_are_dropped() -> None:
    world = World()
    for replicas in range(1000):
        world.they_decide(replicas)
        world.pass_time(1)
    assert len(world.shadow.comparisons(world.now_ms)[WEB].theirs) <= WINDOW // 1000 + 1


def test_recreated_hpa_starts_with_no_comparisons() -> None:
    world = World()
    world.they_decide(2)
    world.we_decide(2)
    world.hpa = replace(world.hpa, uid="u-2")
    world.they_decide(4)
    assert world.shadow.comparisons(world.now_ms)[WEB].counts == {}


def test_removed_hpa_has_no_comparisons() -> None:
    world = World()
    world.they_decide(2)
    world.shadow.remove(WEB)
    world.shadow.remove(WEB)
    assert world.shadow.comparisons(world.now_ms) == {}
