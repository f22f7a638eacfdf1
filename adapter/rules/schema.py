"""The schema of a rules file, and the decoding of its parts.

Keys are those of prometheus-adapter and our own. What decoding returns is usable: every regular expression compiles,
every template has only fields that exist, every duration and header is valid.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from adapter.gotemplate import Template
from adapter.rules import schema_types
from adapter.rules.goregex import GoRegex
from adapter.rules.naming import LabelTemplate, MetricNaming, ResourceNaming, SeriesFilter
from adapter.rules.query import QUERY_FIELDS
from adapter.rules.schema_types import Boolean, Duration, Headers, RequiredText, Section, ShortOverrides, Window

_T = TypeVar("_T")

_SMALLEST_QUERY_LIMIT = 1024  # below this a query cannot even name a metric and an object
_OPTIONAL_TEXTS = frozenset(
    [
        *("matches", "is", "isNot", "template", "nan", "inf", "empty", "maxAge", "merge", "timeout", "maxQueryBytes"),
        *("tokenFile", "passwordFile", "caFile", "certFile", "keyFile"),
    ]
)


class RulesError(ValueError):
    """A rules file cannot be used. The message is one line: the file, the place in it, and what to change."""


class Policy(enum.Enum):
    """How to treat a value that is not usable."""

    ZERO = "zero"
    MISSING = "missing"
    ERROR = "error"


class Merge(enum.Enum):
    """Whether requests for different objects are coalesced into one query."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class DestinationSpec(Section, frozen=True, kw_only=True):
    """Where queries go.

    Attributes:
        prometheus: the name of a server in `prometheusServers`; "" or "default" for that of --prometheus-url.
        headers: sent with the queries.
    """

    prometheus: str = ""
    headers: Headers = Headers()


class ValuesSpec(DestinationSpec, frozen=True, kw_only=True):
    """The keys of both forms of rules. For `nan`, `inf` and `empty` see ValuePolicy."""

    nan: Policy | None = None
    inf: Policy | None = None
    empty: Policy | None = None


class RuleSpec(ValuesSpec, frozen=True, kw_only=True):
    """An entry of `rules` or `externalRules` that finds its metrics among Prometheus' series.

    Attributes:
        series_query: the selector that finds its series, as Prometheus takes it in match[].
        query: the template of the PromQL, with QUERY_FIELDS.
        filters: what a series' name must pass.
        naming: how a series' name becomes a metric's.
        resources: which labels name which resources.
        max_age: how old a series may be, in seconds, if not as old as --metrics-max-age says.
        merge: whether requests for different objects are coalesced into one query.
    """

    series_query: RequiredText
    query: Template = msgspec.field(name="metricsQuery")
    filters: tuple[SeriesFilter, ...] = msgspec.field(name="seriesFilters", default=())
    naming: MetricNaming = msgspec.field(name="name", default=MetricNaming())
    resources: ResourceNaming = ResourceNaming()
    max_age: Duration | None = None
    merge: Merge = Merge.AUTO


class QueryRuleSpec(ValuesSpec, frozen=True, kw_only=True):
    """An entry of the short form: one metric, one query that is sent as it is, its result filtered.

    Attributes:
        metric: the metric's name.
        query: PromQL.
        resources: the labels of the result that name objects and namespaces.
    """

    metric: RequiredText = msgspec.field(name="name")
    query: RequiredText
    resources: ShortOverrides = ShortOverrides()


class ResourceRuleSpec(DestinationSpec, frozen=True, kw_only=True):
    """`resourceRules.cpu` or `.memory`: the queries for containers and for nodes, and the label with the container."""

    container_query: Template
    node_query: Template
    container_label: RequiredText
    resources: ResourceNaming = ResourceNaming()


class ResourceRulesSpec(Section, frozen=True, kw_only=True):
    """`resourceRules`; `window` is the time that its rates span, in seconds."""

    cpu: ResourceRuleSpec
    memory: ResourceRuleSpec
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
class Part:
    """A part of a file, and how messages name it.

    Attributes:
        source: the file.
        path: the keys down to the part, such as "rules[2]".
        about: for people who do not count rules, such as "seriesQuery: up".
    """

    source: str
    path: str = ""
    about: str = ""

    def error(self, why: object, *, key: str = "") -> RulesError:
        """Return an error about this part, or about a key in it."""
        path = f"{self.path}{key}".removeprefix(".")
        about = f" ({self.about})" if self.about else ""
        return RulesError(f"{self.source}: {f'{path}: ' if path else ''}{' '.join(str(why).split())}{about}")

    def decode(self, tree: object, kind: type[_T]) -> _T:
        """Decode the tree of this part.

        Raises:
            RulesError: the tree does not fit.
        """
        try:
            return msgspec.convert(_without_empty(tree), kind, strict=False, dec_hook=_dec_hook)
        except msgspec.ValidationError as error:
            found = _MESSAGE.fullmatch(str(error))
            assert found is not None, "it matches any text"
            why, key = _reworded(found[1], found[2] or "", kind)
            raise self.error(why, key=key) from error


def _without_empty(tree: Any) -> Any:
    """A tree without optional keys whose text is empty: Go takes them for unset."""
    if isinstance(tree, list):
        return [_without_empty(entry) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    return {key: _without_empty(value) for key, value in tree.items() if value != "" or key not in _OPTIONAL_TEXTS}


def _query_template(text: str) -> Template:
    if not text.strip():
        raise ValueError("this key is required")
    return Template(text, fields=QUERY_FIELDS)


_TEXT_PARSERS: Mapping[type, Callable[[str], object]] = {
    GoRegex: GoRegex,
    LabelTemplate: LabelTemplate,
    Path: Path,
    Template: _query_template,
    schema_types.Boolean: schema_types.boolean,
    schema_types.Duration: schema_types.duration,
    schema_types.Window: schema_types.window,
}
_MAPPING_PARSERS: Mapping[type, Callable[[Mapping[str, object]], object]] = {
    schema_types.Headers: schema_types.headers,
    schema_types.Overrides: schema_types.overrides,
    schema_types.ShortOverrides: schema_types.short_overrides,
}


def _dec_hook(kind: type, value: object) -> object:
    """Parse what msgspec cannot. It turns the ValueError of a parser into its own, with the path."""
    if kind in _MAPPING_PARSERS:
        if not isinstance(value, dict):
            raise ValueError(f"expected a mapping, got {_type_word(value)}")
        return _MAPPING_PARSERS[kind](value)
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {_type_word(value)}")
    return _TEXT_PARSERS[kind](value)


def _type_word(value: object) -> str:
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "text"


_MESSAGE = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_ENUMS: Mapping[str, type[enum.Enum]] = {"nan": Policy, "inf": Policy, "empty": Policy, "merge": Merge}
_WORDS = {"`array`": "a list", "`object`": "a mapping", "`str`": "text", "`null`": "null", "`int`": "a whole number"}


def _reworded(why: str, key: str, kind: type) -> tuple[str, str]:
    """A message of msgspec in the words of YAML, and the key that it is about."""
    if missing := _MISSING.fullmatch(why):
        return "this key is required", f"{key}.{missing[1]}"
    if unknown := _UNKNOWN.fullmatch(why):
        known = [] if key else [one.encode_name for one in msgspec.structs.fields(kind)]
        close = difflib.get_close_matches(unknown[1], known, n=1)
        return f"unknown key `{unknown[1]}`" + (f"; did you mean `{close[0]}`?" if close else ""), key
    if "matching regex" in why:  # of RequiredText
        return "this key is required", key
    choices = _ENUMS.get(key.rpartition(".")[2])
    if choices is not None and "enum value" in why:
        *most, last = (str(one.value) for one in choices)
        return f"expected {', '.join(most)} or {last}, got {why.removeprefix('Invalid enum value ')}", key
    why = why.replace(" | null", "")
    for internal, word in _WORDS.items():
        why = why.replace(internal, word)
    return why[:1].lower() + why[1:], key
