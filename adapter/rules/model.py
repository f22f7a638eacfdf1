"""The rules, as in the rules file and as used by the rest of the adapter.

Keys are prometheus-adapter's and milliscale's. All values are valid: every regular expression compiles, every template
uses only existing fields, every duration and header is valid. Fields with names in angle brackets are not read from the
file, but set by `reading`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from adapter.gotemplate import Template
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusOptions
from adapter.prometheus.options import PartialResponses
from adapter.promql import is_plain_name
from adapter.rules.field_types import (
    Boolean,
    Duration,
    Forecasting,
    Headers,
    RequiredText,
    Section,
    ShortOverrides,
    Window,
)
from adapter.rules.naming import MetricNaming, ResourceNaming, SeriesFilter
from adapter.rules.schedule_spec import Activation, ScheduleSpec
from adapter.schedules.schedule import Schedule
from adapter.upstream import Auth, ServerAccess
from adapter.upstream.access import Parameters
from kube.api.mapping import GroupResource

_SHOWN_QUERY = 80
# Other names are in quotes in PromQL.
_QUOTES = frozenset("\"'`\\")
_UNQUOTED = re.compile(r"""(?<!["'`])<<-?\s*\.Series\b""")
_THE_OTHER_ADAPTER = "the adapter that external metrics are forwarded to"
_SMALLEST_QUERY_LIMIT = 1024  # shorter queries cannot name a metric and an object


class Policy(enum.Enum):
    """How to treat a value that is not usable."""

    ZERO = "zero"
    MISSING = "missing"
    ERROR = "error"


class Merge(enum.Enum):
    """When requests for different objects are coalesced into one query."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class _Queries(Section, frozen=True, kw_only=True):
    """Where queries go."""

    prometheus: str = ""
    """The name of a server in `prometheusServers`; "" or "default" for that of --prometheus-url."""
    headers: Headers = Headers()
    """Sent with the queries."""
    destination: Destination = msgspec.field(name="<destination>", default=DEFAULT_DESTINATION)
    """That server, with the headers."""


class _MetricRule(_Queries, frozen=True, kw_only=True):
    """The keys of both forms of rules."""

    key: str = msgspec.field(name="<key>", default="")
    """Where the rule is: "rules[2]" in the file, or the object's name, "MetricRule shop/queue"."""
    external: bool = msgspec.field(name="<external>", default=False)
    """Its metrics are those of external.metrics.k8s.io."""
    namespace: str = msgspec.field(name="<namespace>", default="")
    """The only namespace that it serves; "" for all."""
    nan: Policy | None = None
    """How to treat a value that is not a number; None: not set in the file, which means zero."""
    inf: Policy = Policy.MISSING
    """How to treat an infinity, or a number that no Quantity can hold."""
    empty: Policy = Policy.MISSING
    """How to treat an object without a value; for external metrics, a result without values."""
    activation: Activation | None = None
    """When an external metric is 0; None for a custom metric."""
    forecast: Forecasting | None = None
    """The metric has the value that is expected, if that is higher; None: it has its own only."""


class Rule(_MetricRule, frozen=True, kw_only=True):
    """A rule that finds its metrics among Prometheus' series."""

    series_query: RequiredText
    """The selector that finds its series, as Prometheus takes it in match[]."""
    query: Template = msgspec.field(name="metricsQuery")
    """The template of the PromQL, with QUERY_FIELDS."""
    filters: tuple[SeriesFilter, ...] = msgspec.field(name="seriesFilters", default=())
    """The filters for the names of series, in addition to name.matches."""
    naming: MetricNaming = msgspec.field(name="name", default=MetricNaming())
    """How a series' name becomes a metric's."""
    resources: ResourceNaming = ResourceNaming()
    """Which labels name which resources."""
    max_age: Duration | None = None
    """How old a series may be, in seconds; None: --metrics-max-age."""
    merge: Merge = Merge.AUTO
    """Whether requests for different objects are coalesced into one query."""

    def __str__(self) -> str:
        return f"{self.key} ({shortened(self.series_query)})"

    def metric_for(self, series: str) -> str | None:
        """Return the name of the metric that a series makes; None if it is filtered out."""
        return self.naming.metric_for(series) if all(one.takes(series) for one in self.filters) else None

    def can_query(self, series: str) -> bool:
        """Return whether the query can have a series' name: one that needs quotes only if the template has them."""
        if is_plain_name(series):
            return True
        return series.isprintable() and not _QUOTES.intersection(series) and not _UNQUOTED.search(self.query.source)

    def left_out_by(self, series: str) -> str:
        """Return the key that excludes a series, such as seriesFilters[0].isNot; "" if the series makes a metric."""
        for key, one in self.all_filters():
            if not one.takes(series):
                return key
        if self.naming.metric_for(series) is None:
            return "name.as"
        return "" if self.can_query(series) else 'metricsQuery, which does not have {"<<.Series>>",<<.LabelMatchers>>},'

    def all_filters(self) -> Iterable[tuple[str, SeriesFilter]]:
        """Yield the filters with their keys, and name.matches last."""
        for index, one in enumerate(self.filters):
            yield f"seriesFilters[{index}].{'is' if one.keeps else 'isNot'}", one
        yield "name.matches", SeriesFilter(is_=self.naming.matches)


class QueryRule(_MetricRule, frozen=True, kw_only=True):
    """A rule of the short form: one metric, and one query that is sent unchanged; its result is filtered."""

    metric: RequiredText = msgspec.field(name="name")
    """The metric's name."""
    query: RequiredText
    """PromQL."""
    overrides: ShortOverrides = msgspec.field(name="resources", default=ShortOverrides())
    """The labels of the result that name objects and namespaces."""
    resource: GroupResource | None = msgspec.field(name="<resource>", default=None)
    """The resource of the metric's objects, as written in the file; None for an external metric."""
    resource_label: str = msgspec.field(name="<resourceLabel>", default="")
    """The label with the objects' names; "" for an external metric."""
    namespace_label: str = msgspec.field(name="<namespaceLabel>", default="")
    """The label with the namespace; "" for cluster-scoped objects, and for external metrics with the same values in all
    namespaces."""
    value_labels: tuple[tuple[str, str], ...] | None = msgspec.field(name="<valueLabels>", default=None)
    """The labels of the metric's only value, which is the first of the result; None: the metric has all values of the
    result, with their labels."""

    def __str__(self) -> str:
        return f"{self.key} ({self.metric})"


class ScheduleSection(Section, frozen=True, kw_only=True):
    """An external rule with a schedule, as in the file."""

    metric: RequiredText = msgspec.field(name="name")
    schedule: ScheduleSpec


class ScheduleRule(_MetricRule, frozen=True, kw_only=True):
    """An external metric whose value follows the clock; it has no query, and is the same in all namespaces."""

    metric: str
    """The metric's name."""
    schedule: Schedule
    """Its value at a time."""

    def __str__(self) -> str:
        return f"{self.key} ({self.metric})"


AnyRule = Rule | QueryRule | ScheduleRule


class ResourceRule(_Queries, frozen=True, kw_only=True):
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


class _Access(Section, frozen=True, kw_only=True):
    url: RequiredText
    headers: Headers = Headers()
    token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: Boolean = Boolean(False)
    insecure_skip_tls_verify: Boolean = msgspec.field(name="insecureSkipTLSVerify", default=Boolean(False))
    auth: Auth | None = None
    proxy_url: str = ""

    def arguments(self) -> dict[str, Any]:
        """Return the values that the file sets, as arguments of the options' class.

        insecureSkipVerify is Prometheus' name; insecureSkipTLSVerify, the older name, means the same.
        """
        given = {key: value for key, value in msgspec.structs.asdict(self).items() if value}
        if given.pop("insecure_skip_verify", False):
            given["insecure_skip_tls_verify"] = True
        return given


class ServerSpec(_Access, frozen=True, kw_only=True):
    """An entry of `prometheusServers`, from which PrometheusOptions are made."""

    verb: str = ""
    query_timeout: Duration | None = msgspec.field(name="timeout", default=None)
    max_query_bytes: Annotated[int, msgspec.Meta(ge=_SMALLEST_QUERY_LIMIT)] | None = None
    tenants: Boolean = Boolean(False)
    partial_responses: PartialResponses = "fail"
    query_parameters: Parameters = Parameters()


class ForwardSpec(_Access, frozen=True, kw_only=True):
    """`forwardExternal`, or an entry of its list, from which ForwardOptions are made."""

    name: str = ""
    metrics: tuple[str, ...] = ()
    timeout: Duration | None = None


class FileSpec(Section, frozen=True, kw_only=True):
    """The top level of a file. Its parts are decoded one by one, so that messages can name them."""

    rules: tuple[dict[str, Any], ...] = ()
    external_rules: tuple[dict[str, Any], ...] = ()
    resource_rules: dict[str, Any] | None = None
    prometheus_servers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    forward_external: dict[str, Any] | tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions(ServerAccess):
    """Address and credentials of another metrics adapter; see ServerAccess."""

    what: ClassVar[str] = "the other adapter"
    one: ClassVar[str] = "another adapter"
    schemes: ClassVar[tuple[str, ...]] = ("https",)

    name: str = ""
    """Names it in messages; "" if it is the only one."""
    metrics: tuple[str, ...] = ()
    """Patterns for the names of its metrics, with *, ? and [...] as in a shell; empty for all names."""
    timeout: float = 10.0
    """The timeout of a request, in seconds."""

    def __str__(self) -> str:
        """Name it in messages, without its address."""
        return f"the adapter {self.name} of forwardExternal" if self.name else _THE_OTHER_ADAPTER

    def takes(self, metric: str) -> bool:
        """Return True if one of the patterns matches the name of a metric."""
        return not self.metrics or any(fnmatchcase(metric, pattern) for pattern in self.metrics)


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A whole file. A section that is missing or empty means that its API is not served."""

    custom: tuple[AnyRule, ...] = ()
    """`rules`; short rules come last, since the last rule that makes a metric wins."""
    external: tuple[AnyRule, ...] = ()
    """`externalRules`, likewise."""
    resource: ResourceRules | None = None
    """`resourceRules`."""
    forward: tuple[ForwardOptions, ...] = ()
    """`forwardExternal`, in the order of the file."""
    digest: str = field(default="", compare=False)
    """The SHA-256 of the text that it was read from, and of `other_files`."""
    prometheus_servers: Mapping[str, PrometheusOptions] = field(default_factory=dict, compare=False)
    """`prometheusServers`, by name."""
    entries: Mapping[str, Mapping[str, object]] = field(default_factory=dict, compare=False)
    """The rules as they are written, by key: "rules[2]"."""
    other_files: tuple[Path, ...] = field(default=(), compare=False)
    """The files with holidays."""

    @property
    def all_rules(self) -> tuple[AnyRule, ...]:
        """Every rule of both APIs."""
        return (*self.custom, *self.external)


def shortened(query: str) -> str:
    """Return a query on one line that is not too long, for messages."""
    flat = " ".join(query.split())
    return flat if len(flat) <= _SHOWN_QUERY else f"{flat[:_SHOWN_QUERY]}..."
