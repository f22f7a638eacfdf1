"""Pauses, fallbacks and stale watches: their effect on a decision."""

import pytest

from autoscaler.core.config import Config, Fallback, Pause
from autoscaler.core.decision import BlockedScale, Decision, Event, FallbackReplicas
from tests.autoscaler.simulated_cluster import (
    SimulatedCluster,
    behavior,
    external_metric,
    hpa,
    pods,
    pods_metric,
    rules,
    some_pods,
)

UNAVAILABLE = "prometheus is unavailable"


def paused(pause: Pause, *, replicas: int, minimum: int = 1, maximum: int = 10) -> SimulatedCluster:
    """A target with 100 of a metric per pod."""
    config = Config(paused=pause, downscale_stabilization_ms=0)
    return SimulatedCluster(hpa(pods_metric(100), minimum=minimum, maximum=maximum), replicas=replicas, config=config)


def limited(outcome: Decision) -> tuple[str, str]:
    """Reason and message of the ScalingLimited condition."""
    assert outcome.new_status is not None
    return next((each.reason, each.message) for each in outcome.new_status.conditions if each.type == "ScalingLimited")


class TestPause:
    @pytest.mark.parametrize("by_hand", [0, 12], ids=["disabled", "out of bounds"])
    def test_condition_is_removed_with_the_annotation_even_without_metrics(self, by_hand: int) -> None:
        simulated = paused(Pause.ALL, replicas=2)
        simulated.reconcile(200)
        assert simulated.reasons()["ScalingLimited"] == "Paused"
        simulated.config = Config()
        simulated.scale_by_hand(by_hand)
        simulated.reconcile(200)
        assert "ScalingLimited" not in simulated.reasons()

    def test_blocked_scale_does_not_change_the_status_again(self) -> None:
        simulated = paused(Pause.ALL, replicas=2)
        assert simulated.reconcile(200).new_status is not None
        assert simulated.reconcile(200, seconds=15).new_status is None

    @pytest.mark.parametrize(
        ("pause", "value", "replicas"),
        [
            (Pause.NONE, 200, 4),
            (Pause.NONE, 50, 1),
            (Pause.SCALE_IN, 200, 4),
            (Pause.SCALE_IN, 50, 2),
            (Pause.SCALE_OUT, 200, 2),
            (Pause.SCALE_OUT, 50, 1),
            (Pause.ALL, 200, 2),
            (Pause.ALL, 50, 2),
        ],
    )
    def test_blocks_its_direction(self, pause: Pause, value: int, replicas: int) -> None:
        simulated = paused(pause, replicas=2)
        simulated.reconcile(100)
        simulated.reconcile(value)
        assert simulated.replicas == replicas

    def test_blocked_scale_is_in_decision_and_status(self) -> None:
        simulated = paused(Pause.ALL, replicas=2)
        outcome = simulated.reconcile(200)
        assert simulated.decision is not None
        assert simulated.decision.blocked == BlockedScale(
            paused="all", replicas=4, reason="pods metric packets above target"
        )
        assert (simulated.decision.scale_to, simulated.decision.rescale_reason) == (None, "")
        assert outcome.events == ()
        assert outcome.error is None
        assert outcome.new_status is not None
        assert (outcome.new_status.current_replicas, outcome.new_status.desired_replicas) == (2, 2)
        assert outcome.new_status.last_scale_ms is None
        message = "annotation milliscale.io/paused: all keeps the target from being scaled to 4 replicas"
        assert limited(outcome) == ("Paused", message)
        assert simulated.reasons()["ScalingActive"] == "ValidMetricFound"

    def test_blocks_scaling_into_bounds(self) -> None:
        above = paused(Pause.SCALE_IN, replicas=12)
        above.reconcile(100)
        assert above.replicas == 12
        below = paused(Pause.SCALE_OUT, replicas=1, minimum=3)
        below.reconcile(100)
        assert below.replicas == 1

    def test_without_a_scale_nothing_is_blocked(self) -> None:
        simulated = paused(Pause.ALL, replicas=2)
        outcome = simulated.reconcile(100)
        assert simulated.decision is not None
        assert simulated.decision.blocked is None
        assert limited(outcome)[0] == "DesiredWithinRange"

    def test_recommendations_are_stored_while_blocked(self) -> None:
        simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4, config=Config(paused=Pause.ALL))
        simulated.reconcile(100)
        simulated.reconcile(25, seconds=200)
        simulated.config = Config()
        simulated.reconcile(25, seconds=15)
        assert simulated.replicas == 4, "4 replicas were proposed 215 s ago"
        simulated.reconcile(25, seconds=100)
        assert simulated.replicas == 1


class TestStaleObjects:
    """Pods missing in a stale watch must not count as missing load."""

    def simulated(self, *, replicas: int, maximum: int = 10, window: int = 0) -> SimulatedCluster:
        config = Config(downscale_stabilization_ms=window * 1000)
        simulated = SimulatedCluster(hpa(pods_metric(100), maximum=maximum), replicas=replicas, config=config)
        simulated.stale = ("pods",)
        return simulated

    def test_missing_pods_do_not_scale_down(self) -> None:
        simulated = self.simulated(replicas=10)
        simulated.pods = pods(3)
        outcome = simulated.reconcile(120)
        assert simulated.replicas == 10
        assert simulated.decision is not None
        assert simulated.decision.blocked == BlockedScale(
            paused="", stale=("pods",), replicas=4, reason="All metrics below target"
        )
        assert (outcome.events, outcome.error) == ((), None)
        assert outcome.new_status is not None
        assert (outcome.new_status.current_replicas, outcome.new_status.desired_replicas) == (10, 10)
        message = (
            "the watch on pods is silent, fails or is incomplete, so what is known may be out of date, "
            "which keeps the target from being scaled down to 4 replicas"
        )
        assert limited(outcome) == ("StaleWatch", message)
        assert simulated.reasons()["ScalingActive"] == "ValidMetricFound"

    def test_scaling_up_is_not_blocked(self) -> None:
        simulated = self.simulated(replicas=2)
        assert simulated.reconcile(200).events == (
            Event("Normal", "SuccessfulRescale", "New size: 4; reason: pods metric packets above target"),
        )
        assert simulated.decision is not None
        assert simulated.decision.blocked is None

    def test_without_a_scale_nothing_is_blocked(self) -> None:
        simulated = self.simulated(replicas=2)
        simulated.reconcile(100)
        assert simulated.reasons()["ScalingLimited"] == "-DesiredWithinRange"

    def test_ends_when_watches_are_current(self) -> None:
        simulated = self.simulated(replicas=4)
        simulated.reconcile(50)
        assert simulated.reasons()["ScalingLimited"] == "StaleWatch"
        simulated.stale = ()
        simulated.reconcile(50)
        assert simulated.replicas == 2
        assert simulated.reasons()["ScalingLimited"] == "-DesiredWithinRange"

    def test_stabilization_window_starts_again(self) -> None:
        simulated = self.simulated(replicas=4, window=300)
        for _ in range(5):
            simulated.reconcile(50, seconds=100)
        simulated.stale = ()
        simulated.reconcile(50, seconds=15)
        assert simulated.replicas == 4, "recommendations from stale pods are not stored"
        simulated.reconcile(50, seconds=301)
        assert simulated.replicas == 2

    def test_earlier_higher_recommendation_still_counts(self) -> None:
        simulated = self.simulated(replicas=4, window=300)
        simulated.reconcile(200)
        assert simulated.replicas == 8
        simulated.scale_by_hand(4)
        simulated.reconcile(50)
        assert simulated.replicas == 8

    def test_maximum_of_a_stale_hpa_does_not_scale_down(self) -> None:
        simulated = self.simulated(replicas=5, maximum=3)
        simulated.stale = ("horizontalpodautoscalers",)
        outcome = simulated.reconcile(100)
        assert simulated.replicas == 5
        assert limited(outcome)[0] == "StaleWatch"
        assert outcome.new_status is not None
        assert outcome.new_status.desired_replicas == 5
        simulated.stale = ()
        simulated.reconcile(100)
        assert simulated.replicas == 3
        assert "ScalingLimited" not in simulated.reasons()

    def test_minimum_of_a_stale_hpa_scales_up(self) -> None:
        simulated = SimulatedCluster(hpa(pods_metric(100), minimum=3), replicas=1)
        simulated.stale = ("horizontalpodautoscalers",)
        simulated.reconcile(100)
        assert simulated.replicas == 3

    def test_stale_watch_is_reported_even_while_paused(self) -> None:
        simulated = self.simulated(replicas=4)
        simulated.config = Config(paused=Pause.ALL, downscale_stabilization_ms=0)
        simulated.reconcile(50)
        assert simulated.reasons()["ScalingLimited"] == "StaleWatch"


class TestFallback:
    def simulated(self, *, replicas: int, fallback: int = 6, after: int = 3, maximum: int = 10) -> SimulatedCluster:
        config = Config(fallback=Fallback(replicas=fallback, failure_threshold=after), downscale_stabilization_ms=0)
        return SimulatedCluster(hpa(pods_metric(100), maximum=maximum), replicas=replicas, config=config)

    def test_raises_after_the_threshold_of_failures(self) -> None:
        simulated = self.simulated(replicas=4)
        for expected in (4, 4, 6, 6):
            outcome = simulated.reconcile(UNAVAILABLE)
            assert simulated.replicas == expected
        assert outcome.error is not None, "the metrics are still reported as failing"

    def test_reason_and_condition(self) -> None:
        simulated = self.simulated(replicas=4, after=1)
        outcome = simulated.reconcile(UNAVAILABLE)
        assert simulated.decision is not None
        assert simulated.decision.fallback == FallbackReplicas(replicas=6, failure_threshold=1, failures=1)
        assert simulated.decision.winner is None
        failure = f"unable to get metric packets: unable to fetch metrics from custom metrics API: {UNAVAILABLE}"
        assert outcome.events == (
            Event("Warning", "FailedGetPodsMetric", failure),
            Event("Normal", "SuccessfulRescale", "New size: 6; reason: metrics unavailable, fallback to 6 replicas"),
        )
        assert simulated.reasons()["ScalingActive"] == "-FailedGetPodsMetric"
        assert outcome.new_status is not None
        active = next(each for each in outcome.new_status.conditions if each.type == "ScalingActive")
        assert active.message == (
            f"the HPA was unable to compute the replica count: {failure}; after 1 or more failures in a row, "
            "annotation milliscale.io/fallback-replicas asks for at least 6 replicas"
        )

    def test_never_scales_down(self) -> None:
        simulated = self.simulated(replicas=8, after=1)
        for _ in range(3):
            simulated.reconcile(UNAVAILABLE, seconds=600)
            assert simulated.replicas == 8

    def test_status_does_not_change_while_it_applies(self) -> None:
        simulated = self.simulated(replicas=8, after=1)
        simulated.reconcile(UNAVAILABLE)
        assert simulated.reconcile(UNAVAILABLE).new_status is None

    def test_success_resets_the_count(self) -> None:
        simulated = self.simulated(replicas=4)
        for value in (UNAVAILABLE, UNAVAILABLE, 100, UNAVAILABLE, UNAVAILABLE):
            simulated.reconcile(value)
        assert simulated.replicas == 4
        simulated.reconcile(UNAVAILABLE)
        assert simulated.replicas == 6

    def test_maximum_and_rate_limits_apply(self) -> None:
        simulated = self.simulated(replicas=4, after=1, maximum=5)
        simulated.reconcile(UNAVAILABLE)
        assert simulated.replicas == 5
        slow = behavior(up=rules(some_pods(1, 60), window=0))
        simulated = SimulatedCluster(
            hpa(pods_metric(100), behavior=slow),
            replicas=4,
            config=Config(fallback=Fallback(replicas=9, failure_threshold=1)),
        )
        simulated.reconcile(UNAVAILABLE)
        assert simulated.replicas == 5

    @pytest.mark.parametrize(("value", "replicas", "applies"), [(800, 8, False), (600, 6, False), (100, 6, True)])
    def test_valid_metric_wins_unless_its_proposal_is_lower(self, value: int, replicas: int, applies: bool) -> None:
        config = Config(fallback=Fallback(replicas=6, failure_threshold=1))
        simulated = SimulatedCluster(hpa(pods_metric(100), external_metric(100)), replicas=4, config=config)
        simulated.reconcile(UNAVAILABLE, value)
        assert simulated.replicas == replicas
        assert simulated.decision is not None
        assert (simulated.decision.fallback is not None) is applies

    def test_reason_is_not_the_fallback_if_an_earlier_recommendation_raises_the_replicas(self) -> None:
        config = Config(fallback=Fallback(replicas=4, failure_threshold=1))
        simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4, config=config)
        simulated.reconcile(150)
        simulated.scale_by_hand(4)
        outcome = simulated.reconcile(UNAVAILABLE)
        assert (outcome.fallback is not None, outcome.scale_to, outcome.rescale_reason) == (True, 6, "")

    def test_pause_blocks_it(self) -> None:
        config = Config(fallback=Fallback(replicas=6, failure_threshold=1), paused=Pause.ALL)
        simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4, config=config)
        simulated.reconcile(UNAVAILABLE)
        assert simulated.replicas == 4

    def test_ends_when_metrics_can_be_read_again(self) -> None:
        simulated = self.simulated(replicas=4, after=1)
        simulated.reconcile(UNAVAILABLE)
        simulated.reconcile(50)
        assert simulated.replicas == 3
        assert simulated.reasons()["ScalingActive"] == "ValidMetricFound"
