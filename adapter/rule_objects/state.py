"""What the adapter knows of each object with rules."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from adapter.catalog.inventory import ExternalSource, Source
from adapter.rules.objects import RuleObject


class Reason(enum.StrEnum):
    """Why an object's rules are served or not; the reasons of the condition Ready that need no query of values."""

    READY = "Ready"
    PENDING = "Pending"
    INVALID = "Invalid"
    CONFLICT = "Conflict"
    TOO_MANY_RULES = "TooManyRules"
    QUERY_FAILED = "QueryFailed"
    PROMETHEUS_UNAVAILABLE = "PrometheusUnavailable"


class ObjectState(msgspec.Struct, frozen=True, kw_only=True):
    """An object with rules, and what became of them.

    Attributes:
        object: the object.
        reason: READY: all its metrics are served. CONFLICT: another rule makes one of them.
        message: the reason in words; "" for READY.
        metrics: the names of its metrics, in the order of its rules, without repetitions.
        series: the number of names of series that its rules with a seriesQuery have found.
    """

    object: RuleObject
    reason: Reason
    message: str = ""
    metrics: tuple[str, ...] = ()
    series: int = 0


@dataclass(slots=True)
class Entry:
    """An object, and the metrics of its rules.

    Attributes:
        object: the object.
        sources: its metrics.
        problem: why there are none, and the reason for it; None: there is no problem.
        retry_seconds: when to read the object again because of the problem; None: when it changes.
        series: see ObjectState.
        is_allowed: older rules of its namespace leave room for it.
    """

    object: RuleObject
    sources: tuple[Source, ...] = ()
    problem: tuple[Reason, str] | None = None
    retry_seconds: float | None = None
    series: int = 0
    is_allowed: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(dict.fromkeys(map(metric_of, self.sources)))


def metric_of(source: Source) -> str:
    """Return the name of a metric."""
    return source.metric if isinstance(source, ExternalSource) else source.info.metric
