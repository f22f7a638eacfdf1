"""Recorded totals as the metrics APIs' responses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from autoscaler.core.model import InvalidMetric, MetricSource, ObjectMetric, PodsMetric, ResourceMetric
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    ValuesResponse,
)
from replay.load import Series
from replay.workload import Workload

RESOURCE_WINDOW_MS: Final = 30_000
"""The window of a resource's values: metrics-server's at its default resolution of 15 s is at most that."""
_MILLI: Final = 1000.0
_LIMIT: Final = 2**63 - 1

Responder: TypeAlias = Callable[[Workload, int], MetricResponse]
"""Return the response to a query for the workload's pods, at a time in milliseconds."""


def responder(source: MetricSource, series: Series) -> Responder:
    """Return the function that answers queries for a metric from its recorded values.

    Of Pods and resource metrics, the ready pods share the total; without one there is no value. Where there is no
    recorded value, the metric fails as it would have.
    """
    match source:
        case PodsMetric() | ResourceMetric():
            return _of_pods(source, series)
        case InvalidMetric():
            return lambda _, __: MetricError(f"unknown metric source type {source.type}")
        case _:
            return _values(source, series)


def to_milli(value: float) -> int:
    """Return a value in thousandths, truncated as prometheus-adapter does, within 64 bits."""
    return int(max(min(value * _MILLI, _LIMIT), -_LIMIT))


def shared_response(
    source: PodsMetric | ResourceMetric, total: int, names: Sequence[str], time_ms: int, *, zeros: Sequence[str] = ()
) -> MetricResponse:
    """Return the response in which pods have equal shares of a total of milli-values.

    Args:
        source: the metric.
        total: each pod gets a whole number; the shares add up to the total.
        names: the pods.
        time_ms: the time of the values.
        zeros: further pods, whose value is 0.
    """
    share, rest = divmod(total, max(len(names), 1))
    parts = ((names[:rest], share + 1), (names[rest:], share), (zeros, 0))
    if isinstance(source, PodsMetric):
        samples: dict[str, PodSample] = {}
        for some, value in parts:
            samples.update(dict.fromkeys(some, PodSample(value=value, timestamp_ms=time_ms, window_ms=0)))
        return PodsResponse(samples)
    container, usages = source.container or "", list[PodUsage]()
    for some, value in parts:
        values = ((container, {source.name: value}),)
        usages += [
            PodUsage(name=name, timestamp_ms=time_ms, window_ms=RESOURCE_WINDOW_MS, containers=values) for name in some
        ]
    return ResourceResponse(tuple(usages))


def _of_pods(source: PodsMetric | ResourceMetric, series: Series) -> Responder:
    missing: MetricResponse = ResourceResponse(())
    if isinstance(source, PodsMetric):
        missing = MetricError(f"the server could not find the metric {source.metric.name} for pods")

    def respond(workload: Workload, now_ms: int) -> MetricResponse:
        value, names = series.at(now_ms), workload.ready_names
        if math.isnan(value) or not names:
            return missing
        return shared_response(source, to_milli(value), names, now_ms)

    return respond


def _values(source: MetricSource, series: Series) -> Responder:
    missing: MetricResponse = ValuesResponse(values=())
    if isinstance(source, ObjectMetric):
        described = source.described_object
        where = f"{described.kind.lower()} {described.name}"
        missing = MetricError(f"the server could not find the metric {source.metric.name} for {where}")

    def respond(_: Workload, now_ms: int) -> MetricResponse:
        value = series.at(now_ms)
        return missing if math.isnan(value) else ValuesResponse(values=(to_milli(value),), timestamp_ms=now_ms)

    return respond
