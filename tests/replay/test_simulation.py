"""A replay's decisions, on cases computed by hand."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import conclude, decide
from autoscaler.core.history import History
from autoscaler.core.model import HPA, Status
from autoscaler.core.observation import Observation
from replay.load import Load, ReplayError
from replay.results import Step, sentence
from replay.simulation import Settings, capacity_of, replay_hpa, replay_reality, simulate
from tests.replay.builders import (
    GAP,
    START_MS,
    STEP_MS,
    cpu_metric,
    external_metric,
    load_of,
    make_hpa,
    pods_metric,
    series_of,
)


def steps_of(hpa: HPA, load: Load, **options: Any) -> list[Step]:
    return list(simulate(hpa, load, Settings(**options)))


def desired(hpa: HPA, load: Load, **options: Any) -> list[int]:
    return [step.desired_replicas for step in steps_of(hpa, load, **options)]


# --- metrics of pods


def test_starting_pods_serve_nothing_and_damp_the_scale_up() -> None:
    hpa = make_hpa(pods_metric(average="100"))
    load = load_of(rps=[200, 600, 600, 600, 600])

    steps = steps_of(hpa, load, initial_replicas=2)

    # 0 s: 100 each. 15 s: 300 each, ratio 3, proposes 6; without behavior at most max(4, 2 x 2) = 4.
    # 30 s: the 2 ready ones have 300; 2 starting ones count as 0, so 150 on average of 4: proposes 6.
    # 45 s: the pods of 15 s are ready, 150 each; 2 starting: (4 x 150 + 0) / 6 = 100, within tolerance.
    # 60 s: six ready with 100 each.
    assert [step.replicas for step in steps] == [2, 2, 4, 6, 6]
    assert [step.ready for step in steps] == [2, 2, 2, 4, 6]
    assert [step.desired_replicas for step in steps] == [2, 4, 6, 6, 6]
    assert "limited to 4" in sentence(steps[1].decision)


def test_scale_down_waits_for_the_stabilization_window() -> None:
    hpa = make_hpa(pods_metric(average="100"))
    load = load_of(rps=[400, *[100] * 23])

    counts = desired(hpa, load, initial_replicas=4)

    # As with a live controller, whose syncs are a little more than 15 s apart, 4 of 0 s does not count at 300 s.
    assert counts == [4] * 20 + [1] * 4


@pytest.mark.parametrize("window_ms", [0, 1, 30_000, 30_001])
def test_default_stabilization_window_ends_as_with_late_syncs(window_ms: int) -> None:
    load = load_of(rps=[400, *[100] * 5])
    config = Config(downscale_stabilization_ms=window_ms)

    counts = desired(make_hpa(pods_metric(average="100")), load, config=config, initial_replicas=4)

    kept = {0: 1, 1: 1, 30_000: 2, 30_001: 3}[window_ms]
    assert counts == [4] * kept + [1] * (6 - kept)


def test_sentence_has_the_configured_window() -> None:
    steps = steps_of(make_hpa(pods_metric(average="100")), load_of(rps=[400, 100]), initial_replicas=4)

    assert "kept at 4 by the stabilization window of 300s" in sentence(steps[1].decision)


def test_a_total_is_not_rounded_up_by_dividing_it() -> None:
    """700 on 3 pods is 233.333 each, which asks for 7 pods of 100; 233.334 each would ask for 8."""
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 10, "periodSeconds": 15}]}}

    assert desired(make_hpa(pods_metric(), behavior=behavior), load_of(rps=[700]), initial_replicas=3) == [7]


def test_values_are_truncated_to_thousandths() -> None:
    step = steps_of(make_hpa(external_metric(averageValue="1")), load_of(queue=[2.0009]), initial_replicas=2)[0]

    winner = step.decision.winner
    assert winner is not None
    assert winner.proposal is not None
    assert winner.proposal.total == 2000


def test_utilization_is_of_the_requests() -> None:
    hpa = make_hpa(cpu_metric(utilization=50))
    load = load_of(cpu=[1.0, 1.0], requests={"cpu": 500})

    # Two old pods with 500m of 500m: 100 %, twice the target.
    assert desired(hpa, load, initial_replicas=2) == [4, 4]


def test_container_utilization_is_of_the_containers_request() -> None:
    hpa = make_hpa(cpu_metric(utilization=50, container="app"))
    load = load_of({"app/cpu": [1.0]}, requests={"cpu": 2000, "app/cpu": 500})

    assert desired(hpa, load, initial_replicas=2) == [4]


def test_cpu_of_pods_that_are_not_ready_long_enough_does_not_count() -> None:
    """For five minutes after a pod's start, its cpu counts only if its window of 30 s began when it was ready."""
    hpa = make_hpa(cpu_metric(utilization=50))
    load = load_of(cpu=[1.0, 1.0, 3.0, 3.0, 3.0], requests={"cpu": 500})

    steps = steps_of(hpa, load, initial_replicas=2, pod_startup_ms=15_000)

    # 0 s: 100 %, so 4. 15 s: all 4 are ready with 250m; the new ones do not count yet. 50 %: stay.
    # 30 s: 750m each of the two old ones, 150 %; the two others count as 0: 75 %, ratio 1.5, proposes 6.
    # 45 s: 4 old enough (ready for 30 s), 2 ready for 0 s: 500m each, 100 %; with 2 as 0: 66 %, ratio 1.32, 8.
    assert [(step.ready, step.desired_replicas) for step in steps[:4]] == [(2, 4), (4, 4), (4, 6), (6, 8)]


def test_a_metric_of_pods_fails_without_a_ready_pod() -> None:
    step = steps_of(make_hpa(), load_of(rps=[500]), initial_replicas=0)[0]
    assert step.decision.scale_to is None  # switched off by hand

    workload_of_none = make_hpa(pods_metric(), external_metric(averageValue="100"), min_replicas=0)
    load = load_of(rps=[0, 0, 500, 500], queue=[0, 0, 200, 200])
    steps = steps_of(workload_of_none, load, initial_replicas=1, config=Config(downscale_stabilization_ms=0))

    # The initial recommendation of 1 counts in the first step.
    assert [step.desired_replicas for step in steps] == [1, 0, 2, 2]
    assert steps[2].decision.evaluations[0].failure is not None


# --- Object and External metrics


def test_value_targets_multiply_the_ready_pods() -> None:
    hpa = make_hpa(external_metric(value="100"))
    load = load_of(queue=[150, 150, 150, 150])

    steps = steps_of(hpa, load, initial_replicas=2)

    # 1.5 x 2 ready = 3; while the third starts again 3; then 1.5 x 3 ready = 5 (4.5), and so on.
    assert [(step.ready, step.desired_replicas) for step in steps] == [(2, 3), (2, 3), (3, 5), (3, 5)]


def test_scale_to_zero_and_up_again() -> None:
    hpa = make_hpa(external_metric(averageValue="10"), min_replicas=0)
    load = load_of(queue=[5, 0, 0, 25, 25])

    counts = desired(hpa, load, initial_replicas=1, config=Config(downscale_stabilization_ms=0))

    assert counts == [1, 0, 0, 3, 3]


def test_an_hpa_that_starts_at_zero_has_scaled_to_zero() -> None:
    hpa = make_hpa(external_metric(averageValue="10"), min_replicas=0)
    recorded = dataclasses.replace(load_of(queue=[0, 25]), replicas=series_of([0]))

    assert desired(hpa, load_of(queue=[0, 25]), initial_replicas=0) == [0, 3]
    assert desired(hpa, recorded) == [0, 3]
    assert desired(make_hpa(external_metric(averageValue="10")), recorded) == [0, 0]  # switched off by hand


# --- bounds, gaps, settings


def test_a_gap_fails_the_metric_and_does_not_scale() -> None:
    hpa = make_hpa(pods_metric(), external_metric(averageValue="100"))
    load = load_of(rps=[200, GAP, 100], queue=[100, 100, GAP])

    steps = steps_of(hpa, load, initial_replicas=2, config=Config(downscale_stabilization_ms=0))

    assert [step.desired_replicas for step in steps] == [2, 2, 2]
    assert [step.has_gap for step in steps] == [False, True, True]
    failed = {each.type: each for each in steps[1].decision.status.conditions}["ScalingActive"]
    assert (failed.status, failed.reason) == ("False", "FailedGetPodsMetric")
    assert failed.message.endswith("the server could not find the metric rps for pods")
    failed = {each.type: each for each in steps[2].decision.status.conditions}["ScalingActive"]
    assert failed.reason == "FailedGetExternalMetric"
    assert failed.message.endswith("no metrics returned from external metrics API")


def test_annotations_apply() -> None:
    hpa = make_hpa(
        annotations={
            "milliscale.io/tolerance": "0.5",
            "milliscale.io/sync-period": "30s",
            "milliscale.io/fallback-replicas": "7",
            "milliscale.io/fallback-failure-threshold": "1",
        }
    )

    steps = steps_of(hpa, load_of(rps=[280, 900, GAP, GAP]), initial_replicas=2)

    assert [step.time_ms - START_MS for step in steps] == [0, 30_000]
    assert [step.desired_replicas for step in steps] == [2, 4]
    assert steps[1].decision.fallback is not None


def test_the_status_of_the_file_is_not_part_of_the_replay() -> None:
    hpa = replace(make_hpa(), status=Status(current_replicas=9, desired_replicas=9, last_scale_ms=1))

    assert steps_of(hpa, load_of(rps=[200]))[0].decision.status.last_scale_ms is None


def test_offset_shifts_all_reconciliations() -> None:
    load = load_of(rps=[100, 100, 100])

    assert [step.time_ms - START_MS for step in steps_of(make_hpa(), load, offset_ms=7_000)] == [7_000, 22_000, 37_000]
    with pytest.raises(ReplayError, match="no time for a reconciliation"):
        replay_hpa(make_hpa(), load, Settings(offset_ms=45_000))


@pytest.mark.parametrize(
    ("options", "recorded", "expected"),
    [({"initial_replicas": 7}, 5, 7), ({}, 5, 5), ({}, None, 3), ({}, GAP, 3)],
)
def test_initial_replicas(options: dict[str, int], recorded: float | None, expected: int) -> None:
    """Those of the option, else those recorded, else what the first values ask for."""
    load = load_of(rps=[250])
    if recorded is not None:
        load = dataclasses.replace(load, replicas=series_of([recorded]))

    assert steps_of(make_hpa(), load, **options)[0].replicas == expected


def test_initial_replicas_are_within_bounds() -> None:
    assert steps_of(make_hpa(min_replicas=4), load_of(rps=[250]))[0].replicas == 4
    assert steps_of(make_hpa(max_replicas=2), load_of(rps=[250]))[0].replicas == 2
    assert steps_of(make_hpa(external_metric(averageValue="1"), min_replicas=0), load_of(queue=[0]))[0].replicas == 1


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(ReplayError, match="the load has no metric rps; it has: other"):
        replay_hpa(make_hpa(), load_of(other=[1]), Settings())


def test_overload_of_a_negative_load_is_zero() -> None:
    summary = replay_hpa(
        make_hpa(external_metric(averageValue="5")), load_of(queue=[-5, -5]), Settings(capacity={"queue": 5.0})
    ).summary

    assert (summary.overload_seconds, str(summary.overload_ratio)) == (0.0, "0.0")  # not -0.0


def test_a_range_of_years_is_an_error() -> None:
    load = dataclasses.replace(load_of(rps=[1]), end_ms=START_MS + 100 * 365 * 86_400_000)

    with pytest.raises(ReplayError, match=r"has 210,240,000 reconciliations, .* give --from and --to"):
        replay_hpa(make_hpa(), load, Settings())


# --- capacity


def test_capacity_is_of_the_metrics_of_all_hpas_and_not_known_unless_given() -> None:
    first = make_hpa(external_metric(selector={"queue": "mail"}, value="5"))
    second = make_hpa(pods_metric(average="100"))

    assert capacity_of([first, second], {}) == {}
    assert capacity_of([first, second], {"rps": 90.0, "queue": 3.0}) == {"queue{queue=mail}": 3.0, "rps": 90.0}
    assert capacity_of([first, second], {"": 3.0}) == {"queue{queue=mail}": 3.0}
    with pytest.raises(ReplayError, match=r"--capacity names rpm, which is not a metric of the HPAs: queue"):
        capacity_of([first, second], {"rpm": 3.0})


# --- results


def test_summary_of_a_replay() -> None:
    hpa = make_hpa(pods_metric(average="100"), max_replicas=4)
    load = load_of(rps=[200, 600, 600, 600, GAP])
    config = Config(downscale_stabilization_ms=0)

    replayed = replay_hpa(hpa, load, Settings(initial_replicas=2, capacity={"rps": 100.0}, config=config))

    summary = replayed.summary
    # 2 pods for 15 s, then 4 for 60 s, of which 2 are ready until 45 s.
    assert (summary.seconds, summary.min_replicas, summary.max_replicas) == (75.0, 2, 4)
    assert summary.pod_hours == pytest.approx((2 * 15 + 4 * 60) / 3600)
    assert summary.mean_replicas == pytest.approx((2 * 15 + 4 * 60) / 75)
    assert (summary.scale_events, summary.flaps) == (1, 0)
    # 400 too many from 15 s to 45 s, 200 until 60 s.
    assert summary.overload_seconds == 45.0
    assert summary.overload_requests == 400 * 30 + 200 * 15
    assert summary.overload_ratio == pytest.approx(15_000 / (200 * 15 + 600 * 45))
    assert summary.at_max_seconds == 60.0
    assert summary.no_metrics_seconds == 15.0
    assert replayed.overloads == [(START_MS + 15_000, START_MS + 60_000)]
    assert replayed.gaps == [(START_MS + 60_000, START_MS + 75_000)]
    assert [(each.time_ms, each.replicas, each.desired_replicas) for each in replayed.scales] == [
        (START_MS + 15_000, 2, 4)
    ]
    assert replayed.scales[0].sentence.startswith("2 -> 4: rps is 300 against a target of 100 per pod")


def test_flaps_are_turns_within_ten_minutes() -> None:
    hpa = make_hpa(pods_metric(average="100"))
    config = Config(downscale_stabilization_ms=0)
    # Up, down 10 minutes later, up 10 minutes and 15 s after that, up again.
    values = [100, *[400] * 40, *[100] * 41, 400, 800]

    summary = replay_hpa(hpa, load_of(rps=values), Settings(config=config, pod_startup_ms=0)).summary

    assert (summary.scale_events, summary.flaps) == (4, 1)


def test_without_capacity_there_is_no_overload() -> None:
    summary = replay_hpa(make_hpa(external_metric(value="5")), load_of(queue=[50]), Settings()).summary

    assert (summary.overload_seconds, summary.overload_requests, summary.overload_ratio) == (None, None, None)


def test_reality_has_the_same_figures() -> None:
    load = dataclasses.replace(
        load_of(rps=[200, 600, 600, 300]),
        replicas=series_of([2, 4, GAP, 3]),
        ready_replicas=series_of([2, 3, GAP, 3]),
    )

    reality = replay_reality(load, Settings(capacity={"rps": 100.0}))

    assert reality is not None
    summary = reality.summary
    assert (summary.seconds, summary.min_replicas, summary.max_replicas) == (45.0, 2, 4)
    assert (summary.scale_events, summary.flaps) == (2, 1)
    assert (summary.overload_seconds, summary.overload_requests) == (15.0, 300 * 15)
    assert (summary.at_max_seconds, summary.no_metrics_seconds) == (None, None)
    assert [(each.replicas, each.desired_replicas) for each in reality.scales] == [(2, 4), (4, 3)]


def test_reality_needs_recorded_replicas() -> None:
    load = load_of(rps=[1])

    assert replay_reality(load, Settings()) is None
    assert replay_reality(dataclasses.replace(load, replicas=series_of([GAP])), Settings()) is None


def test_memory_does_not_grow_with_the_steps() -> None:
    hpa = make_hpa(pods_metric(), max_replicas=20)
    load = load_of(rps=[1000.0] * 800)
    tracemalloc.start()
    peaks = []
    for part in (100, 800):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        replay_hpa(hpa, dataclasses.replace(load, end_ms=START_MS + part * STEP_MS), Settings(), on_step=lambda _: None)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()

    assert peaks[1] < peaks[0] + 50_000


# --- a plain loop


@st.composite
def behaviors(draw: st.DrawFn) -> dict[str, Any] | None:
    if draw(st.booleans()):
        return None
    policies = st.lists(
        st.builds(
            lambda type_, value, period: {"type": type_, "value": value, "periodSeconds": period},
            st.sampled_from(["Pods", "Percent"]),
            st.integers(1, 100),
            st.sampled_from([15, 30, 60, 120]),
        ),
        min_size=1,
        max_size=2,
    )
    rules = st.fixed_dictionaries(
        {},
        optional={
            "policies": policies,
            "stabilizationWindowSeconds": st.sampled_from([0, 15, 60, 120]),
            "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
            "tolerance": st.sampled_from(["0", "50m", "0.2"]),
        },
    )
    return draw(st.fixed_dictionaries({"scaleUp": rules, "scaleDown": rules}))


@given(
    behavior=behaviors(),
    metrics=st.lists(
        st.sampled_from(
            [pods_metric(), external_metric(averageValue="70"), external_metric(value="300"), cpu_metric()]
        ),
        min_size=1,
        max_size=3,
    ),
    values=st.lists(st.one_of(st.floats(0, 3000), st.just(GAP)), min_size=1, max_size=40),
    replicas=st.integers(0, 25),
    startup_ms=st.sampled_from([0, 10_000, 40_000]),
)
@settings(max_examples=60, deadline=None)
def test_decisions_are_those_of_a_plain_loop(
    behavior: dict[str, Any] | None,
    metrics: list[dict[str, Any]],
    values: list[float],
    replicas: int,
    startup_ms: int,
) -> None:
    hpa = make_hpa(*metrics, behavior=behavior)
    load = load_of(rps=values, queue=values[::-1], cpu=[value / 1000 for value in values])
    load = dataclasses.replace(load, requests={"cpu": 250})

    steps = steps_of(hpa, load, initial_replicas=replicas, pod_startup_ms=startup_ms)

    assert len(steps) == len(values)
    history, status, count = History(), Status(), replicas
    for index, step in enumerate(steps):
        observed = step.decision.observation
        assert observed.scale is not None
        assert isinstance(observed.pods, tuple)
        assert len(observed.pods) == step.replicas == count
        plain = Observation(
            hpa=replace(hpa, status=status),
            config=Config(downscale_stabilization_ms=299_999),  # late syncs; see `simulate`
            scale=observed.scale,
            pods=observed.pods,
            responses=observed.responses,
        )
        decision = decide(plain, history, START_MS + index * STEP_MS)
        assert decision == step.decision
        decision = conclude(decision)
        history, status = decision.next_history, decision.status
        count = count if decision.scale_to is None else decision.scale_to
        assert step.desired_replicas == count
