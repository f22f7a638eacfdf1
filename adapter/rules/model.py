"""Rules that are known to be usable: no regex that does not compile, no template with a field that does not exist."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from adapter.gotemplate import Template
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusOptions
from adapter.rules.naming import MetricNaming, ResourceNaming, SeriesFilter
from adapter.upstream import ServerAccess
from kube.mapping import GroupResource

_SHOWN_QUERY = 80


class RulesError(ValueError):
    """A rules file cannot be used. The message is one line: the file, the place in it, and what to change."""


class Policy(enum.Enum):
    """What becomes of a value that is none."""

    ZERO = "zero"
    MISSING = "missing"
    ERROR = "error"


class Merge(enum.Enum):
    """Whether requests for different objects become one query."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePolicy:
    """`nan`, `inf` and `empty` of a rule; the defaults are prometheus-adapter's where that one gives no garbage.

    Attributes:
        nan: a value that is not a number.
        inf: an infinity, or a number that no Quantity can hold.
        empty: an object without a value; for external metrics, a result without values.
        nan_is_written: the file says what becomes of a value that is not a number.
    """

    nan: Policy = Policy.ZERO
    inf: Policy = Policy.MISSING
    empty: Policy = Policy.MISSING
    nan_is_written: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `rules` or `externalRules` that finds its metrics among Prometheus' series.

    Attributes:
        key: where it stands: "rules[2]".
        series_query: the selector that finds its series, as Prometheus takes it in match[].
        filters: what a series' name must pass, name.matches included.
        naming: how a series' name becomes a metric's.
        resources: which labels name which resources.
        query: the template of the PromQL, with QUERY_FIELDS.
        destination: where its queries go.
        values: what becomes of values that are none.
        max_age: how old a series may be, in seconds, if not as old as --metrics-max-age says.
        merge: whether requests for different objects become one query.
        digest: what changes when the rule does, wherever it stands.
    """

    key: str
    series_query: str
    filters: tuple[SeriesFilter, ...]
    naming: MetricNaming
    resources: ResourceNaming
    query: Template
    destination: Destination = DEFAULT_DESTINATION
    values: ValuePolicy = ValuePolicy()
    max_age: float | None = None
    merge: Merge = Merge.AUTO
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.key} ({shortened(self.series_query)})"

    def metric_for(self, series: str) -> str | None:
        """The metric that a series makes; None when it is filtered out."""
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


@dataclass(frozen=True, slots=True)
class QueryRule:
    """An entry of the short form: one metric, one query that is sent as it is, its result filtered.

    Attributes:
        key: where it stands: "rules[2]".
        metric: the metric's name.
        query: PromQL.
        resource: whose metric it is, as the file spells it; None for an external metric.
        resource_label: the label with the objects' names; "" for an external metric.
        namespace_label: the label with the namespace; "" for objects without, and for the same values everywhere.
        destination: where its queries go.
        values: what becomes of values that are none.
        digest: what changes when the rule does, wherever it stands.
    """

    key: str
    metric: str
    query: str
    resource: GroupResource | None = None
    resource_label: str = ""
    namespace_label: str = ""
    destination: Destination = DEFAULT_DESTINATION
    values: ValuePolicy = ValuePolicy()
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.key} ({self.metric})"


AnyRule = Rule | QueryRule


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """`resourceRules.cpu` or `.memory`: the queries for containers and for nodes, and the label with the container."""

    container_query: Template
    node_query: Template
    resources: ResourceNaming
    container_label: str
    destination: Destination = DEFAULT_DESTINATION


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """`resourceRules`; `window` is the time that its rates span, in seconds."""

    cpu: ResourceRule
    memory: ResourceRule
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions(ServerAccess):
    """How another adapter is reached; see ServerAccess for the rest. `timeout` is in seconds."""

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
        """The rules of custom.metrics.k8s.io, of both forms, the short ones last."""
        return (*self.custom, *self.custom_queries)

    @property
    def external_rules(self) -> tuple[AnyRule, ...]:
        """The rules of external.metrics.k8s.io, of both forms, the short ones last."""
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
