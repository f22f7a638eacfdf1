"""What the adapter knows of each object with rules."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from adapter.catalog.inventory import ExternalSource, Source
from adapter.rules import AnyRule
from adapter.rules.objects import RuleObject


class Reason(enum.StrEnum):
    """Why an object's rules are served or not: the reasons of the condition Ready that need no query for a value."""

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


class RuleState(msgspec.Struct, frozen=True, gc=False):
    """A rule of an object, and its metrics.

    Attributes:
        rule: the rule.
        sources: its metrics; those of the last list of its series that succeeded.
        series: the number of names of series found.
        problem: what is wrong, and the reason for it; None: nothing is.
    """

    rule: AnyRule
    sources: tuple[Source, ...] = ()
    series: int = 0
    problem: tuple[Reason, str] | None = None


@dataclass(slots=True)
class Entry:
    """An object, and the metrics of its rules.

    Attributes:
        object: the object.
        rules: its rules by their keys.
        is_allowed: older rules of its namespace leave room for it.
    """

    object: RuleObject
    rules: dict[str, RuleState] = field(default_factory=dict)
    is_allowed: bool = True

    @property
    def sources(self) -> tuple[Source, ...]:
        """Its metrics."""
        return tuple(source for rule in self.rules.values() for source in rule.sources)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""
        names = (source.metric if isinstance(source, ExternalSource) else source.info.metric for source in self.sources)
        return tuple(dict.fromkeys(names))

    @property
    def problem(self) -> tuple[Reason, str] | None:
        """The first problem of its rules; None: there is none."""
        if self.object.error:
            return Reason(self.object.reason), self.object.error
        return next((rule.problem for rule in self.rules.values() if rule.problem is not None), None)
