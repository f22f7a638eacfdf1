"""Comparisons of shadow mode: when do two controllers agree that sync at different times?"""

import pytest
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import decide
from autoscaler.core.history import History
from autoscaler.core.model import Behavior, Condition, HPAKey, Status
from autoscaler.core.observation import Observation, ReadError, Scale
from autoscaler.records.shadow import Comparison, DesiredReplicas, ShadowComparer, Verdict, compare, desired_replicas
from tests.autoscaler.simulated_cluster import NOW, behavior, hpa, percent, rules, some_pods, with_spec

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
    assert comparison.lag_seconds == lag_seconds
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


class SimulatedCluster:
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

    def verdicts(self) -> list[str]:
        self.shadow.comparisons(self.now_ms)
        return [comparison.verdict for comparison in self.comparisons]


def test_equal_count_after_the_window_is_a_difference() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(2)
    simulated.we_decide(3)
    simulated.pass_time(WINDOW / 1000 + 0.001)
    simulated.they_decide(3)
    assert simulated.verdicts() == [Verdict.HIGHER]
    assert (simulated.comparisons[0].ours, simulated.comparisons[0].theirs) == (3, 2)


def test_decision_is_pending_to_the_very_end_of_the_window() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(2)
    simulated.we_decide(3)
    simulated.pass_time(WINDOW / 1000)
    assert simulated.verdicts() == []
    simulated.they_decide(3)
    assert simulated.verdicts() == [Verdict.AGREED]


def test_lasting_difference_is_found_by_later_decisions() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(3)
    simulated.pass_time(60)
    simulated.they_decide(2)
    for _ in range(4):
        simulated.pass_time(PERIOD)
        simulated.we_decide(3)
    simulated.pass_time(60)
    assert simulated.verdicts() == [Verdict.AGREED, Verdict.HIGHER, Verdict.HIGHER, Verdict.HIGHER]


def test_hpa_without_conditions_is_not_compared() -> None:
    simulated = SimulatedCluster()
    simulated.shadow.add_status(simulated.hpa, simulated.now_ms)
    simulated.we_decide(3)
    simulated.pass_time(60)
    assert simulated.verdicts() == []


def test_decision_without_scale_is_not_compared() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(2)
    lost = Observation(hpa=simulated.hpa, scale=ReadError("the API server cannot be reached"))
    simulated.shadow.add_decision(decide(lost, History(), simulated.now_ms))
    simulated.pass_time(60)
    assert simulated.verdicts() == []


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
    simulated = SimulatedCluster(config, rules)
    simulated.they_decide(2)
    simulated.pass_time(seconds - 0.001)
    simulated.we_decide(3)
    simulated.we_decide(2)
    simulated.pass_time(0.001)
    simulated.we_decide(3)
    simulated.pass_time(60)
    assert simulated.verdicts() == [Verdict.WARMING_UP, Verdict.AGREED, Verdict.HIGHER]


def test_latest_differences_are_kept() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(2)
    for _ in range(30):
        simulated.we_decide(3)
    simulated.pass_time(60)
    simulated.we_decide(2)
    compared = simulated.shadow.comparisons(simulated.now_ms)[WEB]
    assert compared.counts == {Verdict.HIGHER: 30, Verdict.AGREED: 1}
    assert compared.last is not None
    assert compared.last.verdict is Verdict.AGREED
    assert len(compared.differences) == 20


def test_old_desired_replicas_are_dropped() -> None:
    simulated = SimulatedCluster()
    for replicas in range(1000):
        simulated.they_decide(replicas)
        simulated.pass_time(1)
    assert len(simulated.shadow.comparisons(simulated.now_ms)[WEB].theirs) <= WINDOW // 1000 + 1


def test_recreated_hpa_starts_with_no_comparisons() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(2)
    simulated.we_decide(2)
    simulated.hpa = replace(simulated.hpa, uid="u-2")
    simulated.they_decide(4)
    assert simulated.shadow.comparisons(simulated.now_ms)[WEB].counts == {}


def test_removed_hpa_has_no_comparisons() -> None:
    simulated = SimulatedCluster()
    simulated.they_decide(2)
    simulated.shadow.remove(WEB)
    simulated.shadow.remove(WEB)
    assert simulated.shadow.comparisons(simulated.now_ms) == {}
