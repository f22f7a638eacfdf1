"""What a recording shows of the real pods: how long they took to become ready, and the load that they carried."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from autoscaler.core.model import HPA, MetricSpec, PodsMetric, ResourceMetric
from replay.load import Load, ReplayError, Series, Startup, metric_key
from replay.simulation import target_per_pod

CARRIED_MS: Final = 15 * 60_000
"""How long pods must have carried a load, all times together, or for a hundredth of a shorter recording."""
_SCALING_MS: Final = 5 * 60_000
"""Before more pods are ready: the load then was perhaps too much for those that were."""
_SCALES: Final = "the median of the recorded scale-ups, of which there are {}"


def with_startup(load: Load, seconds: float | None, hpas: Iterable[HPA], *, has_capacity: bool) -> Load:
    """Return the load with the given time until a pod is ready; with None, it is that of the recording.

    Raises:
        ReplayError: it is not recorded, and decisions or overload depend on it.
    """
    startup = startup_of(load) if seconds is None else Startup(round(seconds * 1000), "as given")
    metrics = [spec for hpa in hpas for spec in hpa.spec.metrics]
    if not has_capacity and not any(_depends_on_pods(spec) for spec in metrics):
        startup = startup or Startup(0, "on which nothing here depends")
    if startup is None:
        raise ReplayError(
            "how long a new pod takes to become ready is not recorded: give --pod-startup, such as --pod-startup=30s"
        )
    return replace(load, startup=startup)


def _depends_on_pods(spec: MetricSpec) -> bool:
    return spec.target.value is not None or isinstance(spec.source, PodsMetric | ResourceMetric)


def startup_of(load: Load) -> Startup | None:
    """Return how long new pods took to become ready, by the recorded replicas and ready replicas; None: unknown.

    Each change came between two samples, and counts from the middle between them.
    """
    replicas, ready = load.replicas, load.ready_replicas
    if load.startup is not None or replicas is None or ready is None:
        return load.startup
    durations = [
        found
        for before_ms, seen_ms, wanted, until_ms in _raises(replicas, load)
        if (found := _until_ready(ready, before_ms, seen_ms, wanted, until_ms)) is not None
    ]
    return Startup(round(statistics.median(durations)), _SCALES.format(len(durations))) if durations else None


def shown_capacity(hpa: HPA, load: Load) -> dict[str, tuple[float, int]]:
    """Return {`metric_key`: (what a ready pod has carried, when)} of the metrics that decide the replicas.

    A metric whose load per pod has not reached its target does not decide them. The load at maxReplicas does not count.
    """
    found: dict[str, tuple[float, int]] = {}
    least_ms, most = min(CARRIED_MS, (load.end_ms - load.start_ms) // 100), hpa.spec.max_replicas
    for spec in hpa.spec.metrics:
        target, key = target_per_pod(spec, load.requests), metric_key(spec.source)
        shown = carried(load, key, least_ms=least_ms, below=most, scaling_ms=_SCALING_MS)
        if target is not None and shown is not None and shown[0] >= target:
            found[key] = shown
    return found


def carried(
    load: Load, key: str, *, least_ms: int = 0, below: float = math.inf, scaling_ms: int = 0
) -> tuple[float, int] | None:
    """Return the highest load of a metric per ready pod, and its time; None if no ready pods are recorded.

    Args:
        load: the recording.
        key: of the metric.
        least_ms: how long so much or more was carried, all times together.
        below: only times with fewer replicas count.
        scaling_ms: a time so long before there are more ready pods does not count: perhaps it was too much for them.
    """
    ready = load.ready_replicas or load.replicas
    if ready is None or key not in load.series:
        return None
    found = [
        (value / pods, at_ms, until_ms - at_ms)
        for start_ms, end_ms, pods in ready.segments(load.start_ms, load.end_ms)
        if pods >= 1 and not (load.replicas is not None and load.replicas.at(start_ms) >= below)
        if not (scaling_ms and ready.at(min(end_ms + scaling_ms, load.end_ms - 1)) > pods)
        for at_ms, until_ms, value in load.series[key].segments(start_ms, end_ms)
        if not math.isnan(value)
    ]
    so_far_ms = 0
    for value, at_ms, length_ms in sorted(found, reverse=True):
        so_far_ms += length_ms
        if so_far_ms >= least_ms:
            return value, at_ms
    return None


def _raises(replicas: Series, load: Load) -> Iterator[tuple[int, int, int, int]]:
    """Yield (the times between which they rose, replicas, until when there are at least as many) of each rise.

    When they rose in a gap is not known, so such rises are left out.
    """
    parts = [
        (start, end, round(value))
        for start, end, value in replicas.segments(load.start_ms, load.end_ms)
        if value == value
    ]
    for index, ((before_ms, end_ms, before), (start_ms, _, value)) in enumerate(itertools.pairwise(parts), 1):
        if value > before and end_ms == start_ms:
            lower = (later for later, _, other in parts[index:] if other < value)
            yield before_ms, start_ms, value, next(lower, load.end_ms)


def _until_ready(ready: Series, before_ms: int, seen_ms: int, wanted: int, until_ms: int) -> float | None:
    last_ms = seen_ms
    for at_ms, _, value in ready.segments(seen_ms, until_ms):
        if value >= wanted:
            return (last_ms + at_ms) / 2 - (before_ms + seen_ms) / 2
        last_ms = at_ms
    return None
