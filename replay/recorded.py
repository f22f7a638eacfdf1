"""Recorded reconciliations: what the decisions of a running autoscaler were based on, so that a replay can repeat them.

While a replay has had the same replicas as the real workload, its reconciliations get the recorded pods and values.
So with the same spec it makes the same decisions, whatever the pods' start-up times and shares of the load were. The
records have the number of pods in each group, and the average value; each ready pod gets the average here, which the
replica calculator does not tell from the real values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from autoscaler.core.model import MetricSource, PodsMetric, ResourceMetric
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    Observation,
    Pod,
    PodSample,
    PodsResponse,
    PodUsage,
    ReadyCondition,
    ResourceResponse,
    Scale,
    ValuesResponse,
)

_START_MS: Final = 1
"""When pods started: long before, so no period after their start matters."""
_READY_MS: Final = 2**50
"""When their readiness changed: longer after their start than any delay, so pods that are not ready count for cpu."""


class PodCounts(Struct, frozen=True, kw_only=True):
    """The number of pods in each group of the replica calculator."""

    ready: int = 0
    unready: int = 0
    missing: int = 0
    ignored: int = 0

    @property
    def all(self) -> int:
        """The number of all pods."""
        return self.ready + self.unready + self.missing + self.ignored


class RecordedMetric(Struct, frozen=True, kw_only=True):
    """One metric at one reconciliation."""

    total: int | None = None
    """Milli-value: of a metric of pods the sum over the ready pods. None: the metric failed."""
    pods: PodCounts | None = None
    """None: the pods did not matter."""
    error: str = ""
    """Why it failed."""


class Reconciliation(Struct, frozen=True, kw_only=True):
    """One reconciliation that read the target's scale."""

    time_ms: int
    replicas: int
    """Before the decision."""
    status_replicas: int
    desired_replicas: int | None
    """The decision; None: there was none, so the replicas stayed."""
    scale_error: str | None = None
    """Why the scale could not be written."""
    stale: tuple[str, ...] = ()
    """The resources whose stale watches blocked a scale-down."""
    metrics: Mapping[str, RecordedMetric] = {}
    """{`metric_key`: the metric}; empty if the metrics were not evaluated."""

    @property
    def ready(self) -> int | None:
        """The number of ready pods; None: no metric shows it. To metrics of cpu, pods are ready later."""
        return max((each.pods.ready for each in self.metrics.values() if each.pods is not None), default=None)

    @property
    def replicas_after(self) -> int:
        """The replicas that the decision led to."""
        return self.replicas if self.desired_replicas is None or self.scale_error else self.desired_replicas


class Recording:
    """The recorded reconciliations, for as long as the replicas of a replay are the real ones.

    Args:
        reconciliations: what was recorded.
        metrics: (`metric_key`, metric) of each entry of the spec.
        template: a pod of the workload.
    """

    def __init__(
        self, reconciliations: Iterable[Reconciliation], metrics: Sequence[tuple[str, MetricSource]], template: Pod
    ) -> None:
        self._by_time = {each.time_ms: each for each in reconciliations}
        self._metrics = metrics
        self._template = template

    def at(self, time_ms: int, replicas: int) -> Reconciliation | None:
        """Return the reconciliation of a time; None from the first one on that had other replicas."""
        found = self._by_time.get(time_ms)
        if found is None or found.replicas != replicas:
            self._by_time = {}
            return None
        return found

    def observe(self, observation: Observation, recorded: Reconciliation) -> Observation:
        """Return an observation with what was recorded; pods and responses only if all metrics were evaluated."""
        assert isinstance(observation.scale, Scale)
        scale = replace(observation.scale, status_replicas=recorded.status_replicas)
        observation = replace(observation, scale=scale, stale=recorded.stale)
        if not all(key in recorded.metrics for key, _ in self._metrics):
            return observation
        found = [(source, recorded.metrics[key]) for key, source in self._metrics]
        of_pods = [one.pods for source, one in found if one.pods is not None and _is_of_pods(source)]
        others = [one.pods for source, one in found if one.pods is not None and not _is_of_pods(source)]
        count = max((one.all for one in of_pods), default=recorded.status_replicas)
        ignored = max((one.ignored for one in of_pods), default=0)
        # Pending pods are unready for all metrics; pods that start are unready for metrics of cpu only.
        pending = min((one.unready for one in of_pods), default=0)
        pods = _pods(
            self._template,
            running=count - ignored - pending,
            starting=max((one.unready for one in of_pods), default=0) - pending,
            pending=pending,
            ignored=ignored,
            ready=min((one.ready for one in others), default=count),
        )
        names = [pod.name for pod in pods[: count - ignored - pending]]
        responses = tuple([_response(source, one, names, recorded.time_ms) for source, one in found])
        return replace(observation, pods=pods, responses=responses)


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


def _response(source: MetricSource, recorded: RecordedMetric, running: Sequence[str], time_ms: int) -> MetricResponse:
    if recorded.total is None:
        return MetricError(recorded.error)
    if recorded.pods is None or not isinstance(source, PodsMetric | ResourceMetric):
        return ValuesResponse(values=(recorded.total,), timestamp_ms=time_ms)
    names = running[: recorded.pods.ready]
    share, rest = divmod(recorded.total, max(len(names), 1))
    values = {name: share + (index < rest) for index, name in enumerate(names)}
    # Pods that start have a value, which does not count.
    starting = len(running) - len(names) - recorded.pods.missing
    values.update(dict.fromkeys(running[len(running) - starting :] if starting > 0 else (), 0))
    if isinstance(source, PodsMetric):
        return PodsResponse(
            {name: PodSample(value=value, timestamp_ms=time_ms, window_ms=0) for name, value in values.items()}
        )
    container, resource = source.container or "", source.name
    return ResourceResponse(
        tuple(
            [
                PodUsage(name=name, timestamp_ms=time_ms, window_ms=0, containers=((container, {resource: value}),))
                for name, value in values.items()
            ]
        )
    )
