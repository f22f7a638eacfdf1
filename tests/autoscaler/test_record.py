"""The record of a decision: complete for recorded reconciliations, and small."""

import asyncio
import gzip
import json
import math
from itertools import islice

import msgspec
import pytest
from msgspec.structs import replace

from autoscaler.core.config import Config, Fallback, Pause
from autoscaler.core.decide import decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import History, Recommendation
from autoscaler.core.integers import clamp_int32
from autoscaler.core.model import MetricSpec, MetricTarget, ResourceMetric, ScalingPolicy
from autoscaler.core.observation import PodsResponse
from autoscaler.core.stabilization import RateLimit
from autoscaler.records.build import build_record
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import (
    DecisionRecord,
    Measure,
    MetricRecord,
    PodGroupsRecord,
    PodNames,
    RecommendationRecord,
    ScaleEventRecord,
    Value,
    Values,
    Written,
)
from autoscaler.records.sentence import decimal_text, measure_text, with_sentence
from kube.values.quantity import Quantity
from tests.autoscaler.simulated_cluster import (
    NOW,
    SimulatedCluster,
    average_target,
    behavior,
    external_metric,
    hpa,
    object_metric,
    pod,
    pods,
    pods_metric,
    quantity,
    rules,
    sample,
    samples,
    some_pods,
)
from tests.conformance.reconcile_traces import reconciliations
from tests.conformance.runner import RECORDED

# One worker, which computes all records once.
pytestmark = pytest.mark.xdist_group("recording")

# --- every recorded reconciliation -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> list[tuple[Decision, DecisionRecord]]:
    """Every reconciliation of every tenth trace, its record as the decision log returns it."""
    with gzip.open(RECORDED / "reconcile_traces.jsonl.gz", "rt") as lines:
        reconciled = [each for line in islice(lines, 0, None, 10) for each in reconciliations(json.loads(line))]
    return [(each, _logged(each)) for each in reconciled]


def _logged(decision: Decision) -> DecisionRecord:
    record = build_record(decision)
    log = DecisionLog(1)
    log.add(record)
    page = asyncio.run(log.page(record.namespace, record.name))
    assert page is not None
    assert page.decisions == [with_sentence(record)]
    return page.decisions[0]


def test_desired_replicas_can_be_computed_from_each_record(
    recorded: list[tuple[Decision, DecisionRecord]],
) -> None:
    for decision, record in recorded:
        wanted = decision.current_replicas if decision.scale_to is None else decision.scale_to
        assert record.desired_replicas == (None if decision.failed else wanted)
        assert replay(record) == record.desired_replicas, record.sentence


def test_each_sentence_names_the_decisive_numbers(recorded: list[tuple[Decision, DecisionRecord]]) -> None:
    for _, record in recorded:
        for number in _decisive(record):
            assert number in record.sentence, record


def test_each_failure_is_in_record_and_sentence(recorded: list[tuple[Decision, DecisionRecord]]) -> None:
    for decision, record in recorded:
        for metric in record.metrics:
            if metric.failure is not None:
                assert metric.failure.message in record.sentence
        assert record.written is not None
        failed = decision.scale_error
        assert record.written.scale_error == failed
        assert failed is None or failed in record.sentence
        events = (*decision.events, *decision.late_events)
        assert [each.message for each in record.events] == [each.message for each in events]


def replay(record: DecisionRecord) -> int | None:
    """The replica count, computed anew from the record's numbers alone."""
    current, bounds = record.current_replicas, record.bounds
    if record.decided_by is None or current is None:
        return None
    if record.decided_by == "disabled":
        return 0
    if record.decided_by == "bounds":
        return min(max(current, bounds.min_replicas), bounds.max_replicas)
    proposals = [_proposal(metric, record) for metric in record.metrics if metric.failure is None]
    limited = _limited(_stabilized(max(0, *proposals), record), record)
    assert limited == record.limited_replicas
    return bounds.min_replicas if current == 0 and limited < bounds.min_replicas else limited


def _proposal(metric: MetricRecord, record: DecisionRecord) -> int:
    assert metric.current is not None
    assert record.scale is not None
    assert record.tolerance is not None
    ratio = metric.ratio if metric.rebalanced_ratio is None else metric.rebalanced_ratio
    current = record.scale.spec_replicas
    if ratio is not None:
        covered = 1.0 - record.tolerance.scale_down <= ratio <= 1.0 + record.tolerance.scale_up
        from_zero = current == 0 and metric.target.value is not None
        assert metric.within_tolerance == (covered and not from_zero)
    if metric.total is not None and metric.target.average_value is not None:
        if metric.within_tolerance:
            return record.scale.status_replicas
        return clamp_int32(math.ceil(_milli(metric.total) / _milli(metric.target.average_value)))
    assert ratio is not None
    assert metric.ratio == _number(metric.current, metric.target) / _number(metric.target, metric.target)
    if metric.within_tolerance or metric.overruled:
        return current
    return clamp_int32(math.ceil(ratio * (1 if metric.counted_pods is None else metric.counted_pods)))


def _stabilized(proposed: int, record: DecisionRecord) -> int:
    given, current = record.stabilization, record.current_replicas
    assert given is not None
    assert current is not None
    assert given.proposed_replicas == proposed
    if given.recommendation is None:
        return proposed
    if record.scale_down_limit is None:
        return given.recommendation.replicas
    if proposed >= current:
        return max(current, given.recommendation.replicas)
    return min(current, given.recommendation.replicas)


def _limited(stabilized: int, record: DecisionRecord) -> int:
    up, down, current = record.scale_up_limit, record.scale_down_limit, record.current_replicas
    least, most = record.bounds.min_replicas, record.bounds.max_replicas
    assert up is not None
    assert current is not None
    if down is None:
        assert up.replicas == max(2 * current, 4)
        return max(least, min(stabilized, most, up.replicas))
    _check_policies(up, down)
    if stabilized > current:
        return min(stabilized, most, max(up.replicas, current))
    if stabilized < current:
        return max(stabilized, least, min(down.replicas, current))
    return stabilized


def _check_policies(up: RateLimit, down: RateLimit) -> None:
    for limit, sign, rounded in ((up, 1, math.ceil), (down, -1, math.trunc)):
        policy, start = limit.policy, limit.period_start_replicas
        if policy is not None:
            assert start is not None
            change = (
                start * (1 + sign * policy.value / 100) if policy.type == "Percent" else start + sign * policy.value
            )
            assert limit.replicas == clamp_int32(rounded(change))


def _milli(quantity: str) -> int:
    return Quantity.parse(quantity).milli_value()


def _number(measure: Measure, target: Measure) -> int:
    if target.average_utilization is not None:
        assert measure.average_utilization is not None
        return measure.average_utilization
    text = measure.value if target.average_value is None else measure.average_value
    assert text is not None
    return _milli(text)


def _decisive(record: DecisionRecord) -> list[str]:
    """Return the texts that the sentence must contain."""
    numbers = [str(each) for each in (record.current_replicas, record.desired_replicas) if each is not None]
    if record.decided_by == "metrics":
        assert record.winner is not None
        assert record.stabilization is not None
        winner = record.metrics[record.winner]
        assert winner.current is not None
        value = measure_text(winner.current) if winner.total is None else decimal_text(winner.total)
        numbers += [winner.name, value, measure_text(winner.target)]
        if record.stabilization.proposed_replicas != record.desired_replicas:
            numbers.append(f"proposes {winner.proposed_replicas}" if not winner.overruled else "no change")
        if record.stabilization.replicas != record.stabilization.proposed_replicas:
            assert record.stabilization.recommendation is not None
            numbers.append(f"kept at {record.stabilization.replicas} by the stabilization window")
            if record.stabilization.recommendation.time != record.time:
                numbers.append(f"{record.stabilization.recommendation.replicas} was recommended")
        if record.stabilization.replicas != record.limited_replicas:
            numbers.append(f"to {record.limited_replicas} b")
    if record.decided_by == "bounds":
        numbers.append(str(record.desired_replicas))
    return numbers


# --- what is in a record -------------------------------------------------------------------------------------------


def reconcile(simulated: SimulatedCluster, *values: int | str | PodsResponse) -> DecisionRecord:
    """Return the record of the next reconciliation."""
    return with_sentence(build_record(simulated.reconcile(*values)))


def test_pods_metric_has_values_and_pod_groups() -> None:
    simulated = SimulatedCluster(hpa(), replicas=3)
    simulated.pods = (*pods(2), pod("web-2"), pod("web-3", phase="Pending"), replace(pod("web-4"), deleted=True))
    (metric,) = reconcile(simulated, PodsResponse(samples(200, 400))).metrics
    assert metric == MetricRecord(
        type="Pods",
        name="packets",
        target=Measure(average_value="100m"),
        current=Measure(average_value="300m"),
        age_seconds=15.0,
        window_seconds=60.0,
        pods_total="600m",
        values=Values(count=2, shown=(Value(pod="web-1", value="400m"), Value(pod="web-0", value="200m"))),
        pods=PodGroupsRecord(
            ready=PodNames(count=2, shown=("web-0", "web-1")),
            unready=PodNames(count=1, shown=("web-3",)),
            missing=PodNames(count=1, shown=("web-2",)),
            ignored=PodNames(count=1, shown=("web-4",)),
        ),
        ratio=3.0,
        rebalanced_ratio=1.5,
        counted_pods=4,
        proposed_replicas=6,
    )


def test_quantities_of_memory_are_binary() -> None:
    spec = MetricSpec.of(ResourceMetric("memory", average_target(50 * 2**20 * 1000)))
    (metric,) = reconcile(SimulatedCluster(hpa(spec), replicas=2), "no metrics").metrics
    assert metric.target == Measure(average_value="50Mi")


def test_target_of_an_object_metric_is_that_of_its_type() -> None:
    for type_, expected in (("Value", Measure(value="100m")), ("AverageValue", Measure(average_value="200m"))):
        target = MetricTarget(type_, value=quantity(100), average_value=quantity(200))
        spec = object_metric(100).with_target(target)
        (metric,) = reconcile(SimulatedCluster(hpa(spec), replicas=2), 200).metrics
        assert metric.target == expected


def test_stabilization_and_policy_are_recorded() -> None:
    policies = behavior(up=rules(some_pods(1, 60), window=0), down=rules(some_pods(9, 60), window=60))
    simulated = SimulatedCluster(hpa(behavior=policies), replicas=3)
    up = reconcile(simulated, 200)
    assert (up.desired_replicas, up.limit, up.limited_replicas) == (4, "ScaleUpLimit", 4)
    assert up.scale_up_limit == RateLimit(replicas=4, policy=ScalingPolicy("Pods", 1, 60), period_start_replicas=3)
    down = reconcile(simulated, 50)
    assert down.stabilization is not None
    assert (down.stabilization.proposed_replicas, down.stabilization.replicas) == (2, 4)
    assert down.stabilization.window_seconds == 60.0
    assert down.stabilization.recommendation == RecommendationRecord(replicas=6, time=up.time)


def test_scale_events_that_a_policy_counts_are_recorded() -> None:
    policies = behavior(up=rules(some_pods(1, 45), window=0), down=rules(some_pods(2, 30), window=0))
    simulated = SimulatedCluster(hpa(behavior=policies), replicas=4)
    records = [reconcile(simulated, value) for value in (100, 50, 200, 100, 100, 100)]
    scaled = [ScaleEventRecord(change=-2, time=records[1].time), ScaleEventRecord(change=2, time=records[2].time)]
    assert [list(each.scale_events) for each in records] == [[], [], scaled[:1], scaled, scaled[1:], []]


def test_only_the_latest_scale_events_are_recorded() -> None:
    policies = behavior(up=rules(some_pods(1, 1800), some_pods(1, 15), window=0))
    simulated = SimulatedCluster(hpa(behavior=policies, maximum=100), replicas=1)
    records = [reconcile(simulated, 10_000) for _ in range(14)]
    assert [each.time for each in records[-1].scale_events] == [each.time for each in records[-11:-1]]


def test_winner_and_failed_metric_are_recorded() -> None:
    simulated = SimulatedCluster(hpa(pods_metric(100), external_metric(100), object_metric(100)), replicas=2)
    record = reconcile(simulated, "prometheus is away", 300, 200)
    assert [each.proposed_replicas for each in record.metrics] == [None, 3, 4]
    assert record.winner == 2
    assert record.metrics[0].failure is not None
    assert record.metrics[0].failure.reason == "FailedGetPodsMetric"
    assert record.error is not None
    assert record.error.startswith("invalid metrics (1 invalid out of 3)")


def test_writes_and_their_errors_are_recorded() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2)
    assert reconcile(simulated, 200).written == Written(replicas=4, status=True)
    assert reconcile(simulated, 100).written == Written(status=True)
    assert reconcile(simulated, 100).written == Written(), "nothing new to say"
    failed = build_record(simulated.reconcile(200, scale_error="denied"))
    assert failed.written == Written(scale_error="denied", status=True)
    assert failed.error == "failed to rescale Deployment/default/web: denied"


@pytest.mark.parametrize("mode", ["dry-run", "shadow"])
def test_modes_other_than_act_write_nothing(mode: str) -> None:
    simulated = SimulatedCluster(hpa(), replicas=2)
    record = with_sentence(build_record(simulated.reconcile(200), mode=mode))
    assert (record.mode, record.written, record.desired_replicas) == (mode, Written(), 4)
    assert record.sentence.endswith(f"; not applied in mode {mode}")


def test_computed_decision_has_no_writes() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2)
    simulated.reconcile(200)
    assert simulated.decision is not None
    record = with_sentence(build_record(simulated.decision))
    assert record.written is None
    assert "applied" not in record.sentence


def test_paused_scale_is_recorded() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2, config=Config(paused=Pause.SCALE_OUT))
    record = reconcile(simulated, 200)
    assert (record.decided_by, record.desired_replicas, record.limited_replicas) == ("metrics", 2, 4)
    assert record.sentence == (
        "stays at 2: packets is 200m against a target of 100m per pod (ratio 2, outside tolerance 0.1) on 2 ready "
        "pods, so it proposes 4; not scaled to 4, because annotation milliscale.io/paused is scale-out"
    )


def test_scale_down_blocked_by_stale_watch_is_recorded() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2)
    simulated.stale = ("pods",)
    record = reconcile(simulated, 50)
    assert (record.decided_by, record.desired_replicas, record.limited_replicas) == ("metrics", 2, 2)
    assert record.blocked is not None
    assert (record.blocked.stale, record.blocked.paused, record.blocked.replicas) == (("pods",), "", 1)
    assert record.sentence.endswith(
        "so it proposes 1; not scaled to 1, because the watch on pods is silent, fails or is incomplete"
    )


def test_pause_blocks_scaling_into_the_bounds() -> None:
    record = reconcile(SimulatedCluster(hpa(maximum=3), replicas=5, config=Config(paused=Pause.ALL)))
    assert (record.decided_by, record.desired_replicas) == ("bounds", 5)
    assert "5 is above maxReplicas 3" in record.sentence
    assert "not scaled to 3" in record.sentence


def test_fallback_for_failing_metrics_is_recorded() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2, config=Config(fallback=Fallback(replicas=4, failure_threshold=1)))
    record = reconcile(simulated, "prometheus is away")
    assert (record.decided_by, record.desired_replicas, record.winner) == ("fallback", 4, None)
    assert record.sentence.startswith(
        "2 -> 4: metrics failed in 1 sync in a row, the fallback proposes at least 4 replicas; packets failed (unable "
    )


def test_only_a_change_has_a_reason() -> None:
    simulated = SimulatedCluster(hpa(), replicas=4)
    assert reconcile(simulated, 200).reason == "pods metric packets above target"
    assert reconcile(simulated, 50).reason == "", "the stabilization window"


@pytest.mark.parametrize(
    ("replicas", "sampled", "limit"), [(2, 2, 500), (10_000, 5000, 1500)], ids=["few pods", "many pods"]
)
def test_logged_record_is_small(replicas: int, sampled: int, limit: int) -> None:
    simulated = SimulatedCluster(hpa(maximum=100_000), replicas=replicas)
    simulated.reconcile(PodsResponse({each.name: sample(150) for each in simulated.pods[:sampled]}))
    assert simulated.decision is not None
    record = build_record(simulated.decision)
    fitting, too_small = DecisionLog(1, max_bytes=limit), DecisionLog(1, max_bytes=10)
    fitting.add(record)
    too_small.add(record)
    assert len(list(fitting.index())) == 1
    assert list(too_small.index()) == []


def test_times_are_of_the_wall_clock_though_histories_have_another() -> None:
    simulated = SimulatedCluster(hpa(), replicas=9)
    simulated.reconcile(50)
    assert simulated.decision is not None
    history = History(recommendations=(Recommendation(9, time_ms=70_000),), complete=True)
    record = build_record(decide(simulated.decision.observation, history, NOW, monotonic_ms=100_000))
    assert record.time == "2001-09-09T01:46:40.000Z"
    assert record.stabilization is not None
    assert record.stabilization.recommendation == RecommendationRecord(replicas=9, time="2001-09-09T01:46:10.000Z")


def test_long_texts_are_cut() -> None:
    simulated = SimulatedCluster(hpa(), replicas=2)
    record = reconcile(simulated, "x" * 100_000)
    assert len(msgspec.json.encode(record)) < 10_000


def test_fields_that_do_not_apply_are_absent() -> None:
    simulated = SimulatedCluster(hpa(external_metric(100), minimum=0), replicas=1)
    shown = msgspec.to_builtins(reconcile(simulated, 100))
    assert shown["version"] == 1
    assert "rebalancedRatio" not in shown["metrics"][0]
    assert "heldBack" not in shown
    assert shown["bounds"] == {"minReplicas": 0, "maxReplicas": 10}
