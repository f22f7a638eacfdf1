"""Whole reconciliations: the reads, the changes, and the HPA's status, events and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.config import Config, Pause
from autoscaler.core.decide import conclude, decide
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
    Status,
)
from autoscaler.core.observation import (
    Observation,
    PodsResponse,
    ReadError,
    Scale,
    ValuesResponse,
)
from autoscaler.core.preconditions import FetchMetrics, next_read, parse_selector
from kube.values.selectors import LabelSelector
from tests.autoscaler.simulated_cluster import (
    NOW,
    SimulatedCluster,
    average_target,
    behavior,
    external_metric,
    hpa,
    percent,
    pods_metric,
    quantity,
    rules,
    samples,
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
    assert outcome.new_status is not None
    assert (outcome.new_status.current_replicas, outcome.new_status.desired_replicas) == (2, 3)
    assert outcome.new_status.last_scale_ms == simulated.now_ms
    assert outcome.new_status.current_metrics == (
        pods_metric(100).with_target(MetricTarget(average_value=quantity(150))),
    )
    assert simulated.reasons() == {
        "AbleToScale": "SucceededRescale",
        "ScalingActive": "ValidMetricFound",
        "ScalingLimited": "-DesiredWithinRange",
        "ScaledToZero": "-NotScaledToZero",
    }


def test_observed_generation_is_dropped_where_the_api_counts_none() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4)
    simulated.reconcile(100)
    written = replace(simulated.hpa, status=replace(simulated.hpa.status, observed_generation=7))
    simulated.hpa = written
    outcome = simulated.reconcile(100)
    assert outcome.new_status is not None
    assert outcome.new_status.observed_generation is None
    gone = conclude(decide(Observation(hpa=written, scale=ReadError("gone")), History(), simulated.now_ms))
    assert gone.new_status is not None
    assert gone.new_status.observed_generation == 7


def test_observed_generation_is_that_of_the_hpa() -> None:
    simulated = SimulatedCluster(replace(hpa(pods_metric(100)), generation=3), replicas=4)
    status = simulated.reconcile(100).status
    assert (status.observed_generation, status.current_replicas) == (3, 4)


def test_error_without_a_scale_to_write_is_left_out() -> None:
    assert SimulatedCluster(hpa(pods_metric(100)), replicas=4).reconcile(100, scale_error="no").scale_error is None


@pytest.mark.parametrize("stale", [(), ("pods",)], ids=["paused", "stale"])
@pytest.mark.parametrize("problem", ["no scale", "no metrics"])
def test_reason_for_a_blocked_scale_does_not_outlast_what_the_proposal_came_from(
    stale: tuple[str, ...], problem: str
) -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=4, config=Config(paused=Pause.ALL))
    simulated.stale = stale
    simulated.reconcile(50 if stale else 200)
    assert simulated.reasons()["ScalingLimited"] == ("StaleWatch" if stale else "Paused")
    if problem == "no scale":
        simulated.scale = ReadError("gone")
    simulated.reconcile("unavailable")
    assert "ScalingLimited" not in simulated.reasons()


# --- several metrics -----------------------------------------------------------------------------------------------


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


# Longer than the selectors whose parsed form is cached.
INVALID_SELECTOR = "=" + "a" * 1024
NOT_CONVERTED = (
    "couldn't convert selector into a corresponding internal selector object: "
    "found '=', expected: !, identifier, or 'end of string'"
)


@pytest.mark.parametrize(
    ("selector", "event", "message"),
    [
        (
            "",
            Event("Warning", "SelectorRequired", "selector is required"),
            "the HPA target's scale is missing a selector",
        ),
        (INVALID_SELECTOR, Event("Warning", "InvalidSelector", NOT_CONVERTED), NOT_CONVERTED),
    ],
    ids=["missing", "invalid"],
)
def test_scale_without_a_usable_selector_forbids_scaling(selector: str, event: Event, message: str) -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    simulated.scale = Scale(spec_replicas=2, status_replicas=2, selector=selector)
    outcome = simulated.reconcile()
    assert simulated.reads == ["ReadScale"]
    assert outcome.events == (event,)
    [condition] = (each for each in simulated.hpa.status.conditions if each.type == "ScalingActive")
    assert (condition.status, condition.reason, condition.message) == ("False", "InvalidSelector", message)


@pytest.mark.parametrize(("length", "cached"), [(1024, True), (1025, False)])
def test_only_short_selectors_are_cached(length: int, cached: bool) -> None:
    text = "=" * length
    assert (parse_selector(text) is parse_selector(text)) is cached


def test_valid_metrics_are_fetched_for_the_selector() -> None:
    observation = Observation(
        hpa=hpa(pods_metric(100), MetricSpec("Near")),
        scale=Scale(spec_replicas=2, status_replicas=2, selector="app=web"),
        pods=(),
    )
    assert next_read(observation) == FetchMetrics((True, False), LabelSelector.parse("app=web"))


def test_ambiguous_selector_forbids_scaling() -> None:
    selectors = {"default/front": "app", "default/web": "app=web", "default/back": "app=back"}
    others = {name: LabelSelector.parse(text) for name, text in selectors.items()}
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2, others=others)
    outcome = simulated.reconcile()
    assert simulated.reads == ["ReadScale", "ListPods"]
    message = "pods by selector app=web are controlled by multiple HPAs: [default/front default/web]"
    assert outcome.events == (Event("Warning", "AmbiguousSelector", message),)


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


def test_failed_status_write_does_not_replace_an_earlier_error() -> None:
    outcome = SimulatedCluster(hpa(pods_metric(100)), replicas=2).reconcile("unavailable", status_error="timed out")
    assert outcome.error is not None
    assert outcome.error.startswith("failed to compute desired number of replicas")
    assert [each.reason for each in outcome.late_events] == ["FailedUpdateStatus", "FailedComputeMetricsReplicas"]
    assert outcome.status_error == "timed out"
    both = SimulatedCluster(hpa(pods_metric(100)), replicas=2).reconcile(
        150, scale_error="no", status_error="timed out"
    )
    assert both.error == "failed to rescale Deployment/default/web: no"
    message = "New size: 3; reason: pods metric packets above target; error: no"
    assert both.events == (Event("Warning", "FailedRescale", message),)
    assert both.status.desired_replicas == 0, "as before"
    gone = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    gone.scale = ReadError("gone")
    before = gone.reconcile(100).error
    gone.hpa = replace(gone.hpa, status=Status())
    assert gone.reconcile(100, status_error="timed out").error == before


# --- scale to zero -------------------------------------------------------------------------------------------------

TO_ZERO = Config(scale_to_zero=True)


def idle_world() -> SimulatedCluster:
    """A queue that has run empty, so that its workers were scaled to zero."""
    simulated = SimulatedCluster(hpa(external_metric(100), minimum=0, behavior=AT_ONCE), replicas=2, config=TO_ZERO)
    simulated.reconcile(0)
    assert simulated.replicas == 0
    assert simulated.reasons()["ScaledToZero"] == "ScaledToZero"
    return simulated


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


def test_incomplete_history_gets_the_last_scale_by_the_monotonic_clock() -> None:
    status = Status(current_replicas=10, desired_replicas=12, last_scale_ms=NOW - 5_000)
    above = Observation(
        hpa=hpa(behavior=AT_ONCE, status=status), scale=Scale(spec_replicas=12, status_replicas=12, selector="app=web")
    )
    assert decide(above, History(complete=False), NOW, monotonic_ms=7_000).history == History(
        recommendations=(Recommendation(12, 7_000),), scale_up_events=(ScaleEvent(2, 7_000 - 4_001),)
    )


# --- reconciliations that must not write -----------------------------------------------------------------------------


def test_without_writing_an_event_reports_the_scale_and_history_has_none() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), behavior=AT_ONCE), replicas=2)
    acted = simulated.reconcile(150)
    assert simulated.decision is not None
    outcome = conclude(simulated.decision, act=False)
    assert outcome.events == (
        Event("Normal", "WouldRescale", "New size would be: 3; reason: pods metric packets above target"),
    )
    assert outcome.next_history.recommendations == acted.next_history.recommendations
    assert acted.next_history.scale_up_events
    assert not outcome.next_history.scale_up_events


def test_without_writing_failed_metrics_keep_events_and_error() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100)), replicas=2)
    acted = simulated.reconcile("prometheus is away")
    assert simulated.decision is not None
    outcome = conclude(simulated.decision, act=False)
    assert (outcome.events, outcome.late_events, outcome.error) == (acted.events, acted.late_events, acted.error)
    assert outcome.error is not None
