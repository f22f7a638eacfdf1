"""Recorded totals as the metrics APIs' responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

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
from replay.workload import Workload

RESOURCE_WINDOW_MS: Final = 30_000
"""The window of a resource's values: metrics-server's at its default resolution of 15 s is at most that."""
_MILLI: Final = 1000.0
_LIMIT: Final = 2**63 - 1


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
                return ResourceResponse(())
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
