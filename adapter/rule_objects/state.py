"""What the adapter knows of each object with rules: its metrics, and why they are served or not."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import Source
from adapter.catalog.rule_states import NOT_LISTED, Problem, Reason, RuleState
from adapter.rules import Rule
from adapter.rules.objects import RuleObject, Tenancy


class ObjectState(msgspec.Struct, frozen=True, kw_only=True):
    """An object with rules, and what became of them."""

    object: RuleObject
    """The object."""
    reason: Reason
    """READY: all its metrics are served. CONFLICT: another rule makes one of them."""
    message: str = ""
    """The reason in words; "" for READY."""
    metrics: tuple[str, ...] = ()
    """The names of its metrics, in the order of its rules, without repetitions."""


@dataclass(slots=True)
class Entry:
    """An object, and the metrics of its rules."""

    object: RuleObject
    """The object; without its rules if they are too many."""
    identity: tuple[str, tuple[str, str]]
    """The path of its collection, namespace and name, see ObjectId."""
    number: int
    """The number of its rules."""
    rules: dict[str, RuleState] = field(default_factory=dict)
    """Its rules by their keys."""
    excess: Reason | None = None
    """Why there is no room for it: TOO_MANY_RULES, TOO_MANY_METRICS; PENDING: it is being read again. None: there
    is."""

    @property
    def made(self) -> int:
        """The number of its metrics, also while there is no room for them."""
        return sum(rule.made for rule in self.rules.values())

    def refuse(self, excess: Reason) -> None:
        """Keep nothing of it that takes much memory: it has no room."""
        self.excess = excess
        if excess is Reason.TOO_MANY_RULES:
            self.object, self.rules = structs.replace(self.object, rules=()), {}
        for key, state in self.rules.items():
            if state.sources and isinstance(state.rule, Rule):
                self.rules[key] = structs.replace(state, sources=(), problem=NOT_LISTED)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Its metrics."""
        return tuple(source for rule in self.rules.values() for source in rule.sources)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(dict.fromkeys(source.metric for source in self.sources))

    @property
    def problem(self) -> Problem | None:
        """The first problem of its rules; None: there is none."""
        if self.object.error:
            return Problem(Reason(self.object.reason), self.object.error)
        return next((rule.problem for rule in self.rules.values() if rule.problem is not None), None)

    def reason(self, catalog: Catalog, *, tenancy: Tenancy, share: int) -> tuple[Reason, str]:
        """Return the reason of its state, and a message for its author.

        Args:
            catalog: the metrics of the rules file and of all objects.
            tenancy: how many rules and metrics a namespace can have.
            share: how many metrics it can have, because of those of all namespaces.
        """
        problem = self.problem
        if problem is not None and problem.reason is Reason.INVALID:
            return problem
        if self.excess is Reason.TOO_MANY_RULES:
            return self.excess, f"the namespace has more than {tenancy.max_rules} rules; the oldest objects are used"
        if self.excess is Reason.TOO_MANY_METRICS:
            why = f"it makes {self.made} metrics; with those of older objects its namespace would have more than"
            if share < tenancy.max_metrics:
                total = f"all objects together can make {tenancy.total_metrics}"
                return self.excess, f"{why} {share}, its share for now: {total} (--rule-objects-max-metrics)"
            return self.excess, f"{why} {tenancy.max_metrics} (--tenant-max-metrics)"
        if self.excess is not None:
            return self.excess, "it is being read again"
        for source in self.sources:
            if other := catalog.maker_instead(self.object.name, source):
                return Reason.CONFLICT, f"{source} is made by {other}"
        return problem or (Reason.READY, "")
