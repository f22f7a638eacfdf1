"""What a replay found: its steps, and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.core.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reconciliation of a replay."""

    time_ms: int
    replicas: int
    """Before the decision."""
    ready: int
    """Of these, ready."""
    desired_replicas: int
    """After it: the replicas until the next step."""
    values: tuple[float, ...]
    """The recorded value of each metric of the spec, in its order; NaN: none."""
    overload: float
    """The load above capacity, at the time of the step, in the unit of the metric that has a capacity; NaN: unknown."""
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures by which specs are compared."""

    seconds: float
    """Length of the replay."""
    min_replicas: int
    mean_replicas: float
    max_replicas: int
    pod_hours: float
    scale_events: int
    flaps: int
    """Scale events in the other direction than the one before, within 10 minutes of it."""
    overload_seconds: float | None
    """None: no metric has a capacity."""
    overload_requests: float | None
    """The load above capacity, integrated over time: requests for a metric of requests per second."""
    overload_ratio: float | None
    """`overload_requests` of all requests."""
    at_max_seconds: float
    no_metrics_seconds: float
    """Time in which a metric of the spec had no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One HPA over the whole load. Everything that plots need, in little memory."""

    name: str
    """How outputs name the spec: NAMESPACE/NAME, with its file where several have the same name."""
    summary: Summary
    scales: Sequence[Step]
    """The first step, and those that scaled."""
    overloads: Sequence[tuple[int, int]]
    """(start, end) of each overload, in milliseconds."""
    gaps: Sequence[tuple[int, int]]
    """(start, end) of each time without a metric."""
