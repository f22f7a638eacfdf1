"""The reason that each reconciliation is counted by."""

import pytest

from autoscaler.core.config import Config, Fallback, Pause
from autoscaler.core.model import Behavior
from autoscaler.core.observation import ReadError
from tests.autoscaler.simulated_cluster import SimulatedCluster, behavior, hpa, pods_metric, rules, some_pods

AWAY = "prometheus is away"


def counted(simulated: SimulatedCluster, value: int | str) -> str:
    simulated.reconcile(value)
    assert simulated.decision is not None
    return simulated.decision.reason


@pytest.mark.parametrize(
    ("replicas", "value", "rules", "reason"),
    [
        (2, 200, None, "ValidMetricFound"),
        (2, 100, None, "ValidMetricFound"),
        (2, 50, None, "ScaleDownStabilized"),
        (8, 200, None, "TooManyReplicas"),
        (2, 900, None, "ScaleUpLimit"),
        (2, 200, behavior(up=rules(some_pods(1, 60), window=0)), "ScaleUpLimit"),
        (2, 200, behavior(up=rules(some_pods(9, 60), window=60)), "ScaleUpStabilized"),
        (4, 25, behavior(down=rules(some_pods(1, 60), window=0)), "ScaleDownLimit"),
        (12, 100, None, "TooManyReplicas"),
        (1, 100, None, "TooFewReplicas"),
        (2, AWAY, None, "FailedGetPodsMetric"),
    ],
)
def test_reason_is_that_of_the_deciding_condition(
    replicas: int, value: int | str, rules: Behavior | None, reason: str
) -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), minimum=2, maximum=10, behavior=rules), replicas=replicas)
    assert counted(simulated, value) == reason


def test_reason_of_a_target_at_zero() -> None:
    assert counted(SimulatedCluster(hpa(), replicas=0), 100) == "ScalingDisabled"


@pytest.mark.parametrize("problem", [ReadError("not found"), ReadError("no such kind", unknown_kind=True)])
def test_reason_of_an_unreadable_scale(problem: ReadError) -> None:
    simulated = SimulatedCluster(hpa(), replicas=1)
    simulated.scale = problem
    assert counted(simulated, 100) == "FailedGetScale"


def test_reasons_of_pause_stale_watch_and_fallback() -> None:
    paused = SimulatedCluster(hpa(), replicas=2, config=Config(paused=Pause.ALL))
    assert counted(paused, 100) == "ValidMetricFound"
    assert counted(paused, 200) == "Paused"
    stale = SimulatedCluster(hpa(), replicas=2)
    stale.stale = ("pods",)
    assert counted(stale, 50) == "StaleWatch"
    fallback = Config(fallback=Fallback(replicas=3, failure_threshold=1))
    assert counted(SimulatedCluster(hpa(), replicas=2, config=fallback), AWAY) == "Fallback"
