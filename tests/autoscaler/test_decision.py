"""Whole reconciliations: the reads, the changes, and the HPA's status, events and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import decide
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
    PodsResponse,
    ReadError,
    Scale,
    ValuesResponse,
)
from autoscaler.core.outcome import conclude
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
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    outcome = simulated.reconcile(150)
    assert simulated.replicas == 3
    assert outcome.error is None
    assert outcome.events == (
        Event("Normal", "SuccessfulRescale", "New size: 3; reason: pods metric packets above target"),
    )
    assert outcome.status is not None
    assert (outcome.status.current_replicas, outcome.status.desired_replicas) == (2, 3)
    assert outcome.status.last_scale_ms == simulated.now_ms
    assert outcome.status.current_metrics == (pods_metric(100).with_target(MetricTarget(average_value=quantity(150))),)
    assert simulated.reasons() == {
        "AbleToScale": "SucceededRescale",
        "ScalingActive": "ValidMetricFound",
        "ScalingLimited": "-DesiredWithinRange",
        "ScaledToZero": "-NotScaledToZero",
    }


def test_below_target_scales_down_after_the_stabilization_window() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4)
    counts = []
    for _ in range(22):
        simulated.reconcile(50)
        counts.append(simulated.replicas)
    # The count at first is a recommendation, too; it still counts when it is exactly five minutes old.
    assert counts == [4] * 21 + [2]


def test_unchanged_status_is_not_written() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4)
    assert simulated.reconcile(100).status is not None
    assert simulated.reconcile(100).status is None
    assert simulated.reconcile(101).status is not None


def test_observed_generation_is_dropped_where_the_api_counts_none() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4)
    simulated.reconcile(100)
    written = replace(simulated.hpa, status=replace(simulated.hpa.status, observed_generation=7))
    simulated.hpa = written
    outcome = simulated.reconcile(100)
    assert outcome.status is not None
    assert outcome.status.observed_generation is None
    gone = conclude(decide(Observation(hpa=written, scale=ReadError("gone")), History(), simulated.now_ms))
    assert gone.status is not None
    assert gone.status.observed_generation == 7


def test_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), maximum=4), replicas=2)
    simulated.reconcile(100)
    began = simulated.now_ms
    simulated.reconcile(130)
    simulated.reconcile(900)
    times = {each.type: each.last_transition_ms for each in simulated.hpa.status.conditions}
    assert times == {
        "AbleToScale": began,
        "ScalingActive": began,
        "ScalingLimited": simulated.now_ms,
        "ScaledToZero": simulated.now_ms - 15_000,
    }


def test_decision_holds_everything_that_explains_it() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), object_metric(50)), replicas=2)
    simulated.reconcile(150, 400)
    decision = simulated.decision
    assert decision is not None
    assert decision.tolerance is not None
    assert decision.normalized is not None
    assert [each.proposal.replicas for each in decision.evaluations if each.proposal] == [3, 16]
    assert decision.winner == decision.evaluations[1]
    assert (decision.normalized.proposed_replicas, decision.normalized.desired_replicas) == (16, 4)
    assert decision.normalized.limit == "ScaleUpLimit"


# --- several metrics -----------------------------------------------------------------------------------------------


def test_highest_proposal_wins_and_the_first_of_equals() -> None:
    simulated = SimulatedCluster(
        hpa(pods_metric(100, "a"), external_metric(100, "b"), pods_metric(50, "c")), replicas=2
    )
    outcome = simulated.reconcile(150, 600, 150)
    assert simulated.decision is not None
    assert [each.proposal.replicas for each in simulated.decision.evaluations if each.proposal] == [3, 6, 6]
    assert outcome.events[0].message == "New size: 4; reason: external metric b(nil) above target"


def test_failed_metric_allows_scaling_up_with_an_error() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100, "a"), pods_metric(100, "b")), replicas=2)
    outcome = simulated.reconcile("unavailable", 150)
    assert simulated.replicas == 3
    assert outcome.error == (
        "invalid metrics (1 invalid out of 2), first error is: failed to get pods metric value: "
        "unable to get metric a: unable to fetch metrics from custom metrics API: unavailable"
    )
    assert [each.reason for each in outcome.events] == ["FailedGetPodsMetric", "SuccessfulRescale"]
    assert simulated.hpa.status.current_metrics[0] == MetricSpec()
    assert simulated.reasons()["ScalingActive"] == "ValidMetricFound"


def test_failed_metric_forbids_scaling_down() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100, "a"), pods_metric(100, "b"), behavior=AT_ONCE), replicas=4)
    outcome = simulated.reconcile("unavailable", 50)
    assert simulated.replicas == 4
    assert outcome.error is not None
    assert simulated.reasons()["ScalingActive"] == "-FailedGetPodsMetric"


def test_without_valid_metrics_nothing_is_scaled() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    simulated.reconcile(150)
    outcome = simulated.reconcile("unavailable")
    assert simulated.hpa.status.desired_replicas == 3
    assert simulated.hpa.status.current_metrics == (MetricSpec(),)
    assert [each.reason for each in outcome.events] == ["FailedGetPodsMetric"]
    assert [each.reason for each in outcome.late_events] == ["FailedComputeMetricsReplicas"]
    assert outcome.error is not None
    assert outcome.error.startswith(
        "failed to compute desired number of replicas based on listed metrics for Deployment/default/web: "
        "invalid metrics (1 invalid out of 1), first error is: "
    )


def test_empty_response_is_a_failure() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    outcome = simulated.reconcile(PodsResponse({}))
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
    simulated = SimulatedCluster(hpa(wrong, unknown, targetless), replicas=2)
    outcome = simulated.reconcile(1, 1, 1)
    assert "FetchMetrics" not in simulated.reads
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
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    simulated.reconcile(150)
    simulated.scale_by_hand(0)
    outcome = simulated.reconcile()
    assert simulated.reads == ["ReadScale"]
    assert (simulated.replicas, outcome.events, outcome.error) == (0, (), None)
    assert simulated.reasons()["ScalingActive"] == "-ScalingDisabled"
    assert simulated.hpa.status.current_metrics == ()


@pytest.mark.parametrize(
    ("replicas", "wanted", "reason"),
    [
        (12, 10, "Current number of replicas above Spec.MaxReplicas"),
        (1, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_count_out_of_bounds_is_scaled_to_the_bound_without_metrics(replicas: int, wanted: int, reason: str) -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), minimum=3, maximum=10, behavior=AT_ONCE), replicas=replicas)
    outcome = simulated.reconcile()
    assert simulated.reads == ["ReadScale"]
    assert simulated.replicas == wanted
    assert outcome.events[0].message == f"New size: {wanted}; reason: {reason}"
    assert len(simulated.history.recommendations) == 1
    assert len(simulated.history.scale_up_events) + len(simulated.history.scale_down_events) == 1


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
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    simulated.scale = Scale(spec_replicas=2, status_replicas=2, selector=selector)
    outcome = simulated.reconcile()
    assert simulated.reads == ["ReadScale"]
    assert outcome.events == (Event("Warning", event, message),)
    assert outcome.late_events == (Event("Warning", "FailedComputeMetricsReplicas", message),)
    assert simulated.reasons()["ScalingActive"] == "-InvalidSelector"


def test_ambiguous_selector_forbids_scaling() -> None:
    others = {"default/front": LabelSelector.parse("app"), "default/back": LabelSelector.parse("app=back")}
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2, others=others)
    outcome = simulated.reconcile()
    assert simulated.reads == ["ReadScale", "ListPods"]
    message = "pods by selector app=web are controlled by multiple HPAs: [default/front default/web]"
    assert outcome.events == (Event("Warning", "AmbiguousSelector", message),)


@pytest.mark.parametrize(
    ("scale", "error"),
    [
        (
            ReadError('no matches for kind "Deployment" in group "apps"', unknown_kind=True),
            'unable to determine resource for scale target reference: no matches for kind "Deployment" in group "apps"',
        ),
        (
            ReadError("not found"),
            "failed to query scale subresource for Deployment/default/web: not found",
        ),
    ],
)
def test_scale_that_cannot_be_read_is_an_error(scale: ReadError, error: str) -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    simulated.scale = scale
    outcome = simulated.reconcile()
    assert outcome.error == error
    assert outcome.events == (Event("Warning", "FailedGetScale", scale.message),)
    assert simulated.reasons() == {"AbleToScale": "-FailedGetScale"}
    assert simulated.history == History()


def test_malformed_api_version_is_an_error_without_reading() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), api_version="a/b/c"), replicas=2)
    outcome = simulated.reconcile()
    assert simulated.reads == []
    assert outcome.error == "invalid API version in scale target reference: unexpected GroupVersion string: a/b/c"


def test_pod_list_error_fails_the_metrics_that_need_pods() -> None:
    target = hpa(pods_metric(100), external_metric(100))
    responses = (PodsResponse(samples(100, 100)), ValuesResponse(values=(300,), timestamp_ms=NOW))
    observation = Observation(
        hpa=target,
        scale=Scale(spec_replicas=2, status_replicas=2, selector="app=web"),
        pods=ReadError("no cache"),
        responses=responses,
        other_selectors={"default/front": LabelSelector.parse("app")},
    )
    decision = decide(observation, History(), NOW)
    assert decision.scale_to == 3
    assert decision.error is not None
    assert decision.error.endswith("unable to get pods while calculating replica count: no cache")


# --- when writing fails --------------------------------------------------------------------------------------------


def test_failed_scale_stores_the_recommendation_but_no_scale_event() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    outcome = simulated.reconcile(150, scale_error="denied")
    assert outcome.error == "failed to rescale Deployment/default/web: denied"
    assert outcome.events == (
        Event(
            "Warning",
            "FailedRescale",
            "New size: 3; reason: pods metric packets above target; error: denied",
        ),
    )
    assert simulated.reasons()["AbleToScale"] == "-FailedUpdateScale"
    assert (simulated.hpa.status.desired_replicas, simulated.hpa.status.last_scale_ms) == (0, None)
    assert simulated.history.scale_up_events == ()
    assert simulated.history.recommendations[-1] == Recommendation(3, simulated.now_ms)


def test_scale_event_is_stored_only_with_behavior() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    simulated.reconcile(150)
    assert simulated.history.scale_up_events == (ScaleEvent(1, simulated.now_ms),)


def test_failed_status_write_is_an_error() -> None:
    outcome = SimulatedCluster(hpa(pods_metric(100)), replicas=2).reconcile(150, status_error="timed out")
    assert outcome.error == "failed to update status for web: timed out"
    assert outcome.late_events == (Event("Warning", "FailedUpdateStatus", "timed out"),)


def test_failed_status_write_does_not_replace_the_metrics_error() -> None:
    outcome = SimulatedCluster(hpa(pods_metric(100)), replicas=2).reconcile("unavailable", status_error="timed out")
    assert outcome.error is not None
    assert outcome.error.startswith("failed to compute desired number of replicas")
    assert [each.reason for each in outcome.late_events] == ["FailedUpdateStatus", "FailedComputeMetricsReplicas"]


# --- scale to zero -------------------------------------------------------------------------------------------------

TO_ZERO = Config(scale_to_zero=True)


def idle_world() -> SimulatedCluster:
    """A queue that has run empty, so that its workers were scaled to zero."""
    simulated = SimulatedCluster(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    simulated.reconcile(0)
    assert simulated.replicas == 0
    assert simulated.reasons()["ScaledToZero"] == "ScaledToZero"
    return simulated


def test_target_scaled_to_zero_by_the_controller_is_scaled_up_again() -> None:
    simulated = idle_world()
    simulated.pods = ()
    simulated.reconcile(0)
    assert simulated.replicas == 0
    simulated.hpa = with_spec(simulated.hpa, behavior=None)
    simulated.reconcile(250)
    assert simulated.replicas == 3
    assert simulated.reasons()["ScaledToZero"] == "-NotScaledToZero"


def test_raised_minimum_scales_up_from_zero() -> None:
    simulated = idle_world()
    simulated.hpa = with_spec(simulated.hpa, min_replicas=2)
    outcome = simulated.reconcile(0)
    assert outcome.events[0].message == "New size: 2; reason: Current number of replicas below Spec.MinReplicas"


def test_target_scaled_to_zero_by_others_stays_at_zero() -> None:
    simulated = SimulatedCluster(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    simulated.reconcile(300)
    assert simulated.reasons()["ScaledToZero"] == "-NotScaledToZero"
    simulated.scale_by_hand(0)
    simulated.reconcile()
    assert simulated.reads == ["ReadScale"]
    assert simulated.reasons()["ScalingActive"] == "-ScalingDisabled"


def test_with_the_feature_off_zero_is_final_and_the_condition_is_removed() -> None:
    simulated = idle_world()
    simulated.config = Config(scale_to_zero=False)
    simulated.reconcile()
    assert simulated.reads == ["ReadScale"]
    assert "ScaledToZero" not in simulated.reasons()
    assert simulated.reasons()["ScalingActive"] == "-ScalingDisabled"


def test_with_the_feature_off_the_condition_stays_until_the_next_scale() -> None:
    """As in Kubernetes 1.36: it is removed only where the target is scaled, or scaling is disabled at zero."""
    simulated = SimulatedCluster(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    simulated.reconcile(300)
    assert simulated.reasons()["ScaledToZero"] == "-NotScaledToZero"
    simulated.config = Config(scale_to_zero=False)
    simulated.reconcile(300)
    assert simulated.reasons()["ScaledToZero"] == "-NotScaledToZero"
    simulated.reconcile(600, scale_error="denied")
    assert simulated.reasons()["ScaledToZero"] == "-NotScaledToZero"
    simulated.reconcile("unavailable")
    assert simulated.reasons()["ScaledToZero"] == "-NotScaledToZero"
    simulated.reconcile(600)
    assert "ScaledToZero" not in simulated.reasons()


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
    """In bounds from the second reconciliation on, never down on bad metrics, and the status is consistent."""
    metrics = hpa(
        pods_metric(100),
        external_metric(100),
        minimum=minimum,
        maximum=minimum + spread,
        behavior=AT_ONCE if at_once else None,
    )
    simulated = SimulatedCluster(metrics, replicas=replicas)
    simulated.reconcile(100, 100)
    for values in course:
        before = simulated.replicas
        outcome = simulated.reconcile(*values)
        assert minimum <= simulated.replicas <= minimum + spread
        if "unavailable" in values:
            assert simulated.replicas >= before
            assert outcome.error is not None
        assert simulated.hpa.status.current_replicas == before
        if simulated.replicas != before:
            assert simulated.hpa.status.desired_replicas == simulated.replicas
            assert outcome.events[-1].reason == "SuccessfulRescale"


@given(st.integers(0, 8), st.integers(0, 8))
def test_missing_values_never_scale_below_what_the_pods_could_need(known: int, unknown: int) -> None:
    """If each missing pod were at its target, the metric would need that many replicas at least."""
    count = known + unknown
    if not known:
        return
    simulated = SimulatedCluster(hpa(pods_metric(100), maximum=20, behavior=AT_ONCE), replicas=count)
    simulated.reconcile(PodsResponse(samples(*[1] * known)))
    assert simulated.replicas >= unknown


# --- reconciliations that must not write -----------------------------------------------------------------------------


def test_without_writing_an_event_reports_the_scale_and_history_has_none() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    acted = simulated.reconcile(150)
    assert simulated.decision is not None
    outcome = conclude(simulated.decision, act=False)
    assert outcome.status is None
    assert outcome.events == (
        Event("Normal", "WouldRescale", "New size would be: 3; reason: pods metric packets above target"),
    )
    assert outcome.history.recommendations == acted.history.recommendations
    assert acted.history.scale_up_events
    assert not outcome.history.scale_up_events


def test_without_writing_failed_metrics_keep_events_and_error() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    acted = simulated.reconcile("prometheus is away")
    assert simulated.decision is not None
    outcome = conclude(simulated.decision, act=False)
    assert outcome.status is None
    assert (outcome.events, outcome.late_events, outcome.error) == (acted.events, acted.late_events, acted.error)
    assert outcome.error is not None
