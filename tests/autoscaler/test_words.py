"""Decisions in plain words: one sentence for each way in which a step can go."""

from dataclasses import replace

import pytest

from autoscaler.core.history import History
from autoscaler.core.model import (
    CrossVersionObjectReference,
    ExternalMetric,
    MetricIdentifier,
    MetricSelector,
    MetricSpec,
    MetricTarget,
    ResourceMetric,
    ScalingRules,
)
from autoscaler.core.observation import Observation, PodsResponse, Scale, ScaleError, ValuesResponse
from autoscaler.core.reconcile import conclude, decide
from autoscaler.records.recording import record_of
from autoscaler.records.words import quantity_text
from kube.selectors import LabelSelector
from tests.autoscaler.worlds import (
    NOW,
    World,
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
)


def said(world: World, *values: int | str | PodsResponse | ValuesResponse, scale_error: str | None = None) -> str:
    """The sentence about a world's next step."""
    outcome = world.step(*values, scale_error=scale_error)
    assert world.decision is not None
    return record_of(world.decision, outcome, scale_error=scale_error).sentence


# --- metrics of pods -----------------------------------------------------------------------------------------------


def test_the_metric_decides() -> None:
    assert said(World(hpa(pods_metric(100_000, "packets_per_second")), replicas=3), 150_000) == (
        "3 -> 5: packets_per_second is 150 against a target of 100 per pod (ratio 1.5, outside tolerance 0.1) "
        "on 3 ready pods, so it asks for 5"
    )


def test_within_tolerance() -> None:
    assert said(World(hpa(), replicas=3), 105) == (
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
def test_quantities(quantity: str, text: str) -> None:
    assert quantity_text(quantity) == text


def test_a_ratio_just_outside_has_the_digits_that_show_it() -> None:
    world = World(hpa(pods_metric(1_000_000)), replicas=2)
    assert "(ratio 1.100001, outside tolerance 0.1)" in said(world, 1_100_001)


def test_missing_and_unready_pods_above_target_count_as_idle() -> None:
    world = World(hpa(), replicas=4)
    world.pods = (*pods(3), pod("web-3", phase="Pending"))
    assert said(world, PodsResponse(samples(300, 300))) == (
        "4 -> 6: packets is 300m against a target of 100m per pod (ratio 3, 1.5 with 1 missing and 1 unready pods "
        "taken as idle, outside tolerance 0.1) on 4 pods (2 ready, 1 unready, 1 missing), so it asks for 6"
    )


def test_missing_pods_below_target_count_as_at_the_target() -> None:
    assert said(World(hpa(), replicas=2), PodsResponse(samples(2))) == (
        "stays at 2: packets is 2m against a target of 100m per pod (ratio 0.02, 0.51 with 1 missing pod taken to be "
        "at the target, outside tolerance 0.1) on 2 pods (1 ready, 1 missing), so it asks for 2"
    )


def test_unready_pods_below_target_are_left_out() -> None:
    world = World(hpa(), replicas=4)
    world.pods = (*pods(3), pod("web-3", phase="Pending"))
    assert "with 1 missing pod taken to be at the target" in said(world, PodsResponse(samples(50, 50)))


def test_an_assumption_that_would_turn_the_direction() -> None:
    assert said(World(hpa(), replicas=3), PodsResponse(samples(200))).endswith(
        "on 3 pods (1 ready, 2 missing), which asks for no change from 3, as assumptions must not turn a direction"
    )


# --- metrics of the whole ------------------------------------------------------------------------------------------


def test_an_object() -> None:
    assert said(World(hpa(object_metric(100)), replicas=2), 200) == (
        "2 -> 4: requests of Service front is 200m against a target of 100m (ratio 2, outside tolerance 0.1) "
        "on 2 ready pods, so it asks for 4"
    )


def test_an_average_over_the_replicas() -> None:
    selector = MetricSelector(match_labels=(("queue", "mail"),))
    spec = replace(external_metric(100), source=ExternalMetric(MetricIdentifier("length", selector)))
    assert said(World(hpa(spec), replicas=2), 350) == (
        "2 -> 4: length{queue=mail} is 350m, 175m per replica, against a target of 100m per replica (ratio 1.75, "
        "outside tolerance 0.1), so it asks for 4"
    )


def test_a_failed_metric_beside_one_that_decides() -> None:
    assert said(World(hpa(pods_metric(100), external_metric(100)), replicas=2), "gone", 350) == (
        "2 -> 4: queue is 350m, 175m per replica, against a target of 100m per replica (ratio 1.75, outside tolerance "
        "0.1), so it asks for 4; packets has no value (unable to get metric packets: unable to fetch metrics from "
        "custom metrics API: gone)"
    )


def test_the_most_of_several() -> None:
    world = World(hpa(*(pods_metric(100, f"m{index}") for index in range(6))), replicas=2)
    assert said(world, 100, 200, 50, 50, 50, 50).endswith(
        "so it asks for 4, the most of 6 metrics (m0 asks for 2, m2 asks for 1, m3 asks for 1, 2 more)"
    )


def test_a_container_and_its_requests() -> None:
    spec = MetricSpec(ResourceMetric("cpu", "app"), MetricTarget(type="Utilization", average_utilization=60))
    world = World(hpa(spec), replicas=2)
    assert said(world, "no metrics").startswith("stays at 2: cpu of container app has no value (failed to get cpu")


# --- what holds a count back ---------------------------------------------------------------------------------------


def test_stabilisation() -> None:
    world = World(hpa(), replicas=4)
    said(world, 100)
    assert said(world, 25).endswith(
        "so it asks for 1; held at 4 by stabilisation: 4 was recommended at 01:46:55, within the last 300s"
    )


@pytest.mark.parametrize(
    ("policies", "end"),
    [
        (rules(some_pods(4, 60), window=0), "held to 7 by the scale-up limit of 4 pods per 60s, counted from 3"),
        (rules(percent(50, 15), window=0), "held to 5 by the scale-up limit of 50% per 15s, counted from 3"),
        (rules(some_pods(1, 60), select="Disabled", window=0), "held to 3 because scaling up is disabled"),
    ],
)
def test_scale_up_limits(policies: ScalingRules, end: str) -> None:
    assert said(World(hpa(behavior=behavior(up=policies)), replicas=3), 900).endswith(f"so it asks for 27; {end}")


def test_a_scale_down_limit() -> None:
    policies = behavior(down=rules(some_pods(1, 60), window=0))
    assert said(World(hpa(behavior=policies), replicas=9), 10).startswith("9 -> 8: ")
    assert said(World(hpa(behavior=policies), replicas=9), 10).endswith(
        "held to 8 by the scale-down limit of 1 pod per 60s, counted from 9"
    )


def test_the_limit_without_behavior() -> None:
    assert said(World(hpa(maximum=99), replicas=3), 900).endswith(
        "held to 6 because one step at most doubles the count, or goes to 4"
    )


def test_bounds() -> None:
    assert said(World(hpa(maximum=5), replicas=3), 900).endswith("so it asks for 27; held to 5 by maxReplicas 5")
    rule = behavior(down=rules(percent(100, 15), window=0))
    assert said(World(hpa(minimum=2, behavior=rule), replicas=3), 1).endswith(
        "asks for 1; raised to 2 by minReplicas 2"
    )


# --- without metrics -----------------------------------------------------------------------------------------------


def test_a_count_out_of_bounds() -> None:
    rest = ", and until the count is within bounds the metrics do not matter"
    assert said(World(hpa(maximum=3), replicas=5)) == f"5 -> 3: 5 is above maxReplicas 3{rest}"
    assert said(World(hpa(minimum=3), replicas=1)) == f"1 -> 3: 1 is below minReplicas 3{rest}"


def test_a_target_that_somebody_scaled_to_0() -> None:
    assert said(World(hpa(), replicas=0)) == (
        "stays at 0: the target is scaled to 0, which switches autoscaling off until somebody scales it up"
    )


def test_no_metric_has_a_value() -> None:
    assert said(World(hpa(), replicas=3), "gone") == (
        "stays at 3: packets has no value (unable to get metric packets: unable to fetch metrics from custom metrics "
        "API: gone)"
    )


def test_a_missing_metric_forbids_to_scale_down() -> None:
    assert said(World(hpa(pods_metric(100), external_metric(100)), replicas=3), "gone", 100).endswith(
        "gone); the others ask for 1, and with a metric missing nothing is scaled down"
    )


def test_a_scale_that_cannot_be_read() -> None:
    observation = Observation(hpa=hpa(), scale=ScaleError('deployments.apps "web" not found'))
    assert record_of(decide(observation, History(), NOW)).sentence == (
        'nothing is decided: deployments.apps "web" not found'
    )


def test_a_target_of_no_known_kind() -> None:
    strange = hpa()
    reference = CrossVersionObjectReference("Deployment", "web", "a/b/c")
    strange = replace(strange, spec=replace(strange.spec, scale_target_ref=reference))
    assert record_of(decide(Observation(hpa=strange), History(), NOW)).sentence == (
        "nothing is decided: unexpected GroupVersion string: a/b/c"
    )


def test_pods_of_two_hpas() -> None:
    world = World(hpa(), replicas=2, others={"default/rival": LabelSelector.parse("app=web")})
    assert said(world) == (
        "stays at 2: pods by selector app=web are controlled by multiple HPAs: [default/rival default/web]"
    )


def test_an_unusable_selector() -> None:
    world = World(hpa(), replicas=2)
    world.scale = Scale(spec_replicas=2, status_replicas=2, selector="")
    assert said(world) == "stays at 2: selector is required"


# --- writing -------------------------------------------------------------------------------------------------------


def test_what_could_not_be_written() -> None:
    assert said(World(hpa(), replicas=3), 150, scale_error="quota exceeded").endswith(
        "; the scale could not be written: quota exceeded"
    )
    world = World(hpa(), replicas=3)
    outcome = world.step(150)
    assert world.decision is not None
    record = record_of(world.decision, conclude(world.decision), status_error="conflict")
    assert record.sentence.endswith("; the status could not be stored: conflict")
    assert outcome.error is None
