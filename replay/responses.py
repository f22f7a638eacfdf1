"""Recorded totals as the metrics APIs' responses."""

from __future__ import annotations

import math
from collections.abc import Callable
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
        case PodsMetric():
            return _pods(source, series)
        case ResourceMetric():
            return _resource(source, series)
        case InvalidMetric():
            return lambda _, __: MetricError(f"unknown metric source type {source.type}")
        case _:
            return _values(source, series)


def to_milli(value: float) -> int:
    """Return a value in thousandths, truncated as prometheus-adapter does, within 64 bits."""
    return int(max(min(value * _MILLI, _LIMIT), -_LIMIT))


def _pods(source: PodsMetric, series: Series) -> Responder:
    not_found = MetricError(f"the server could not find the metric {source.metric.name} for pods")

    def respond(workload: Workload, now_ms: int) -> MetricResponse:
        value, names = series.at(now_ms), workload.ready_names
        if math.isnan(value) or not names:
            return not_found
        share, rest = divmod(to_milli(value), len(names))
        sample = PodSample(value=share, timestamp_ms=now_ms, window_ms=0)
        samples = dict.fromkeys(names, sample)
        if rest:
            more = PodSample(value=share + 1, timestamp_ms=now_ms, window_ms=0)
            samples.update(dict.fromkeys(names[:rest], more))
        return PodsResponse(samples)

    return respond


def _resource(source: ResourceMetric, series: Series) -> Responder:
    container, resource = source.container or "", source.name

    def respond(workload: Workload, now_ms: int) -> MetricResponse:
        value, names = series.at(now_ms), workload.ready_names
        if math.isnan(value) or not names:
            return ResourceResponse(())
        share, rest = divmod(to_milli(value), len(names))
        usual = ((container, {resource: share}),)
        more = ((container, {resource: share + 1}),)
        return ResourceResponse(
            tuple(
                [
                    PodUsage(
                        name=name,
                        timestamp_ms=now_ms,
                        window_ms=RESOURCE_WINDOW_MS,
                        containers=more if index < rest else usual,
                    )
                    for index, name in enumerate(names)
                ]
            )
        )

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
