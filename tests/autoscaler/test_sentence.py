"""The sentence about a decision: one for each way in which a decision can come about."""

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import History
from autoscaler.core.model import (
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    LabelSelectorSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ScalingRules,
)
from autoscaler.core.observation import Observation, PodsResponse, ReadError, Scale, ValuesResponse
from autoscaler.records.build import build_record
from autoscaler.records.sentence import decimal_text, with_sentence
from kube.values.selectors import LabelSelector
from tests.autoscaler.simulated_cluster import (
    NOW,
    SimulatedCluster,
    average_target,
    behavior,
    external_metric,
    hpa,
    object_metric,
    percent,
    pod,
    pods,
    pods_metric,
    rules,
    samples,
    some_pods,
    with_spec,
)


def sentence(
    simulated: SimulatedCluster, *values: int | str | PodsResponse | ValuesResponse, scale_error: str | None = None
) -> str:
    """Return the sentence about the next reconciliation."""
    return sentence_of(simulated.reconcile(*values, scale_error=scale_error))


def sentence_of(decision: Decision) -> str:
    text = with_sentence(build_record(decision)).sentence
    assert with_sentence(build_record(decision, with_values=False)).sentence == text
    return text


# --- metrics of pods -----------------------------------------------------------------------------------------------


def test_metric_outside_tolerance_proposes_replicas() -> None:
    assert sentence(SimulatedCluster(hpa(pods_metric(100_000, "packets_per_second")), replicas=3), 150_000) == (
        "3 -> 5: packets_per_second is 150 against a target of 100 per pod (ratio 1.5, outside tolerance 0.1) "
        "on 3 ready pods, so it proposes 5"
    )


def test_metric_within_tolerance_changes_nothing() -> None:
    assert sentence(SimulatedCluster(hpa(), replicas=3), 105) == (
        "stays at 3: packets is 105m against a target of 100m per pod (ratio 1.05, within tolerance 0.1) on 3 ready "
        "pods"
    )


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("150", "150"),
        ("62827m", "62.827"),
        ("5500m", "5.5"),
        ("1001m", "1.001"),
        ("500m", "500m"),
        ("-1500m", "-1.5"),
        ("-500m", "-500m"),
        ("50Mi", "50Mi"),
        ("0", "0"),
    ],
)
def test_quantities_above_1_are_decimal(quantity: str, text: str) -> None:
    assert decimal_text(quantity) == text


def test_ratio_near_the_tolerance_has_more_digits() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(1_000_000)), replicas=2)
    assert "(ratio 1.100001, outside tolerance 0.1)" in sentence(simulated, 1_100_001)


def test_missing_and_unready_pods_above_target_count_as_0() -> None:
    simulated = SimulatedCluster(hpa(), replicas=4)
    simulated.pods = (*pods(3), pod("web-3", phase="Pending"))
    assert sentence(simulated, PodsResponse(samples(300, 300))) == (
        "4 -> 6: packets is 300m against a target of 100m per pod (ratio 3, 1.5 with 1 missing and 1 unready pods "
        "assumed at 0, outside tolerance 0.1) on 4 pods (2 ready, 1 unready, 1 missing), so it proposes 6"
    )


def test_missing_pods_below_target_count_as_the_target() -> None:
    assert sentence(SimulatedCluster(hpa(), replicas=2), PodsResponse(samples(2))) == (
        "stays at 2: packets is 2m against a target of 100m per pod (ratio 0.02, 0.51 with 1 missing pod assumed at "
        "the target, outside tolerance 0.1) on 2 pods (1 ready, 1 missing), so it proposes 2"
    )


def test_unready_pods_below_target_do_not_count() -> None:
    simulated = SimulatedCluster(hpa(), replicas=4)
    simulated.pods = (*pods(3), pod("web-3", phase="Pending"))
    assert "with 1 missing pod assumed at the target" in sentence(simulated, PodsResponse(samples(50, 50)))


def test_assumed_values_do_not_reverse_the_direction() -> None:
    assert sentence(SimulatedCluster(hpa(), replicas=3), PodsResponse(samples(200))).endswith(
        "on 3 pods (1 ready, 2 missing), but it proposes no change from 3: assumed values must not reverse "
        "the direction"
    )


# --- metrics of the whole ------------------------------------------------------------------------------------------


def test_object_metric_names_its_object() -> None:
    assert sentence(SimulatedCluster(hpa(object_metric(100)), replicas=2), 200) == (
        "2 -> 4: requests of Service front is 200m against a target of 100m (ratio 2, outside tolerance 0.1) "
        "on 2 ready pods, so it proposes 4"
    )


def test_external_metric_shows_total_and_average_per_replica() -> None:
    length = MetricIdentifier("length", LabelSelectorSpec({"queue": "mail"}))
    spec = MetricSpec.of(ExternalMetric(length, average_target(100)))
    assert sentence(SimulatedCluster(hpa(spec), replicas=2), 350) == (
        "2 -> 4: length{queue=mail} is 350m, 175m per replica, against a target of 100m per replica (ratio 1.75, "
        "outside tolerance 0.1), so it proposes 4"
    )


def test_failed_metric_is_named_after_the_winner() -> None:
    assert sentence(SimulatedCluster(hpa(pods_metric(100), external_metric(100)), replicas=2), "gone", 350) == (
        "2 -> 4: queue is 350m, 175m per replica, against a target of 100m per replica (ratio 1.75, outside tolerance "
        "0.1), so it proposes 4; packets failed (unable to get metric packets: unable to fetch metrics from "
        "custom metrics API: gone)"
    )


def test_highest_of_several_metrics_wins() -> None:
    simulated = SimulatedCluster(hpa(*(pods_metric(100, f"m{index}") for index in range(6))), replicas=2)
    assert sentence(simulated, 100, 200, 50, 50, 50, 50).endswith(
        "so it proposes 4, the highest of 6 metrics (m0 proposes 2, m2 proposes 1, m3 proposes 1, 2 more)"
    )


def test_container_metric_names_its_container() -> None:
    target = MetricTarget("Utilization", average_utilization=60)
    spec = MetricSpec.of(ContainerResourceMetric("cpu", target, "app"))
    simulated = SimulatedCluster(hpa(spec), replicas=2)
    assert sentence(simulated, "no metrics").startswith("stays at 2: cpu of container app failed (failed to get cpu")


# --- limits ---------------------------------------------------------------------------------------


def test_stabilization_window_names_the_earlier_recommendation() -> None:
    simulated = SimulatedCluster(hpa(), replicas=4)
    sentence(simulated, 100)
    assert sentence(simulated, 25).endswith(
        "so it proposes 1; kept at 4 by the stabilization window of 300s: 4 was recommended at 01:46:55"
    )


@pytest.mark.parametrize(
    ("policies", "end"),
    [
        (rules(some_pods(4, 60), window=0), "limited to 7 by the scale-up policy of 4 pods per 60s, counted from 3"),
        (rules(percent(50, 15), window=0), "limited to 5 by the scale-up policy of 50% per 15s, counted from 3"),
        (rules(some_pods(1, 60), select="Disabled", window=0), "limited to 3 because scaling up is disabled"),
    ],
)
def test_scale_up_limit_names_its_policy(policies: ScalingRules, end: str) -> None:
    assert sentence(SimulatedCluster(hpa(behavior=behavior(up=policies)), replicas=3), 900).endswith(
        f"so it proposes 27; {end}"
    )


def test_scale_down_limit_names_its_policy() -> None:
    policies = behavior(down=rules(some_pods(1, 60), window=0))
    assert sentence(SimulatedCluster(hpa(behavior=policies), replicas=9), 10).startswith("9 -> 8: ")
    assert sentence(SimulatedCluster(hpa(behavior=policies), replicas=9), 10).endswith(
        "limited to 8 by the scale-down policy of 1 pod per 60s, counted from 9"
    )


def test_without_behavior_replicas_at_most_double() -> None:
    assert sentence(SimulatedCluster(hpa(maximum=99), replicas=3), 900).endswith(
        "limited to 6 because without behavior a sync at most doubles the replicas, or goes to 4"
    )


def test_bounds_are_named() -> None:
    assert sentence(SimulatedCluster(hpa(maximum=5), replicas=3), 900).endswith(
        "so it proposes 27; limited to 5 by maxReplicas 5"
    )
    rule = behavior(down=rules(percent(100, 15), window=0))
    assert sentence(SimulatedCluster(hpa(minimum=2, behavior=rule), replicas=3), 1).endswith(
        "proposes 1; raised to 2 by minReplicas 2"
    )


# --- without metrics -----------------------------------------------------------------------------------------------


def test_replicas_outside_of_bounds_are_moved_into_them() -> None:
    rest = "; metrics are not evaluated until the replicas are within the bounds"
    assert sentence(SimulatedCluster(hpa(maximum=3), replicas=5)) == f"5 -> 3: 5 is above maxReplicas 3{rest}"
    assert sentence(SimulatedCluster(hpa(minimum=3), replicas=1)) == f"1 -> 3: 1 is below minReplicas 3{rest}"


def test_target_scaled_to_0_disables_autoscaling() -> None:
    assert sentence(SimulatedCluster(hpa(), replicas=0)) == (
        "stays at 0: the target is scaled to 0, which disables autoscaling until it is scaled up"
    )


def test_single_failed_metric_changes_nothing() -> None:
    assert sentence(SimulatedCluster(hpa(), replicas=3), "gone") == (
        "stays at 3: packets failed (unable to get metric packets: unable to fetch metrics from custom metrics "
        "API: gone)"
    )


def test_failed_metric_blocks_scale_down() -> None:
    assert sentence(SimulatedCluster(hpa(pods_metric(100), external_metric(100)), replicas=3), "gone", 100).endswith(
        "gone); the other metrics propose 1, and no target is scaled down while a metric fails"
    )


def test_unreadable_scale_gives_no_replica_count() -> None:
    observation = Observation(hpa=hpa(), scale=ReadError('deployments.apps "web" not found'))
    assert sentence_of(decide(observation, History(), NOW)) == ('no replica count: deployments.apps "web" not found')


def test_invalid_target_gives_no_replica_count() -> None:
    strange = hpa()
    reference = CrossVersionObjectReference("Deployment", "web", "a/b/c")
    strange = with_spec(strange, scale_target_ref=reference)
    assert sentence_of(decide(Observation(hpa=strange), History(), NOW)) == (
        "no replica count: unexpected GroupVersion string: a/b/c"
    )


def test_ambiguous_selector_names_the_hpas() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2, others={"default/other": LabelSelector.parse("app=web")})
    assert sentence(simulated) == (
        "stays at 2: pods by selector app=web are controlled by multiple HPAs: [default/other default/web]"
    )


def test_missing_selector_is_named() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2)
    simulated.scale = Scale(spec_replicas=2, status_replicas=2, selector="")
    assert sentence(simulated) == "stays at 2: selector is required"


# --- writing -------------------------------------------------------------------------------------------------------


def test_write_errors_are_named() -> None:
    assert sentence(SimulatedCluster(hpa(), replicas=3), 150, scale_error="quota exceeded").endswith(
        "; the scale could not be updated: quota exceeded"
    )
    conflicting = SimulatedCluster(hpa(), replicas=3).reconcile(150, status_error="conflict")
    assert sentence_of(conflicting).endswith("; the status could not be updated: conflict")
