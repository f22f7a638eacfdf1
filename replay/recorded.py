"""The decisions of a running autoscaler as recorded load (`--server`, and the what-if of its pages), repeated.

Each record is one reconciliation, with its time, the replicas, and the value of each metric. Reconciliations are
replayed at their recorded times. While a replay has had the same replicas as the real workload, they get the recorded
pods and values. So with the same spec it makes the same decisions, whatever the pods' start-up times and shares of the
load were. The records have the number of pods in each group, and the average value; each ready pod gets the average
here, which the replica calculator does not tell from the real values.
"""

from __future__ import annotations

import itertools
import math
import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from autoscaler.core.history import LONG_AGO_MS, History, Recommendation, ScaleEvent
from autoscaler.core.model import (
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    HPAKey,
    InvalidMetric,
    MetricIdentifier,
    MetricSource,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    Observation,
    Pod,
    ReadyCondition,
    Scale,
    ValuesResponse,
)
from autoscaler.core.quantities import milli_value
from autoscaler.objects.decoding import time_ms
from autoscaler.records.record import DecisionRecord, MetricRecord, PodGroupsRecord
from replay.load import Load, RecordedDecision, ReplayError, Series, hold_ms, metric_key
from replay.workload import shared_response

_START_MS: Final = 1
"""When pods started: long before, so no period after their start matters."""
_READY_MS: Final = 2**50
"""When their readiness changed: longer after their start than any delay, so pods that are not ready count for cpu."""
_MILLI: Final = 1000
_API: Final = "metrics API: "
"""Before the error of the metrics API, in the messages of failures."""


class Recording:
    """The recorded decisions, for as long as the replicas of a replay are the real ones.

    `metrics` are (`metric_key`, metric) of each entry of the spec, and `template` is a pod of the workload.
    """

    def __init__(
        self, decisions: Iterable[RecordedDecision], metrics: Sequence[tuple[str, MetricSource]], template: Pod
    ) -> None:
        self._by_time = {each.time_ms: each for each in decisions}
        self._metrics = metrics
        self._template = template

    def at(self, time_ms: int, replicas: int) -> RecordedDecision | None:
        """Return the decision of a time; None from the first one on that had other replicas."""
        found = self._by_time.get(time_ms)
        if found is None or found.replicas != replicas:
            self._by_time = {}
            return None
        return found

    def observe(self, observation: Observation, recorded: RecordedDecision) -> Observation:
        """Return an observation with what was recorded; pods and responses only if all metrics were evaluated."""
        assert isinstance(observation.scale, Scale)
        record = recorded.record
        status_replicas = recorded.replicas if record.scale is None else record.scale.status_replicas
        scale = replace(observation.scale, status_replicas=status_replicas)
        stale = () if record.blocked is None else record.blocked.stale
        observation = replace(observation, scale=scale, stale=stale)
        if not all(key in recorded.metrics for key, _ in self._metrics):
            return observation
        found = [(source, recorded.metrics[key].pods) for key, source in self._metrics]
        of_pods = [pods for source, pods in found if pods is not None and _is_of_pods(source)]
        others = [pods for source, pods in found if pods is not None and not _is_of_pods(source)]
        count = max((_count(pods) for pods in of_pods), default=status_replicas)
        ignored = max((pods.ignored.count for pods in of_pods), default=0)
        # Pending pods are unready for all metrics; pods that start are unready for metrics of cpu only.
        pending = min((pods.unready.count for pods in of_pods), default=0)
        pods = _pods(
            self._template,
            running=count - ignored - pending,
            starting=max((pods.unready.count for pods in of_pods), default=0) - pending,
            pending=pending,
            ignored=ignored,
            ready=min((pods.ready.count for pods in others), default=count),
        )
        names = [pod.name for pod in pods[: count - ignored - pending]]
        responses = tuple([_response(source, key, recorded, names) for key, source in self._metrics])
        return replace(observation, pods=pods, responses=responses)


def _count(pods: PodGroupsRecord) -> int:
    """Return the number of all pods."""
    return sum(group.count for group in (pods.ready, pods.unready, pods.missing, pods.ignored))


def _is_of_pods(source: MetricSource) -> bool:
    return isinstance(source, PodsMetric | ResourceMetric)


def _pods(template: Pod, *, running: int, starting: int, pending: int, ignored: int, ready: int) -> tuple[Pod, ...]:
    """Return the running pods, the pending and the ignored (deleted) ones.

    The last `starting` of the running pods are unready for metrics of cpu, since they have no start time. `ready` of
    the running and the deleted ones are ready, for metrics that are not of pods.
    """

    def pod(index: int) -> Pod:
        is_pending = running <= index < running + pending
        position = index if index < running else index - pending
        is_ready = not is_pending and position < ready
        return replace(
            template,
            name=f"pod-{index + 1}",
            phase="Pending" if is_pending else "Running",
            deleted=index >= running + pending,
            start_ms=None if running - starting <= index < running else _START_MS,
            ready=ReadyCondition(status="True" if is_ready else "False", last_transition_ms=_READY_MS),
        )

    return tuple([pod(index) for index in range(running + pending + ignored)])


def _response(source: MetricSource, key: str, recorded: RecordedDecision, running: Sequence[str]) -> MetricResponse:
    total, metric = recorded.totals.get(key), recorded.metrics[key]
    if total is None:
        return MetricError("" if metric.failure is None else metric.failure.message.rpartition(_API)[2])
    if metric.pods is None or not isinstance(source, PodsMetric | ResourceMetric):
        return ValuesResponse(values=(total,), timestamp_ms=recorded.time_ms)
    names = running[: metric.pods.ready.count]
    # Pods that start have a value, which does not count.
    starting = max(len(running) - len(names) - metric.pods.missing.count, 0)
    return shared_response(source, total, names, recorded.time_ms, zeros=running[len(running) - starting :])


# --- the load ------------------------------------------------------------------------------------------------------


def recorded_load(
    key: HPAKey,
    target: str,
    records: Iterable[DecisionRecord],
    *,
    uid: str = "",
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Load:
    """Return the load of the kept decisions on an HPA, from `from_ms` to before `to_ms`; None: all.

    Records, oldest first, of another HPA, on another target than this one (KIND/NAMESPACE/NAME), or on an HPA of this
    name that was deleted are left out; without the `uid`, the last record's counts.

    Raises:
        ReplayError: there are less than two decisions.
    """
    every = [each for each in records if each.key == key]
    uid = uid or (every[-1].uid if every else "")
    of_uid = [each for each in every if not each.uid or not uid or each.uid == uid]
    of_target = [each for each in of_uid if each.target == target and each.current_replicas is not None]
    used = [
        (time, record)
        for time, record in _ascending(of_target)
        if (from_ms is None or from_ms <= time) and (to_ms is None or time < to_ms)
    ]
    if every and not of_uid:
        raise ReplayError(f"all kept decisions on {key} are on an earlier HPA of this name; wait for decisions on this")
    if of_uid and not of_target:
        targets = " and ".join(sorted({each.target for each in of_uid}))
        raise ReplayError(f"the kept decisions on {key} are about {targets}, and the HPA's target is {target}")
    if len(used) < 2:
        where = "" if from_ms is None and to_ms is None else " between --from and --to"
        raise ReplayError(f"there are {len(used)} kept decisions on {key}{where}, and a replay needs two or more")
    times = array("q", [time for time, _ in used])
    distance = round(statistics.median(after - before for before, after in itertools.pairwise(times)))
    held = hold_ms(distance)
    requests = _requests(record for _, record in used)
    decisions = [_decision(time, record, requests) for time, record in used]
    return Load(
        start_ms=times[0],
        end_ms=times[-1] + distance,
        series=_series(decisions, held),
        requests=requests,
        replicas=_replicas(decisions, held),
        ready_replicas=_ready(decisions, held),
        decisions=decisions,
        history=_history(used),
        notes=list(_notes(used, left_out=len(every) - len(of_uid))),
    )


def _ascending(records: Iterable[DecisionRecord]) -> list[tuple[int, DecisionRecord]]:
    """Return (time in milliseconds, record) without those from before the wall clock was set back."""
    kept: list[tuple[int, DecisionRecord]] = []
    for record in records:
        time = time_ms(record.time, "time")
        while kept and kept[-1][0] >= time:
            kept.pop()
        kept.append((time, record))
    return kept


def _decision(time_ms: int, record: DecisionRecord, requests: Mapping[str, int]) -> RecordedDecision:
    metrics = {_key(metric): metric for metric in record.metrics}
    totals = {key: _total(metric, requests.get(key)) for key, metric in metrics.items()}
    known = {key: total for key, total in totals.items() if total is not None}
    return RecordedDecision(time_ms=time_ms, record=record, metrics=metrics, totals=known)


def _key(metric: MetricRecord) -> str:
    """Return the `metric_key` of a metric."""
    identifier = MetricIdentifier(metric.name, metric.selector)
    sources: dict[str, MetricSource] = {
        "Pods": PodsMetric(identifier),
        "External": ExternalMetric(identifier),
        "Object": ObjectMetric(identifier, metric.described_object or CrossVersionObjectReference()),
        "Resource": ResourceMetric(metric.name),
        "ContainerResource": ContainerResourceMetric(metric.name, container=metric.container or ""),
    }
    return metric_key(sources.get(metric.type, InvalidMetric(metric.type)))


def _requests(records: Iterable[DecisionRecord]) -> dict[str, int]:
    """Return {resource or CONTAINER/resource: milli-value} of one pod, from the last record that shows it."""
    return {
        _key(metric): milli_value(metric.pods_requests) // metric.pods.ready.count
        for record in records
        for metric in record.metrics
        if metric.pods_requests is not None and metric.pods is not None and metric.pods.ready.count
    }


def _total(metric: MetricRecord, request: int | None) -> int | None:
    """Return the milli-value of a metric, of one of pods the total of the ready pods; None if the record has none.

    Like the record, it has the recorded utilization of what the pods request, and else the recorded average.
    """
    if metric.current is None:
        return None
    if metric.total is not None:
        return milli_value(metric.total)
    if metric.pods is None or metric.pods_total is None or metric.current.average_value is None:
        return None
    ready, average = metric.pods.ready.count, milli_value(metric.current.average_value)
    total = milli_value(metric.pods_total)
    if metric.pods_requests is not None and request is not None:
        return total * request * ready // max(1, milli_value(metric.pods_requests))
    # Values of pods that were deleted meanwhile are part of the average, not of the total.
    return total if total // max(1, ready) == average else average * ready


def _series(decisions: Sequence[RecordedDecision], held: int) -> dict[str, Series]:
    """Return the values of each metric. One that was not evaluated, because the bounds decided, keeps its value."""
    series = {}
    for key in dict.fromkeys(key for each in decisions for key in each.metrics):
        known = [each for each in decisions if key in each.metrics or each.record.desired_replicas is None]
        values = array("d", [each.totals.get(key, math.nan) / _MILLI for each in known])
        series[key] = Series(times_ms=_sample_times(key, known), values=values, hold_ms=held)
    return series


def _sample_times(key: str, decisions: Sequence[RecordedDecision]) -> array[int]:
    """Return when the newest value of each decision was measured, as far as it is recorded, and else its time.

    It was after the decision before, which did not have it.
    """
    times, before_ms = array("q"), decisions[0].time_ms
    for index, each in enumerate(decisions):
        age = each.metrics[key].age_seconds if key in each.metrics and index else None
        sampled_ms = each.time_ms - round((age or 0.0) * _MILLI)
        times.append(min(max(sampled_ms, before_ms + 1), each.time_ms))
        before_ms = each.time_ms
    return times


def _replicas(decisions: Sequence[RecordedDecision], held: int) -> Series:
    """Return the real replicas: before each decision, and after it if it was written."""
    points: list[tuple[int, int]] = []
    for each in decisions:
        points.append((each.time_ms, each.replicas))
        written = None if each.record.written is None else each.record.written.replicas
        if written is not None and written != each.replicas:
            points.append((each.time_ms + 1, written))
    times, values = zip(*points, strict=True)
    return Series(times_ms=array("q", times), values=array("d", values), hold_ms=held)


def _ready(decisions: Sequence[RecordedDecision], held: int) -> Series | None:
    """Return the real ready replicas, where a metric shows them."""
    values = array("d", [math.nan if each.ready is None else each.ready for each in decisions])
    if all(map(math.isnan, values)):
        return None
    return Series(times_ms=array("q", [each.time_ms for each in decisions]), values=values, hold_ms=held)


def _history(used: Sequence[tuple[int, DecisionRecord]]) -> History:
    """Return what is known of the time before: recommendations and scale events that changed a kept decision.

    The first decision's proposal stands for all others: each of them that mattered to it is in its record. If it has
    none, one that is too old for any window does, since an empty history would be that of a new HPA.
    """
    start_ms, first = used[0]
    found = [Recommendation(0, LONG_AGO_MS)]
    if first.stabilization is not None:
        found = [Recommendation(first.stabilization.proposed_replicas, start_ms)]
    for _, record in used:
        earlier = None if record.stabilization is None else record.stabilization.recommendation
        if earlier is not None:
            time = time_ms(earlier.time, "time")
            if time <= start_ms:
                found.append(Recommendation(earlier.replicas, time))
    scales = [ScaleEvent(each.change, time_ms(each.time, "time")) for each in first.scale_events]
    return History(
        recommendations=tuple(dict.fromkeys(found)),
        scale_up_events=tuple([each for each in scales if each.change > 0]),
        scale_down_events=tuple([ScaleEvent(-each.change, each.time_ms) for each in scales if each.change < 0]),
    )


# --- notes ---------------------------------------------------------------------------------------------------------


def _notes(used: Sequence[tuple[int, DecisionRecord]], *, left_out: int) -> Iterator[str]:
    """Yield a sentence about each thing that the records do not show exactly."""
    if left_out:
        yield f"{left_out} decisions on an earlier HPA of this name, which was deleted, are left out."
    latest = _spec_of(used[-1][1], None)
    for _, record in reversed(used):
        if _spec_of(record, latest) != latest:
            yield f"The HPA was changed after {record.time}: the real decisions until then are those of another spec."
            break
    ages = sorted(each.age_seconds for _, record in used for each in record.metrics if each.age_seconds is not None)
    if ages and ages[-1] > 0:
        yield (
            f"Values were {statistics.median(ages):.1f}s old (median; at most {ages[-1]:.1f}s) when a decision used "
            "them; here they count from the time of their samples, but not from before the decision before."
        )


def _spec_of(record: DecisionRecord, latest: Mapping[str, object] | None) -> dict[str, object]:
    """Return what a record shows of the spec; what it does not show is as in `latest`."""
    metrics = [(_key(metric), metric.target) for metric in record.metrics]
    shown = {"bounds": record.bounds, "metrics": metrics or None, "tolerance": record.tolerance}
    return {name: latest[name] if value is None and latest is not None else value for name, value in shown.items()}
