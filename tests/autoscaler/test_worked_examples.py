"""Examples of Kubernetes' documentation as whole reconciliations: from metric values to numbers of replicas.

Those about a single formula are beside it (`test_replicas`, `test_normalize`); these are about what users meet.
"""

from itertools import pairwise

import msgspec
import pytest
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.observation import PodsResponse
from tests.autoscaler.simulated_cluster import (
    SimulatedCluster,
    behavior,
    external_metric,
    hpa,
    object_metric,
    percent,
    pod,
    pods_metric,
    rules,
    sample,
    samples,
    some_pods,
)

AT_ONCE = Config(downscale_stabilization_ms=0)


@pytest.mark.parametrize(("value", "replicas"), [(200, 8), (100, 4), (50, 2)])
def test_200m_against_100m_doubles_and_50m_halves(value: int, replicas: int) -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4, config=AT_ONCE)
    simulated.reconcile(100)
    simulated.reconcile(value)
    assert simulated.replicas == replicas


def test_two_pods_at_50_and_100_against_60_are_a_ratio_of_1_25_and_3_replicas() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(60)), replicas=2)
    simulated.reconcile(PodsResponse(samples(50, 100)))
    assert simulated.replicas == 3


def test_one_pod_at_2_and_the_other_missing_against_60_stay_two() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(60)), replicas=2, config=AT_ONCE)
    simulated.reconcile(PodsResponse(samples(2)))
    assert simulated.replicas == 2, "62/120 of the target is half, but of the missing pod the target is assumed"
    simulated.reconcile(PodsResponse(samples(2, 2)))
    assert simulated.replicas == 1


def test_policies_of_4_pods_and_10_percent_a_minute_take_80_replicas_down_by_8_at_first_and_by_4_below_40() -> None:
    down = rules(some_pods(4, 60), percent(10, 60), window=0)
    simulated = SimulatedCluster(hpa(pods_metric(100), maximum=100, behavior=behavior(down=down)), replicas=80)
    counts = [80]
    while simulated.replicas > 10:
        simulated.reconcile(1000 // simulated.replicas, seconds=61)
        counts.append(simulated.replicas)
    changes = [before - after for before, after in pairwise(counts)]
    assert changes == [8, 8, 7, 6, 6, 5, 4, 4, 4, 4, 4, 4, 4, 2]


def test_select_policy_min_and_disabled() -> None:
    down = rules(some_pods(4, 60), percent(10, 60), window=0)
    for select, replicas in (("Min", 76), ("Disabled", 80)):
        chosen = msgspec.structs.replace(down, select_policy=select)
        simulated = SimulatedCluster(hpa(pods_metric(100), maximum=100, behavior=behavior(down=chosen)), replicas=80)
        simulated.reconcile(1)
        assert simulated.replicas == replicas


def test_several_metrics_and_the_largest_proposal_wins() -> None:
    simulated = SimulatedCluster(
        hpa(pods_metric(100), object_metric(2000), external_metric(1000), maximum=20), replicas=2
    )
    simulated.reconcile(150, 5000, 4000)  # which ask for 3, for 5 and for 4
    assert simulated.replicas == 4, "no faster than from 2 to 4 at once"
    simulated.reconcile(100, 2500, 4000)  # 4, 5 and 4
    assert simulated.replicas == 5


def test_target_scaled_to_0_by_hand_stays_at_0_until_scaled_up_by_hand() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=3, config=AT_ONCE)
    simulated.reconcile(100)
    simulated.scale_by_hand(0)
    simulated.reconcile()
    assert simulated.replicas == 0
    assert simulated.reasons()["ScalingActive"] == "-ScalingDisabled"
    simulated.scale_by_hand(1)
    simulated.reconcile(200)
    assert simulated.replicas == 2
    assert simulated.reasons()["ScalingActive"] == "ValidMetricFound"


def test_rolling_update_counts_old_and_new_pods_but_no_deleted_ones() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), maximum=20), replicas=4, config=AT_ONCE)
    leaving = replace(pod("old-3"), deleted=True)
    starting = pod("new-1", phase="Pending", ready="False")
    simulated.pods = (pod("old-0"), pod("old-1"), pod("old-2"), leaving, pod("new-0"), starting)
    busy = {name: sample(100) for name in ("old-0", "old-1", "old-2", "old-3", "new-0")}
    simulated.reconcile(PodsResponse(busy))
    assert simulated.replicas == 4, "at the target, whatever the number of pods is for the moment"
    simulated.pods = (pod("old-0"), pod("old-1"), pod("old-2"), leaving, pod("new-0"), starting)
    simulated.reconcile(PodsResponse({name: sample(200) for name in busy}))
    assert simulated.replicas == 8, "4 pods at 200 and a starting one at 0 are 1.6 times the target; 1.6 x 5 = 8"
