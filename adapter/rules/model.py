"""Rules as the rest of the adapter uses them: the specs of the file, with fields that `reading` adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusOptions
from adapter.rules.schema import Policy, QueryRuleSpec, ResourceRuleSpec, RuleSpec
from adapter.upstream import ServerAccess
from kube.mapping import GroupResource

_SHOWN_QUERY = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePolicy:
    """`nan`, `inf` and `empty` of a rule; the defaults are prometheus-adapter's where that one gives no garbage.

    Attributes:
        nan: a value that is not a number.
        inf: an infinity, or a number that no Quantity can hold.
        empty: an object without a value; for external metrics, a result without values.
        nan_is_written: `nan` is set in the file.
    """

    nan: Policy = Policy.ZERO
    inf: Policy = Policy.MISSING
    empty: Policy = Policy.MISSING
    nan_is_written: bool = False


class Rule(RuleSpec, frozen=True, kw_only=True):
    """A rule that finds its metrics among Prometheus' series. Its `filters` include name.matches.

    Attributes:
        key: where it is in the file: "rules[2]".
        destination: where its queries go.
        values: how to treat values that are not usable.
        digest: changes when the rule does, wherever it is in the file.
    """

    key: str
    destination: Destination = DEFAULT_DESTINATION
    values: ValuePolicy = ValuePolicy()
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.key} ({shortened(self.series_query)})"

    def metric_for(self, series: str) -> str | None:
        """Return the name of the metric that a series makes; None if it is filtered out."""
        return None if self._filtered_by(series) else self.naming.metric_for(series)

    def left_out_by(self, series: str) -> str:
        """The key that leaves a series out, such as seriesFilters[0].isNot; "" when the series makes a metric."""
        return self._filtered_by(series) or ("name.as" if self.naming.metric_for(series) is None else "")

    def _filtered_by(self, series: str) -> str:
        for index, one in enumerate(self.filters):
            if not one.takes(series):
                key = f"seriesFilters[{index}].{'is' if one.keeps else 'isNot'}"
                return "name.matches" if one.regex is self.naming.matches else key
        return ""


class QueryRule(QueryRuleSpec, frozen=True, kw_only=True):
    """A rule of the short form.

    Attributes:
        key: as of Rule, like `destination`, `values` and `digest`.
        resource: the resource of the metric's objects, as written in the file; None for an external metric.
        resource_label: the label with the objects' names; "" for an external metric.
        namespace_label: the label with the namespace; "" for objects without, and for the same values everywhere.
    """

    key: str
    destination: Destination = DEFAULT_DESTINATION
    values: ValuePolicy = ValuePolicy()
    digest: str = ""
    resource: GroupResource | None = None
    resource_label: str = ""
    namespace_label: str = ""

    def __str__(self) -> str:
        return f"{self.key} ({self.metric})"


AnyRule = Rule | QueryRule


class ResourceRule(ResourceRuleSpec, frozen=True, kw_only=True):
    """`resourceRules.cpu` or `.memory`, and where its queries go."""

    destination: Destination = DEFAULT_DESTINATION


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """`resourceRules`; `window` is the time that its rates span, in seconds."""

    cpu: ResourceRule
    memory: ResourceRule
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions(ServerAccess):
    """Address and credentials of another metrics adapter; see ServerAccess. `timeout` is in seconds."""

    what: ClassVar[str] = "the other adapter"
    one: ClassVar[str] = "another adapter"
    schemes: ClassVar[tuple[str, ...]] = ("https",)

    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A whole file. A section that is missing or empty means that its API is not served.

    Attributes:
        custom: `rules`, without those of the short form.
        external: `externalRules`, without those of the short form.
        resource: `resourceRules`.
        custom_queries: the short forms in `rules`.
        external_queries: the short forms in `externalRules`.
        forward: `forwardExternal`.
        digest: the SHA-256 of the text that it was read from.
    """

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()
    resource: ResourceRules | None = None
    custom_queries: tuple[QueryRule, ...] = ()
    external_queries: tuple[QueryRule, ...] = ()
    forward: ForwardOptions | None = None
    digest: str = field(default="", compare=False)

    @property
    def serves_custom(self) -> bool:
        """There are rules for custom.metrics.k8s.io."""
        return bool(self.custom or self.custom_queries)

    @property
    def serves_external(self) -> bool:
        """There are rules for external.metrics.k8s.io, or an adapter that has some."""
        return bool(self.external or self.external_queries or self.forward)

    @property
    def custom_rules(self) -> tuple[AnyRule, ...]:
        """Both forms of rules for custom.metrics.k8s.io, the short form last."""
        return (*self.custom, *self.custom_queries)

    @property
    def external_rules(self) -> tuple[AnyRule, ...]:
        """Both forms of rules for external.metrics.k8s.io, the short form last."""
        return (*self.external, *self.external_queries)

    @property
    def all_rules(self) -> tuple[AnyRule, ...]:
        """Every rule of both APIs."""
        return (*self.custom_rules, *self.external_rules)

    @property
    def servers(self) -> Iterable[PrometheusOptions]:
        """The servers that rules name."""
        resource = (self.resource.cpu, self.resource.memory) if self.resource is not None else ()
        destinations = [rule.destination for rule in (*self.all_rules, *resource)]
        return {destination.server for destination in destinations if destination.server is not None}


def on_one_line(query: str) -> str:
    """A query without line breaks, without the comments that have a line to themselves, and without indentation."""
    if "\n" not in query:
        return query
    lines = (line.strip() for line in query.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("#"))


def shortened(query: str) -> str:
    """A query on one line that is not too long, for messages."""
    flat = " ".join(query.split())
    return flat if len(flat) <= _SHOWN_QUERY else f"{flat[:_SHOWN_QUERY]}..."
