"""Recorded decisions: what the decisions of a running autoscaler were based on, so that a replay can repeat them.

While a replay has had the same replicas as the real workload, its reconciliations get the recorded pods and values.
So with the same spec it makes the same decisions, whatever the pods' start-up times and shares of the load were. The
records have the number of pods in each group, and the average value; each ready pod gets the average here, which the
replica calculator does not tell from the real values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from autoscaler.core.model import MetricSource, PodsMetric, ResourceMetric
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    Observation,
    Pod,
    ReadyCondition,
    Scale,
    ValuesResponse,
)
from autoscaler.records.record import PodGroupsRecord
from replay.load import RecordedDecision
from replay.responses import shared_response

_START_MS: Final = 1
"""When pods started: long before, so no period after their start matters."""
_READY_MS: Final = 2**50
"""When their readiness changed: longer after their start than any delay, so pods that are not ready count for cpu."""
_API: Final = "metrics API: "
"""Before the error of the metrics API, in the messages of failures."""


class Recording:
    """The recorded decisions, for as long as the replicas of a replay are the real ones.

    Args:
        decisions: what was recorded.
        metrics: (`metric_key`, metric) of each entry of the spec.
        template: a pod of the workload.
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
    """Return the running pods, the pending and the ignored ones.

    Args:
        template: has what they have in common.
        running: the number of running pods.
        starting: how many of these are unready for metrics of cpu: the last ones. Without a start time they are.
        pending: the number of pending pods.
        ignored: the number of deleted pods.
        ready: how many of the running pods are ready, for metrics that are not of pods; deleted ones count there.
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
