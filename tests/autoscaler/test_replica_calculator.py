"""The arithmetic of one metric: what explains a proposal, and properties for any numbers.

The proposals are those of the recorded cases in tests/conformance (`replica_calculator`).
"""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.observation import Pod, PodSample
from autoscaler.core.pods import PodGroups
from autoscaler.core.replica_calculator import Proposal, ReplicaCalculator, Tolerances
from tests.autoscaler.simulated_cluster import NOW, pod, pods, samples

MAX_INT32 = 2**31 - 1


def calculator(listed: tuple[Pod, ...] = (), *, status_replicas: int = 0) -> ReplicaCalculator:
    return ReplicaCalculator(
        pods=listed,
        spec_replicas=len(listed),
        status_replicas=status_replicas,
        tolerances=Tolerances(scale_down=0.1, scale_up=0.1),
        now_ms=NOW,
        cpu_initialization_period_ms=300_000,
        initial_readiness_delay_ms=30_000,
    )


def average(values: dict[str, PodSample], listed: tuple[Pod, ...], *, target: int) -> Proposal:
    return calculator(listed).get_metric_replicas(values, metric_name="packets", target_usage=target)


def cpu_utilization(values: dict[str, PodSample], listed: tuple[Pod, ...], *, target: int) -> Proposal:
    return calculator(listed).get_resource_replicas(values, resource="cpu", container=None, target_utilization=target)


def test_a_missing_pod_counts_as_the_target_when_scaling_down() -> None:
    proposal = average(samples(2), pods(2), target=60)
    assert proposal.rebalanced_ratio == 31 / 60
    assert proposal.replicas == 2
    assert proposal.pods == PodGroups(ready=("web-0",), missing=("web-1",))


def test_proposal_has_the_counted_pods_and_whether_it_was_overruled() -> None:
    for proposal, counted, overruled in (
        (average(samples(150, 150, 150), pods(3), target=100), 3, False),
        (average(samples(300), pods(2), target=100), 2, False),  # rebalanced, over both
        (average(samples(70), pods(3), target=60), 3, True),
        (average(samples(300), (*pods(2), replace(pod("web-2"), deleted=True)), target=100), 2, False),  # 3 are 3
        (average(samples(5), pods(2), target=0), 2, True),  # infinitely many
        (average(samples(0, 0), pods(2), target=0), 2, True),  # not a number
        (average(samples(100), pods(1), target=100), None, False),
    ):
        assert (proposal.counted, proposal.overruled) == (counted, overruled)


def test_proposal_has_the_sums_behind_it() -> None:
    of_pods = cpu_utilization(samples(300, 300), pods(2), target=50)
    assert (of_pods.pods_total, of_pods.pods_requests, of_pods.total) == (600, 2000, None)
    of_all = calculator(pods(2)).get_external_metric_replicas([100, 200], metric="m", target_usage=100)
    assert (of_all.pods_total, of_all.pods_requests, of_all.total) == (None, None, 300)


def test_a_value_above_a_target_of_0_is_infinitely_above_it_and_0_is_no_number() -> None:
    for listed, usage, replicas, overruled in (
        (pods(2), 5, MAX_INT32, False),
        (pods(2), -5, -MAX_INT32 - 1, False),
        (pods(2), 0, 2, True),
        ((), 0, 0, False),
    ):
        proposal = calculator(listed).get_external_metric_replicas([usage], metric="m", target_usage=0)
        assert (proposal.replicas, proposal.overruled) == (replicas, overruled)


def test_deleted_and_failed_pods_are_ignored_and_succeeded_ones_are_not() -> None:
    listed = (
        pod("web-0"),
        replace(pod("web-1"), deleted=True),
        pod("web-2", phase="Failed"),
        pod("web-3", phase="Succeeded"),
    )
    groups = average(samples(10, 10, 10, 10), listed, target=10).pods
    assert groups == PodGroups(ready=("web-0", "web-3"), ignored=("web-1", "web-2"))


def test_cpu_of_a_never_ready_pod_is_ignored() -> None:
    starting = pod("web-1", ready="False")
    assert cpu_utilization(samples(500, 9000), (pod("web-0"), starting), target=50).pods == PodGroups(
        ready=("web-0",), unready=("web-1",)
    )


values = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(values, min_size=1, max_size=5), values, st.integers(1, 9))
def test_proposals_stay_within_32_bits(usages: list[int], target: int, count: int) -> None:
    listed = pods(count)
    every = {
        average(samples(*usages), listed, target=target).replicas,
        calculator(status_replicas=count)
        .get_external_per_pod_metric_replicas(usages, metric="m", target_usage=target)
        .replicas,
        calculator(listed).get_external_metric_replicas(usages, metric="m", target_usage=target).replicas,
    }
    assert all(-MAX_INT32 - 1 <= replicas <= MAX_INT32 for replicas in every)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.integers(0, 8), st.integers(1, 5000))
def test_missing_pods_never_make_a_change_larger(usages: list[int], absent: int, target: int) -> None:
    """Compared with taking the known pods' average for all of them."""
    count = len(usages) + absent
    replicas = average(samples(*usages), pods(count), target=target).replicas
    ratio = (sum(usages) // len(usages)) / target
    unguarded = ratio * count
    if ratio > 1:
        assert replicas <= max(count, unguarded + 1)
    else:
        assert replicas >= min(count, unguarded)
