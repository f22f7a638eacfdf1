"""The model of the workload: its pods, when they are ready, their metrics, and the load that they can serve.

A new pod is Pending until its start-up is over, then Running and ready for as long as it lives. Scaling down deletes
the youngest pods, so starting pods are deleted first, as by ReplicaSets; deletion takes no time. All ready pods share
the load equally and have the same capacity.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from autoscaler.core.model import InvalidMetric, MetricSource, ObjectMetric, PodsMetric, ResourceMetric
from autoscaler.core.observation import (
    Container,
    MetricError,
    MetricResponse,
    Pod,
    PodSample,
    PodsResponse,
    PodUsage,
    ReadyCondition,
    ResourceResponse,
    ValuesResponse,
)
from replay.load import Series

_OLD_MS: Final = 24 * 3600 * 1000
"""The age of the first pods, longer than any period after a pod's start."""
RESOURCE_WINDOW_MS: Final = 30_000
"""The window of a resource's values: metrics-server's at its default resolution of 15 s is at most that."""
_MILLI: Final = 1000.0
_LIMIT: Final = 2**63 - 1


class Workload:
    """The pods of one scale target, whose names begin with its name; those of the beginning are old and ready.

    `requests` are {resource or CONTAINER/resource: what a pod requests, in milli-values}.
    """

    def __init__(
        self, *, namespace: str, name: str, requests: Mapping[str, int], replicas: int, startup_ms: int, now_ms: int
    ) -> None:
        self._namespace = namespace
        self._name = name
        self._requests, self._containers = _split(requests)
        self._startup_ms = startup_ms
        self._created = 0
        self._ready_ms: deque[int] = deque()  # when each of the starting pods, which are the youngest, will be ready
        self._pods = [self._new_pod(now_ms - _OLD_MS, ready=True, ready_ms=now_ms - _OLD_MS) for _ in range(replicas)]
        self._snapshot: tuple[Pod, ...] | None = None
        self._ready_names: tuple[str, ...] | None = None

    @property
    def replicas(self) -> int:
        """The number of pods."""
        return len(self._pods)

    @property
    def ready(self) -> int:
        """The number of ready pods."""
        return len(self._pods) - len(self._ready_ms)

    @property
    def template(self) -> Pod:
        """A pod, for what all have in common."""
        return self._pod("", 0, ready=True, ready_ms=0)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods, oldest first. The same object until something changes."""
        if self._snapshot is None:
            self._snapshot = tuple(self._pods)
        return self._snapshot

    @property
    def ready_names(self) -> tuple[str, ...]:
        """The names of the ready pods. The same object until something changes."""
        if self._ready_names is None:
            self._ready_names = tuple(pod.name for pod in self._pods[: self.ready])
        return self._ready_names

    @property
    def settled_ms(self) -> float:
        """When all pods are ready and count for all metrics, if none is created or deleted."""
        if self._ready_ms:
            return math.inf
        ready = self._pods[-1].ready if self._pods else None
        return ready.last_transition_ms + RESOURCE_WINDOW_MS if ready else 0

    def advance(self, now_ms: int) -> None:
        """Make the pods ready whose start-up is over."""
        while self._ready_ms and self._ready_ms[0] <= now_ms:
            index, ready_ms = self.ready, self._ready_ms.popleft()
            pod = self._pods[index]
            assert pod.start_ms is not None
            self._pods[index] = self._pod(pod.name, pod.start_ms, ready=True, ready_ms=ready_ms)
            self._snapshot = self._ready_names = None

    def scale(self, replicas: int, now_ms: int) -> None:
        """Create or delete pods."""
        while len(self._pods) > replicas:
            self._pods.pop()
            if self._ready_ms:
                self._ready_ms.pop()
        while len(self._pods) < replicas:
            self._ready_ms.append(now_ms + self._startup_ms)
            self._pods.append(self._new_pod(now_ms, ready=False, ready_ms=now_ms))
        self._snapshot = self._ready_names = None
        self.advance(now_ms)

    def ready_over(self, start_ms: int, end_ms: int) -> list[tuple[int, int, int]]:
        """Return (start, end, ready pods) of the parts of a time in which the number of ready pods is constant."""
        ready, parts = self.ready, []
        for ready_ms in self._ready_ms:
            if ready_ms >= end_ms:
                break
            if ready_ms > start_ms:
                parts.append((start_ms, ready_ms, ready))
                start_ms = ready_ms
            ready += 1
        parts.append((start_ms, end_ms, ready))
        return parts

    def _new_pod(self, start_ms: int, *, ready: bool, ready_ms: int) -> Pod:
        self._created += 1
        return self._pod(f"{self._name}-{self._created}", start_ms, ready=ready, ready_ms=ready_ms)

    def _pod(self, name: str, start_ms: int, *, ready: bool, ready_ms: int) -> Pod:
        return Pod(
            name=name,
            namespace=self._namespace,
            labels={},
            phase="Running" if ready else "Pending",
            start_ms=start_ms,
            ready=ReadyCondition(status="True" if ready else "False", last_transition_ms=ready_ms),
            containers=self._containers,
            requests=self._requests,
        )


def _split(requests: Mapping[str, int]) -> tuple[Mapping[str, int] | None, tuple[Container, ...]]:
    """Return the pod-level requests, if the containers' are not the same, and the containers."""
    of_pod: dict[str, int] = {}
    of_containers: dict[str, dict[str, int]] = {}
    for key, milli in requests.items():
        container, slash, resource = key.partition("/")
        # example.com/gpu is a resource: a container's name has no dot.
        if slash and "." not in container:
            of_containers.setdefault(container, {})[resource] = milli
        else:
            of_pod[key] = milli
    if not of_containers:
        return None, (Container(name="", requests=of_pod),)
    return of_pod or None, tuple(Container(name=name, requests=values) for name, values in of_containers.items())


Loads: TypeAlias = tuple[tuple[float, float], ...]
"""(load above capacity, load) of each metric that has a capacity, integrated over time: units x seconds."""


class Overload(Struct, frozen=True):
    """The load above capacity within a time."""

    times: tuple[tuple[int, int], ...] = ()
    """(start, end) of each overload, ascending, of any metric."""
    loads: Loads = ()


def integrate_overload(metrics: Sequence[tuple[Series, float]], ready: Sequence[tuple[int, int, int]]) -> Overload:
    """Compare the load with the capacity of the ready pods, exactly, whenever either changes; gaps do not count.

    `metrics` are (load, capacity of one pod), and `ready` (start, end, ready pods) of adjacent times.
    """
    times: list[tuple[int, int]] = []
    loads: list[tuple[float, float]] = []
    for series, capacity in metrics:
        above = total = 0.0
        for ready_start, ready_end, pods in ready:
            for start_ms, end_ms, load in series.segments(ready_start, ready_end):
                excess = load - pods * capacity
                if excess > 0.0:
                    times.append((start_ms, end_ms))
                if not math.isnan(load):
                    seconds = (end_ms - start_ms) / 1000
                    total += load * seconds
                    above += max(excess, 0.0) * seconds
        loads.append((above, total))
    return Overload(tuple(_union(times)) if times else (), tuple(loads))


def _union(times: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    times.sort()
    first, last = times[0]
    for start, end in times[1:]:
        if start > last:
            yield first, last
            first, last = start, end
        else:
            last = max(last, end)
    yield first, last


# --- metrics ---------------------------------------------------------------------------------------------------------


def response(source: MetricSource, value: float, workload: Workload, now_ms: int) -> MetricResponse:
    """Return the response to a query for a metric of the workload, from its recorded value; NaN: there is none.

    Of Pods and resource metrics, the ready pods share the total; without one there is no value. Where there is no
    recorded value, the metric fails as it would have.
    """
    there = not math.isnan(value)
    match source:
        case PodsMetric() | ResourceMetric():
            if there and workload.ready:
                return shared_response(source, to_milli(value), workload.ready_names, now_ms)
            if isinstance(source, ResourceMetric):
                return ResourceResponse({})
            return MetricError(f"the server could not find the metric {source.metric.name} for pods")
        case InvalidMetric():
            return MetricError(f"unknown metric source type {source.type}")
    if there:
        return ValuesResponse(values=(to_milli(value),), timestamp_ms=now_ms)
    if isinstance(source, ObjectMetric):
        described = source.described_object
        where = f"{described.kind.lower()} {described.name}"
        return MetricError(f"the server could not find the metric {source.metric.name} for {where}")
    return ValuesResponse(values=())


def to_milli(value: float) -> int:
    """Return a value in thousandths, truncated as prometheus-adapter does, within 64 bits."""
    return int(max(min(value * _MILLI, _LIMIT), -_LIMIT))


def shared_response(
    source: PodsMetric | ResourceMetric, total: int, names: Sequence[str], time_ms: int, *, zeros: Sequence[str] = ()
) -> MetricResponse:
    """Return the response in which pods have equal shares of a total of milli-values, and the pods in `zeros` 0.

    Each pod gets a whole number, and the shares add up to the total.
    """
    share, rest = divmod(total, max(len(names), 1))
    parts = ((names[:rest], share + 1), (names[rest:], share), (zeros, 0))
    if isinstance(source, PodsMetric):
        samples: dict[str, PodSample] = {}
        for some, value in parts:
            samples.update(dict.fromkeys(some, PodSample(value=value, timestamp_ms=time_ms, window_ms=0)))
        return PodsResponse(samples)
    usages: dict[str, PodUsage] = {}
    for some, value in parts:
        values = ((source.container or "", {source.name: value}),)
        usage = PodUsage(timestamp_ms=time_ms, window_ms=RESOURCE_WINDOW_MS, containers=values)
        usages.update(dict.fromkeys(some, usage))
    return ResourceResponse(usages)
