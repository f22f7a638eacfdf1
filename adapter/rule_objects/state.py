"""What the adapter knows of each object with rules."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from adapter.catalog.inventory import Source
from adapter.catalog.rule_states import NOT_LISTED, Problem, Reason, RuleState
from adapter.rules import Rule
from adapter.rules.objects import RuleObject


class ObjectState(msgspec.Struct, frozen=True, kw_only=True):
    """An object with rules, and what became of them.

    Attributes:
        object: the object.
        reason: READY: all its metrics are served. CONFLICT: another rule makes one of them.
        message: the reason in words; "" for READY.
        metrics: the names of its metrics, in the order of its rules, without repetitions.
    """

    object: RuleObject
    reason: Reason
    message: str = ""
    metrics: tuple[str, ...] = ()


@dataclass(slots=True)
class Entry:
    """An object, and the metrics of its rules.

    Attributes:
        object: the object; without its rules if they are too many.
        identity: the path of its collection, namespace and name, see ObjectId.
        number: the number of its rules.
        rules: its rules by their keys.
        excess: why there is no room for it: TOO_MANY_RULES, TOO_MANY_METRICS; PENDING: it is being read again. None:
            there is.
    """

    object: RuleObject
    identity: tuple[str, tuple[str, str]]
    number: int
    rules: dict[str, RuleState] = field(default_factory=dict)
    excess: Reason | None = None

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
