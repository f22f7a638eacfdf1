"""Whole reconciliations: the reads, the changes, and the HPA's status, events and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decision import Event
from autoscaler.core.history import History, Recommendation, ScaleEvent
from autoscaler.core.model import (
    ExternalMetric,
    LabelSelectorRequirement,
    LabelSelectorSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ResourceMetric,
)
from autoscaler.core.observation import (
    Observation,
    PodListError,
    PodsResponse,
    Scale,
    ScaleError,
    TargetError,
    ValuesResponse,
)
from autoscaler.core.reconcile import conclude, conclude_without_writing, decide
from kube.selectors import LabelSelector
from tests.autoscaler.worlds import (
    NOW,
    World,
    average_target,
    behavior,
    external_metric,
    hpa,
    object_metric,
    percent,
    pods_metric,
    quantity,
    rules,
    samples,
    with_spec,
)

AT_ONCE = behavior(down=rules(percent(100, 15), window=0))
"""No stabilisation, no rate limits to speak of."""


# --- the usual -----------------------------------------------------------------------------------------------------


def test_above_target_scales_up_with_a_reason() -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    outcome = world.step(150)
    assert world.replicas == 3
    assert outcome.error is None
    assert outcome.events == (
        Event("Normal", "SuccessfulRescale", "New size: 3; reason: pods metric packets above target"),
    )
    assert outcome.status is not None
    assert (outcome.status.current_replicas, outcome.status.desired_replicas) == (2, 3)
    assert outcome.status.last_scale_ms == world.now_ms
    assert outcome.status.current_metrics == (pods_metric(100).with_target(MetricTarget(average_value=quantity(150))),)
    assert world.reasons() == {
        "AbleToScale": "SucceededRescale",
        "ScalingActive": "ValidMetricFound",
        "ScalingLimited": "-DesiredWithinRange",
        "ScaledToZero": "-NotScaledToZero",
    }


def test_below_target_scales_down_after_the_stabilization_window() -> None:
    world = World(hpa(pods_metric(100)), replicas=4)
    counts = []
    for _ in range(22):
        world.step(50)
        counts.append(world.replicas)
    # The count at the first step is a recommendation, too; it still counts when it is exactly five minutes old.
    assert counts == [4] * 21 + [2]


def test_unchanged_status_is_not_written() -> None:
    world = World(hpa(pods_metric(100)), replicas=4)
    assert world.step(100).status is not None
    assert world.step(100).status is None
    assert world.step(101).status is not None


def test_observed_generation_is_dropped_where_the_api_counts_none() -> None:
    world = World(hpa(pods_metric(100)), replicas=4)
    world.step(100)
    written = replace(world.hpa, status=replace(world.hpa.status, observed_generation=7))
    world.hpa = written
    outcome = world.step(100)
    assert outcome.status is not None
    assert outcome.status.observed_generation is None
    gone = conclude(decide(Observation(hpa=written, scale=ScaleError("gone")), History(), world.now_ms))
    assert gone.status is not None
    assert gone.status.observed_generation == 7


def test_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    world = World(hpa(pods_metric(100), maximum=4), replicas=2)
    world.step(100)
    began = world.now_ms
    world.step(130)
    world.step(900)
    times = {each.type: each.last_transition_ms for each in world.hpa.status.conditions}
    assert times == {
        "AbleToScale": began,
        "ScalingActive": began,
        "ScalingLimited": world.now_ms,
        "ScaledToZero": world.now_ms - 15_000,
    }


def test_decision_holds_everything_that_explains_it() -> None:
    world = World(hpa(pods_metric(100), object_metric(50)), replicas=2)
    world.step(150, 400)
    decision = world.decision
    assert decision is not None
    assert decision.tolerance is not None
    assert decision.normalized is not None
    assert [each.proposal.replicas for each in decision.evaluations if each.proposal] == [3, 16]
    assert decision.winner == decision.evaluations[1]
    assert (decision.normalized.proposed_replicas, decision.normalized.desired_replicas) == (16, 4)
    assert decision.normalized.limit == "ScaleUpLimit"


# --- several metrics -----------------------------------------------------------------------------------------------


def test_highest_proposal_wins_and_the_first_of_equals() -> None:
    world = World(hpa(pods_metric(100, "a"), external_metric(100, "b"), pods_metric(50, "c")), replicas=2)
    outcome = world.step(150, 600, 150)
    assert world.decision is not None
    assert [each.proposal.replicas for each in world.decision.evaluations if each.proposal] == [3, 6, 6]
    assert outcome.events[0].message == "New size: 4; reason: external metric b(nil) above target"


def test_failed_metric_allows_scaling_up_with_an_error() -> None:
    world = World(hpa(pods_metric(100, "a"), pods_metric(100, "b")), replicas=2)
    outcome = world.step("unavailable", 150)
    assert world.replicas == 3
    assert outcome.error == (
        "invalid metrics (1 invalid out of 2), first error is: failed to get pods metric value: "
        "unable to get metric a: unable to fetch metrics from custom metrics API: unavailable"
    )
    assert [each.reason for each in outcome.events] == ["FailedGetPodsMetric", "SuccessfulRescale"]
    assert world.hpa.status.current_metrics[0] == MetricSpec()
    assert world.reasons()["ScalingActive"] == "ValidMetricFound"


def test_failed_metric_forbids_scaling_down() -> None:
    world = World(hpa(pods_metric(100, "a"), pods_metric(100, "b"), behavior=AT_ONCE), replicas=4)
    outcome = world.step("unavailable", 50)
    assert world.replicas == 4
    assert outcome.error is not None
    assert world.reasons()["ScalingActive"] == "-FailedGetPodsMetric"


def test_without_valid_metrics_nothing_is_scaled() -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    world.step(150)
    outcome = world.step("unavailable")
    assert world.hpa.status.desired_replicas == 3
    assert world.hpa.status.current_metrics == (MetricSpec(),)
    assert [each.reason for each in outcome.events] == ["FailedGetPodsMetric"]
    assert [each.reason for each in outcome.late_events] == ["FailedComputeMetricsReplicas"]
    assert outcome.error is not None
    assert outcome.error.startswith(
        "failed to compute desired number of replicas based on listed metrics for Deployment/default/web: "
        "invalid metrics (1 invalid out of 1), first error is: "
    )


def test_empty_response_is_a_failure() -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    outcome = world.step(PodsResponse({}))
    assert outcome.events[0].message == "unable to get metric packets: no metrics returned from custom metrics API"


def test_invalid_metric_sources_are_not_fetched() -> None:
    near = LabelSelectorSpec({}, [LabelSelectorRequirement("verb", "Near")])
    wrong = MetricSpec.of(ExternalMetric(MetricIdentifier("queue", near), average_target(1)))
    unknown = MetricSpec("Weather")
    no_target = (
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target was "
        "set"
    )
    targetless = MetricSpec.of(ResourceMetric("cpu", MetricTarget("Utilization")))
    world = World(hpa(wrong, unknown, targetless), replicas=2)
    outcome = world.step(1, 1, 1)
    assert "FetchMetrics" not in world.reads
    assert [(each.reason, each.message) for each in outcome.events] == [
        ("FailedGetExternalMetric", '"Near" is not a valid label selector operator'),
        ("InvalidMetricSourceType", 'unknown metric source type "Weather"'),
        (
            "FailedGetResourceMetric",
            no_target,
        ),
    ]


# --- before the metrics --------------------------------------------------------------------------------------------


def test_target_scaled_to_0_by_hand_disables_scaling() -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    world.step(150)
    world.scale_by_hand(0)
    outcome = world.step()
    assert world.reads == ["ReadScale"]
    assert (world.replicas, outcome.events, outcome.error) == (0, (), None)
    assert world.reasons()["ScalingActive"] == "-ScalingDisabled"
    assert world.hpa.status.current_metrics == ()


@pytest.mark.parametrize(
    ("replicas", "wanted", "reason"),
    [
        (12, 10, "Current number of replicas above Spec.MaxReplicas"),
        (1, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_count_out_of_bounds_is_scaled_to_the_bound_without_metrics(replicas: int, wanted: int, reason: str) -> None:
    world = World(hpa(pods_metric(100), minimum=3, maximum=10, behavior=AT_ONCE), replicas=replicas)
    outcome = world.step()
    assert world.reads == ["ReadScale"]
    assert world.replicas == wanted
    assert outcome.events[0].message == f"New size: {wanted}; reason: {reason}"
    assert len(world.history.recommendations) == 1
    assert len(world.history.scale_up_events) + len(world.history.scale_down_events) == 1


@pytest.mark.parametrize(
    ("selector", "event", "message"),
    [
        ("", "SelectorRequired", "selector is required"),
        (
            "app in web",
            "InvalidSelector",
            (
                "couldn't convert selector into a corresponding internal selector object: "
                "unable to parse requirement: found 'web' expected: '('"
            ),
        ),
    ],
)
def test_unusable_selector_forbids_scaling(selector: str, event: str, message: str) -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    world.scale = Scale(spec_replicas=2, status_replicas=2, selector=selector)
    outcome = world.step()
    assert world.reads == ["ReadScale"]
    assert outcome.events == (Event("Warning", event, message),)
    assert outcome.late_events == (Event("Warning", "FailedComputeMetricsReplicas", message),)
    assert world.reasons()["ScalingActive"] == "-InvalidSelector"


def test_ambiguous_selector_forbids_scaling() -> None:
    others = {"default/front": LabelSelector.parse("app"), "default/back": LabelSelector.parse("app=back")}
    world = World(hpa(pods_metric(100)), replicas=2, others=others)
    outcome = world.step()
    assert world.reads == ["ReadScale", "ListPods"]
    message = "pods by selector app=web are controlled by multiple HPAs: [default/front default/web]"
    assert outcome.events == (Event("Warning", "AmbiguousSelector", message),)


@pytest.mark.parametrize(
    ("scale", "error"),
    [
        (
            TargetError('no matches for kind "Deployment" in group "apps"'),
            'unable to determine resource for scale target reference: no matches for kind "Deployment" in group "apps"',
        ),
        (
            ScaleError("not found"),
            "failed to query scale subresource for Deployment/default/web: not found",
        ),
    ],
)
def test_scale_that_cannot_be_read_is_an_error(scale: TargetError | ScaleError, error: str) -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    world.scale = scale
    outcome = world.step()
    assert outcome.error == error
    assert outcome.events == (Event("Warning", "FailedGetScale", scale.message),)
    assert world.reasons() == {"AbleToScale": "-FailedGetScale"}
    assert world.history == History()


def test_malformed_api_version_is_an_error_without_reading() -> None:
    world = World(hpa(pods_metric(100), api_version="a/b/c"), replicas=2)
    outcome = world.step()
    assert world.reads == []
    assert outcome.error == "invalid API version in scale target reference: unexpected GroupVersion string: a/b/c"


def test_pod_list_error_fails_the_metrics_that_need_pods() -> None:
    target = hpa(pods_metric(100), external_metric(100))
    responses = (PodsResponse(samples(100, 100)), ValuesResponse(values=(300,), timestamp_ms=NOW))
    observation = Observation(
        hpa=target,
        scale=Scale(spec_replicas=2, status_replicas=2, selector="app=web"),
        pods=PodListError("no cache"),
        responses=responses,
        other_selectors={"default/front": LabelSelector.parse("app")},
    )
    decision = decide(observation, History(), NOW)
    assert decision.scale_to == 3
    assert decision.error is not None
    assert decision.error.endswith("unable to get pods while calculating replica count: no cache")


# --- when writing fails --------------------------------------------------------------------------------------------


def test_failed_scale_stores_the_recommendation_but_no_scale_event() -> None:
    world = World(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    outcome = world.step(150, scale_error="denied")
    assert outcome.error == "failed to rescale Deployment/default/web: denied"
    assert outcome.events == (
        Event(
            "Warning",
            "FailedRescale",
            "New size: 3; reason: pods metric packets above target; error: denied",
        ),
    )
    assert world.reasons()["AbleToScale"] == "-FailedUpdateScale"
    assert (world.hpa.status.desired_replicas, world.hpa.status.last_scale_ms) == (0, None)
    assert world.history.scale_up_events == ()
    assert world.history.recommendations[-1] == Recommendation(3, world.now_ms)


def test_scale_event_is_stored_only_with_behavior() -> None:
    world = World(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    world.step(150)
    assert world.history.scale_up_events == (ScaleEvent(1, world.now_ms),)


def test_failed_status_write_is_an_error() -> None:
    outcome = World(hpa(pods_metric(100)), replicas=2).step(150, status_error="timed out")
    assert outcome.error == "failed to update status for web: timed out"
    assert outcome.late_events == (Event("Warning", "FailedUpdateStatus", "timed out"),)


def test_failed_status_write_does_not_replace_the_metrics_error() -> None:
    outcome = World(hpa(pods_metric(100)), replicas=2).step("unavailable", status_error="timed out")
    assert outcome.error is not None
    assert outcome.error.startswith("failed to compute desired number of replicas")
    assert [each.reason for each in outcome.late_events] == ["FailedUpdateStatus", "FailedComputeMetricsReplicas"]


# --- scale to zero -------------------------------------------------------------------------------------------------

TO_ZERO = Config(scale_to_zero=True)


def idle_world() -> World:
    """A queue that has run empty, so that its workers were scaled to zero."""
    world = World(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    world.step(0)
    assert world.replicas == 0
    assert world.reasons()["ScaledToZero"] == "ScaledToZero"
    return world


def test_target_scaled_to_zero_by_the_controller_is_scaled_up_again() -> None:
    world = idle_world()
    world.pods = ()
    world.step(0)
    assert world.replicas == 0
    world.hpa = with_spec(world.hpa, behavior=None)
    world.step(250)
    assert world.replicas == 3
    assert world.reasons()["ScaledToZero"] == "-NotScaledToZero"


def test_raised_minimum_scales_up_from_zero() -> None:
    world = idle_world()
    world.hpa = with_spec(world.hpa, min_replicas=2)
    outcome = world.step(0)
    assert outcome.events[0].message == "New size: 2; reason: Current number of replicas below Spec.MinReplicas"


def test_target_scaled_to_zero_by_others_stays_at_zero() -> None:
    world = World(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    world.step(300)
    assert world.reasons()["ScaledToZero"] == "-NotScaledToZero"
    world.scale_by_hand(0)
    world.step()
    assert world.reads == ["ReadScale"]
    assert world.reasons()["ScalingActive"] == "-ScalingDisabled"


def test_with_the_feature_off_zero_is_final_and_the_condition_is_removed() -> None:
    world = idle_world()
    world.config = Config(scale_to_zero=False)
    world.step()
    assert world.reads == ["ReadScale"]
    assert "ScaledToZero" not in world.reasons()
    assert world.reasons()["ScalingActive"] == "-ScalingDisabled"


def test_with_the_feature_off_the_condition_stays_until_the_next_scale() -> None:
    """As in Kubernetes 1.36: it is removed only where the target is scaled, or scaling is disabled at zero."""
    world = World(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    world.step(300)
    assert world.reasons()["ScaledToZero"] == "-NotScaledToZero"
    world.config = Config(scale_to_zero=False)
    world.step(300)
    assert world.reasons()["ScaledToZero"] == "-NotScaledToZero"
    world.step(600, scale_error="denied")
    assert world.reasons()["ScaledToZero"] == "-NotScaledToZero"
    world.step("unavailable")
    assert world.reasons()["ScaledToZero"] == "-NotScaledToZero"
    world.step(600)
    assert "ScaledToZero" not in world.reasons()


# --- the contract --------------------------------------------------------------------------------------------------


def test_incomplete_observation_raises() -> None:
    half = Observation(hpa=hpa(pods_metric(100)))
    with pytest.raises(ValueError, match="scale has not been read"):
        decide(half, History(), NOW)
    half = replace(half, scale=Scale(spec_replicas=1, status_replicas=1, selector="app=web"))
    with pytest.raises(ValueError, match="pods have not been listed"):
        decide(half, History(), NOW)


usages = st.integers(0, 1000) | st.just("unavailable")


@given(
    st.lists(st.tuples(usages, usages), min_size=1, max_size=8),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 6),
    st.booleans(),
)
def test_invariants_for_any_course_of_metrics(
    course: list[tuple[int | str, int | str]], replicas: int, minimum: int, spread: int, at_once: bool
) -> None:
    """In bounds from the second step on, never down on bad metrics, and the status is consistent."""
    metrics = hpa(
        pods_metric(100),
        external_metric(100),
        minimum=minimum,
        maximum=minimum + spread,
        behavior=AT_ONCE if at_once else None,
    )
    world = World(metrics, replicas=replicas)
    world.step(100, 100)
    for values in course:
        before = world.replicas
        outcome = world.step(*values)
        assert minimum <= world.replicas <= minimum + spread
        if "unavailable" in values:
            assert world.replicas >= before
            assert outcome.error is not None
        assert world.hpa.status.current_replicas == before
        if world.replicas != before:
            assert world.hpa.status.desired_replicas == world.replicas
            assert outcome.events[-1].reason == "SuccessfulRescale"


@given(st.integers(0, 8), st.integers(0, 8))
def test_missing_values_never_scale_below_what_the_pods_could_need(known: int, unknown: int) -> None:
    """If every silent pod were exactly at its target, the count must not go below what that would need."""
    count = known + unknown
    if not known:
        return
    world = World(hpa(pods_metric(100), maximum=20, behavior=AT_ONCE), replicas=count)
    world.step(PodsResponse(samples(*[1] * known)))
    assert world.replicas >= unknown


# --- steps that must not write -------------------------------------------------------------------------------------


def test_without_writing_an_event_reports_the_scale_and_history_has_none() -> None:
    world = World(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    acted = world.step(150)
    assert world.decision is not None
    outcome = conclude_without_writing(world.decision)
    assert outcome.status is None
    assert outcome.events == (
        Event("Normal", "WouldRescale", "New size would be: 3; reason: pods metric packets above target"),
    )
    assert outcome.history.recommendations == acted.history.recommendations
    assert acted.history.scale_up_events
    assert not outcome.history.scale_up_events


def test_without_writing_failed_metrics_keep_events_and_error() -> None:
    world = World(hpa(pods_metric(100)), replicas=2)
    acted = world.step("prometheus is away")
    assert world.decision is not None
    outcome = conclude_without_writing(world.decision)
    assert outcome.status is None
    assert (outcome.events, outcome.late_events, outcome.error) == (acted.events, acted.late_events, acted.error)
    assert outcome.error is not None
