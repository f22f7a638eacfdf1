"""The lines of the charts, which the page and the pictures draw: load and targets, replicas, overload and gaps.

All are small enough to draw: the load has few points however long it is, and keeps its peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.core.model import MetricSpec, ResourceMetric
from replay.load import Load, Series, metric_key
from replay.output.comparison import Comparison
from replay.results import Replayed
from replay.simulation import target_per_pod

MAX_POINTS: Final = 4000
"""Points of a line of load."""
COLORS: Final = ("#3b82f6", "#e69f00", "#10a37f", "#c864a8", "#8b6cf0", "#56b4e9", "#a3a322")
"""Of the specs, in turn; visible on light and dark ground, and to people who do not see all colors."""
REALITY_COLOR: Final = "#808080"
LOAD_COLOR: Final = "#7d8590"
OVERLOAD_COLOR: Final = "#dc2626"
GAP_COLOR: Final = "#9ca3af"
_UNITS: Final = {"cpu": "cores", "memory": "bytes"}
_MILLI: Final = 1000
_MAX_NAME: Final = 26


@dataclass(frozen=True, slots=True)
class Line:
    """A line of steps: each value counts until the next point; NaN: nothing is drawn."""

    times_ms: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the replicas of one spec were meant to serve."""

    replay: int
    """The index of the spec's replay."""
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChart:
    """One metric."""

    title: str
    load: Line
    targets: Sequence[Target]


def load_charts(comparison: Comparison, *, max_points: int = MAX_POINTS) -> list[LoadChart]:
    """Return one chart for each metric of any spec."""
    load = comparison.load
    specs: dict[str, list[tuple[int, MetricSpec]]] = {}
    for index, hpa in enumerate(comparison.hpas):
        for spec in hpa.spec.metrics:
            specs.setdefault(metric_key(spec.source), []).append((index, spec))
    return [
        LoadChart(
            title=_title(key, used[0][1]),
            load=downsample(load.series[key], load.start_ms, load.end_ms, max_points=max_points),
            targets=[
                Target(replay=index, line=line)
                for index, spec in used
                if (line := _target_line(spec, load, comparison.replays[index])) is not None
            ],
        )
        for key, used in specs.items()
    ]


def replicas_line(replayed: Replayed) -> Line:
    """Return the replicas: a point for each change, and one at the end."""
    changes = [(replayed.start_ms, replayed.initial_replicas)]
    changes += [(scale.time_ms, scale.desired_replicas) for scale in replayed.scales]
    changes.append((replayed.end_ms, changes[-1][1]))
    return Line([time for time, _ in changes], [float(replicas) for _, replicas in changes])


def visible(times: Sequence[tuple[int, int]], load: Load, *, max_points: int = MAX_POINTS) -> list[tuple[int, int]]:
    """Return times, joined where one could not see them apart."""
    distance = (load.end_ms - load.start_ms) / max_points
    joined: list[tuple[int, int]] = []
    for start, end in times:
        if joined and start - joined[-1][1] < distance:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def downsample(series: Series, start_ms: int, end_ms: int, *, max_points: int = MAX_POINTS) -> Line:
    """Return a series as a line of at most `max_points` points: the least and the highest value of each interval."""
    segments = [(start, value) for start, _, value in series.segments(start_ms, end_ms)]
    if len(segments) >= max_points:
        # One point is the end's.
        segments = list(_extremes(segments, start_ms, (end_ms - start_ms) / ((max_points - 1) // 2)))
    last = segments[-1][1] if segments else math.nan
    return Line([*(start for start, _ in segments), end_ms], [*(value for _, value in segments), last])


def _extremes(segments: Iterable[tuple[int, float]], start_ms: int, width: float) -> Iterable[tuple[int, float]]:
    """Yield the least and the highest value of each interval in the order of time; NaN if it has no value."""
    buckets: dict[int, list[tuple[int, float]]] = {}
    for time, value in segments:
        buckets.setdefault(int((time - start_ms) / width), []).append((time, value))
    for bucket in buckets.values():
        values = [point for point in bucket if not math.isnan(point[1])]
        if values:
            yield from sorted({min(values, key=lambda point: point[1]), max(values, key=lambda point: point[1])})
        else:
            yield bucket[0]


def _target_line(spec: MetricSpec, load: Load, replayed: Replayed) -> Line | None:
    per_pod = target_per_pod(spec, load.requests)
    if per_pod is not None:
        replicas = replicas_line(replayed)
        return Line(replicas.times_ms, [per_pod * each for each in replicas.values])
    if spec.target.value is None:
        return None
    return Line([replayed.start_ms, replayed.end_ms], [spec.target.value.milli / _MILLI] * 2)


def _title(key: str, spec: MetricSpec) -> str:
    if isinstance(spec.source, ResourceMetric):
        return f"{key} ({_UNITS.get(spec.source.name, 'total')})"
    return key


def color(index: int) -> str:
    """Return the color of a spec."""
    return COLORS[index % len(COLORS)]


def shortened(name: str) -> str:
    """Return a name that fits beside a chart; where several have the same beginning, their ends differ."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME // 3]}…{name[-(_MAX_NAME - _MAX_NAME // 3 - 1) :]}"
