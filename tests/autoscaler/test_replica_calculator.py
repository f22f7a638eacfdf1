"""The arithmetic of one metric: the examples of Kubernetes' documentation, and properties for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.observation import MetricError, Pod, PodSample, ReadError
from autoscaler.core.pods import PodGroups
from autoscaler.core.replica_calculator import Proposal, ReplicaCalculator, Tolerances
from tests.autoscaler.simulated_cluster import NOW, pod, pods, sample, samples

TEN_PERCENT = Tolerances(scale_down=0.1, scale_up=0.1)
MAX_INT32 = 2**31 - 1


def calculator(
    listed: tuple[Pod, ...] | ReadError = (),
    *,
    replicas: int | None = None,
    status_replicas: int = 0,
    tolerances: Tolerances = TEN_PERCENT,
) -> ReplicaCalculator:
    """Without `replicas`, there are as many as pods."""
    count = 0 if isinstance(listed, ReadError) else len(listed)
    return ReplicaCalculator(
        pods=listed,
        spec_replicas=count if replicas is None else replicas,
        status_replicas=status_replicas,
        tolerances=tolerances,
        now_ms=NOW,
        cpu_initialization_period_ms=300_000,
        initial_readiness_delay_ms=30_000,
    )


def average(
    values: dict[str, PodSample], listed: tuple[Pod, ...], *, target: int, replicas: int | None = None
) -> Proposal:
    return calculator(listed, replicas=replicas).get_metric_replicas(values, metric_name="packets", target_usage=target)


def cpu_utilization(values: dict[str, PodSample], listed: tuple[Pod, ...], *, target: int) -> Proposal:
    return calculator(listed).get_resource_replicas(values, resource="cpu", container=None, target_utilization=target)


# --- the documentation's examples ----------------------------------------------------------------------------------


def test_twice_the_target_doubles_the_replicas() -> None:
    assert average(samples(200, 200), pods(2), target=100).replicas == 4


def test_half_the_target_halves_the_replicas() -> None:
    assert average(samples(50, 50, 50, 50), pods(4), target=100).replicas == 2


def test_50_and_100_against_60_is_a_ratio_of_1_25_and_3_replicas() -> None:
    proposal = average(samples(50, 100), pods(2), target=60)
    assert (proposal.ratio, proposal.usage, proposal.replicas) == (1.25, 75, 3)


def test_a_missing_pod_counts_as_the_target_when_scaling_down() -> None:
    proposal = average(samples(2), pods(2), target=60)
    assert proposal.rebalanced_ratio == 31 / 60
    assert proposal.replicas == 2
    assert proposal.pods == PodGroups(ready=("web-0",), missing=("web-1",))


def test_a_missing_pod_counts_as_idle_when_scaling_up() -> None:
    proposal = average(samples(180), pods(3), target=60)
    assert (proposal.rebalanced_ratio, proposal.replicas) == (1.0, 3)


def test_assumed_values_never_turn_the_direction() -> None:
    assert average(samples(70), pods(3), target=60).replicas == 3


def test_assumed_values_never_move_the_count_against_the_ratio() -> None:
    """The count is that of the pods that are there, which may be far from the desired count."""
    up = average(samples(300, 300), pods(3), target=100, replicas=10)
    assert (up.rebalanced_ratio, up.replicas) == (2.0, 10)
    down = average(samples(10), pods(3), target=100, replicas=1)
    assert (down.rebalanced_ratio, down.replicas) == (0.7, 1)


def test_proposal_has_the_counted_pods_and_whether_it_was_overruled() -> None:
    for proposal, counted, overruled in (
        (average(samples(150, 150, 150), pods(3), target=100), 3, False),
        (average(samples(300), pods(2), target=100), 2, False),  # rebalanced, over both
        (average(samples(70), pods(3), target=60), 3, True),
        (average(samples(100), pods(1), target=100), None, False),
    ):
        assert (proposal.counted, proposal.overruled) == (counted, overruled)


def test_exactly_at_the_target_nothing_is_assumed() -> None:
    assert cpu_utilization(samples(500), pods(2), target=50).rebalanced_ratio == 1.0
    assert average(samples(100), (pod("web-0"), pod("web-1", phase="Pending")), target=100).rebalanced_ratio is None


def test_count_beyond_32_bits_on_assumed_values_changes_nothing() -> None:
    assert average(samples(2**60), pods(2), target=1).replicas == 2


# --- tolerance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("usage", "replicas"), [(89, 9), (90, 10), (110, 10), (111, 12)])
def test_within_ten_percent_nothing_changes_bounds_included(usage: int, replicas: int) -> None:
    assert average(samples(*[usage] * 10), pods(10), target=100).replicas == replicas


def test_the_tolerance_is_a_sum_of_doubles() -> None:
    tolerance = Tolerances(scale_down=0.1, scale_up=0.018000000000000002)
    assert tolerance.is_within(1018 / 1000)
    assert not Tolerances(scale_down=0.1, scale_up=0.2).is_within(1.2000000000000002)


# --- which pods count ----------------------------------------------------------------------------------------------


def test_deleted_and_failed_pods_are_ignored_and_succeeded_ones_are_not() -> None:
    listed = (
        pod("web-0"),
        replace(pod("web-1"), deleted=True),
        pod("web-2", phase="Failed"),
        pod("web-3", phase="Succeeded"),
    )
    groups = average(samples(10, 10, 10, 10), listed, target=10).pods
    assert groups == PodGroups(ready=("web-0", "web-3"), ignored=("web-1", "web-2"))


def test_pending_pods_count_as_idle_but_only_when_scaling_up() -> None:
    listed = (pod("web-0"), pod("web-1", phase="Pending"))
    assert average(samples(300), listed, target=100).rebalanced_ratio == 1.5
    assert average(samples(50), listed, target=100).rebalanced_ratio is None


def test_a_pod_that_is_not_ready_still_counts_for_custom_metrics() -> None:
    assert average(samples(200), (pod("web-0", ready="False"),), target=100).replicas == 2


def test_cpu_of_a_never_ready_pod_is_ignored() -> None:
    starting = pod("web-1", ready="False")
    assert cpu_utilization(samples(500, 9000), (pod("web-0"), starting), target=50).pods == PodGroups(
        ready=("web-0",), unready=("web-1",)
    )


def test_cpu_of_a_young_pod_counts_after_one_whole_window_of_being_ready() -> None:
    listed = pod("web-0")
    assert listed.ready is not None
    young = replace(listed, start_ms=NOW - 100_000, ready=replace(listed.ready, last_transition_ms=NOW - 60_000))
    assert cpu_utilization({"web-0": sample(500)}, (young,), target=50).replicas == 1
    with pytest.raises(MetricError, match="pods might be unready"):
        cpu_utilization({"web-0": sample(500, timestamp_ms=NOW - 1)}, (young,), target=50)


# --- utilization ---------------------------------------------------------------------------------------------------


def test_utilization_is_truncated_to_whole_percents_before_it_is_compared() -> None:
    proposal = cpu_utilization(samples(559, 559), pods(2), target=50)
    assert (proposal.utilization, proposal.within_tolerance) == (55, True)


def test_a_pod_without_a_request_fails_the_whole_metric_even_if_it_is_deleted() -> None:
    listed = (pod("web-0"), replace(pod("web-1", cpu=None), deleted=True))
    with pytest.raises(MetricError, match="missing request for cpu in container app of Pod web-1"):
        cpu_utilization(samples(500, 500), listed, target=50)


def test_values_of_unknown_pods_alone_are_an_error() -> None:
    with pytest.raises(MetricError, match="no metrics returned matched known pods"):
        cpu_utilization({"ghost": sample(500)}, pods(1), target=50)


# --- metrics of the whole ------------------------------------------------------------------------------------------


def test_value_target_multiplies_the_ready_pods() -> None:
    listed = (pod("web-0"), pod("web-1"), pod("web-2", ready="False"), pod("web-3", phase="Pending"))
    proposal = calculator(listed).get_object_metric_replicas(200, metric="m", target_usage=100)
    assert (proposal.replicas, proposal.usage) == (4, 200)


def test_value_target_from_zero_proposes_the_ratio_without_tolerance() -> None:
    proposal = calculator().get_external_metric_replicas([350, 60], metric="m", target_usage=400)
    assert proposal.replicas == 2


def test_average_target_uses_status_replicas_and_no_pods() -> None:
    proposal = calculator(status_replicas=4).get_external_per_pod_metric_replicas([900], metric="m", target_usage=100)
    assert (proposal.replicas, proposal.usage) == (9, 225)


def test_average_target_within_tolerance_keeps_the_count() -> None:
    proposal = calculator(status_replicas=4).get_object_per_pod_metric_replicas(410, metric="m", target_usage=100)
    assert (proposal.replicas, proposal.usage, proposal.within_tolerance) == (4, 103, True)


def test_average_over_no_replicas_is_none() -> None:
    proposal = calculator(status_replicas=0).get_external_per_pod_metric_replicas([900], metric="m", target_usage=100)
    assert (proposal.replicas, proposal.usage) == (9, None)


# --- failures ------------------------------------------------------------------------------------------------------


def test_errors_have_kubernetes_words() -> None:
    broken = MetricError("boom")
    with pytest.raises(MetricError, match=r"^unable to get metrics for resource memory: boom$"):
        calculator(pods(1)).get_raw_resource_replicas(broken, resource="memory", target_usage=1)
    with pytest.raises(MetricError, match=r"^unable to get external metric default/q/nil: boom$"):
        calculator().get_external_per_pod_metric_replicas(broken, metric="default/q/nil", target_usage=1)
    with pytest.raises(MetricError, match=r"^no pods returned by selector while calculating replica count$"):
        average(samples(1), (), target=1)
    with pytest.raises(MetricError, match=r"^unable to calculate ready pods: unable to get pods .*: no cache$"):
        calculator(ReadError("no cache"), replicas=1).get_object_metric_replicas(5, metric="m", target_usage=1)


# --- for any numbers -----------------------------------------------------------------------------------------------

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
