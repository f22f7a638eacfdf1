"""The rules file: its schema, and what it is decoded to.

Every regular expression in it compiles, every template has only fields that exist. Keys are those of prometheus-adapter
and our own; fields whose name has a $ are set by `reading`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from adapter.gotemplate import Template
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusOptions
from adapter.rules.naming import MetricNaming, ResourceNaming, SeriesFilter
from adapter.rules.schema_types import Boolean, Duration, Headers, RequiredText, Section, ShortOverrides, Window
from adapter.upstream import ServerAccess
from kube.mapping import GroupResource

_SHOWN_QUERY = 80
_SMALLEST_QUERY_LIMIT = 1024  # below this a query cannot even name a metric and an object


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


class _Destined(Section, frozen=True, kw_only=True):
    """What has queries.

    Attributes:
        prometheus: the name of a server in `prometheusServers`; "" or "default" for that of --prometheus-url.
        headers: sent with the queries.
        destination: both of them.
    """

    prometheus: str = ""
    headers: Headers = Headers()
    destination: Destination = msgspec.field(name="$destination", default=DEFAULT_DESTINATION)


class _AnyRule(_Destined, frozen=True, kw_only=True):
    """A rule of either form.

    Attributes:
        nan: as in ValuePolicy, like `inf` and `empty`; None where the file does not say.
        key: where the rule is in the file: "rules[2]".
        values: what becomes of values that are none.
        digest: changes when the rule does, wherever it is in the file.
    """

    nan: Policy | None = None
    inf: Policy | None = None
    empty: Policy | None = None
    key: str = msgspec.field(name="$key", default="")
    values: ValuePolicy = msgspec.field(name="$values", default=ValuePolicy())
    digest: str = msgspec.field(name="$digest", default="")


class Rule(_AnyRule, frozen=True, kw_only=True):
    """One entry of `rules` or `externalRules` that finds its metrics among Prometheus' series.

    Attributes:
        series_query: the selector that finds its series, as Prometheus takes it in match[].
        query: the template of the PromQL, with QUERY_FIELDS.
        filters: what a series' name must pass, name.matches included.
        naming: how a series' name becomes a metric's.
        resources: which labels name which resources.
        max_age: how old a series may be, in seconds, if not as old as --metrics-max-age says.
        merge: whether requests for different objects become one query.
    """

    series_query: RequiredText
    query: Template = msgspec.field(name="metricsQuery")
    filters: tuple[SeriesFilter, ...] = msgspec.field(name="seriesFilters", default=())
    naming: MetricNaming = msgspec.field(name="name", default=MetricNaming())
    resources: ResourceNaming = ResourceNaming()
    max_age: Duration | None = None
    merge: Merge = Merge.AUTO

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


class QueryRule(_AnyRule, frozen=True, kw_only=True):
    """An entry of the short form: one metric, one query that is sent as it is, its result filtered.

    Attributes:
        metric: the metric's name.
        query: PromQL.
        resources: the labels of the result that name objects and namespaces, from which the following come.
        resource: the resource of the metric's objects, as the file spells it; None for an external metric.
        resource_label: the label with the objects' names; "" for an external metric.
        namespace_label: the label with the namespace; "" for objects without, and for the same values everywhere.
    """

    metric: RequiredText = msgspec.field(name="name")
    query: RequiredText
    resources: ShortOverrides = ShortOverrides()
    resource: GroupResource | None = msgspec.field(name="$resource", default=None)
    resource_label: str = msgspec.field(name="$resourceLabel", default="")
    namespace_label: str = msgspec.field(name="$namespaceLabel", default="")

    def __str__(self) -> str:
        return f"{self.key} ({self.metric})"


AnyRule = Rule | QueryRule


class ResourceRule(_Destined, frozen=True, kw_only=True):
    """`resourceRules.cpu` or `.memory`: the queries for containers and for nodes, and the label with the container."""

    container_query: Template
    node_query: Template
    container_label: RequiredText
    resources: ResourceNaming = ResourceNaming()


class ResourceRules(Section, frozen=True, kw_only=True):
    """`resourceRules`; `window` is the time that its rates span, in seconds."""

    cpu: ResourceRule
    memory: ResourceRule
    window: Window = Window(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions(ServerAccess):
    """How another adapter is reached; see ServerAccess for the rest. `timeout` is in seconds."""

    what: ClassVar[str] = "the other adapter"
    one: ClassVar[str] = "another adapter"
    schemes: ClassVar[tuple[str, ...]] = ("https",)

    timeout: float = 10.0


class _Access(Section, frozen=True, kw_only=True):
    url: RequiredText
    headers: Headers = Headers()
    token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_tls_verify: Boolean = msgspec.field(name="insecureSkipTLSVerify", default=Boolean(False))

    def arguments(self) -> dict[str, Any]:
        """Return what the file sets, as arguments of the options' class."""
        return {key: value for key, value in msgspec.structs.asdict(self).items() if value}


class ServerSpec(_Access, frozen=True, kw_only=True):
    """An entry of `prometheusServers`, from which PrometheusOptions are made."""

    verb: str = ""
    query_timeout: Duration | None = msgspec.field(name="timeout", default=None)
    max_query_bytes: Annotated[int, msgspec.Meta(ge=_SMALLEST_QUERY_LIMIT)] | None = None


class ForwardSpec(_Access, frozen=True, kw_only=True):
    """`forwardExternal`, from which ForwardOptions are made."""

    timeout: Duration | None = None


class FileSpec(Section, frozen=True, kw_only=True):
    """The top level of a file. Its parts are decoded one by one, so that messages can name them."""

    rules: tuple[dict[str, Any], ...] = ()
    external_rules: tuple[dict[str, Any], ...] = ()
    resource_rules: dict[str, Any] | None = None
    prometheus_servers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    forward_external: dict[str, Any] | None = None


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
