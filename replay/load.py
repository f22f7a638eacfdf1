"""Recorded load: what the metrics of HPAs were over time, wherever it was recorded.

Values are floats in the metric's unit, NaN where there is none; times are milliseconds since the Unix epoch.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.core.model import MetricSource


class ReplayError(Exception):
    """A replay cannot be computed; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric: the total over all pods, an object's value, or the sum of an external metric's series."""

    times_ms: array[int]
    """Ascending."""
    values: array[float]
    hold_ms: int
    """How long a sample counts, if no other follows."""

    def at(self, time_ms: int) -> float:
        """Return the value at a time; NaN if there is none."""
        index = bisect_right(self.times_ms, time_ms) - 1
        if index < 0 or time_ms >= self.times_ms[index] + self.hold_ms:
            return math.nan
        return self.values[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The recorded metrics of the HPAs that are replayed."""

    start_ms: int
    end_ms: int
    """After the last reconciliation."""
    series: Mapping[str, Series]
    """{`metric_key` of a metric: its values}."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """{resource: what one pod requests, in milli-values}, where known; a container's is CONTAINER/RESOURCE."""
    replicas: Series | None = None
    """The replicas that there were, if recorded."""
    ready_replicas: Series | None = None
    """How many of them were ready, if recorded."""


def metric_key(source: MetricSource) -> str:
    """Return the name of a metric in `Load.series`: NAME, NAME{SELECTOR}, RESOURCE or CONTAINER/RESOURCE."""
    raise NotImplementedError
