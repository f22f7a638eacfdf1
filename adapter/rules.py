"""The rules file, in prometheus-adapter's format: from YAML to rules that are known to be usable.

Everything that can be wrong with a file is found here, when it is loaded, and is one RulesError of one line that says
where: `rules.yaml: rules[2].metricsQuery: ...`. Nothing after this module sees a regex that does not compile, a
template that names a field that does not exist, or a key that nobody reads.

    rules:          custom.metrics.k8s.io
    externalRules:  external.metrics.k8s.io
    resourceRules:  metrics.k8s.io
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from adapter import strictyaml
from adapter.goregex import GoRegex
from adapter.gotemplate import Template, TemplateError
from adapter.naming import LabelTemplate, MetricNaming, ResourceNaming, SeriesFilter
from adapter.query import QUERY_FIELDS, is_label_name
from kube.mapping import GroupResource

__all__ = ["ResourceRule", "ResourceRules", "Rule", "RulesError", "RulesFile", "load_rules", "parse_rules"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_SHOWN_QUERY = 80
_WINDOW = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_WINDOW_MILLIS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)


class RulesError(ValueError):
    """A rules file cannot be used. The message is one line: the file, the place in it, and what to change."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `rules` or `externalRules`.

    Attributes:
        key: where it stands: "rules[2]".
        series_query: the selector that finds its series, as Prometheus takes it in match[].
        filters: what a series' name must pass, name.matches included.
        naming: how a series' name becomes a metric's.
        resources: which labels name which resources.
        query: the template of the PromQL, with QUERY_FIELDS.
    """

    key: str
    series_query: str
    filters: tuple[SeriesFilter, ...]
    naming: MetricNaming
    resources: ResourceNaming
    query: Template

    def __str__(self) -> str:
        return f"{self.key} ({_shortened(self.series_query)})"

    def metric_for(self, series: str) -> str | None:
        """The metric that a series makes; None when it is filtered out."""
        if not all(one.takes(series) for one in self.filters):
            return None
        return self.naming.metric_for(series)


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """`resourceRules.cpu` or `.memory`: the queries for containers and for nodes, and the label with the container."""

    container_query: Template
    node_query: Template
    resources: ResourceNaming
    container_label: str


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """`resourceRules`; `window` is the time that its rates span, in seconds."""

    cpu: ResourceRule
    memory: ResourceRule
    window: float


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A whole file. A section that is missing or empty means that its API is not served."""

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()
    resource: ResourceRules | None = None


def load_rules(path: Path) -> RulesFile:
    """Read a rules file.

    Raises:
        RulesError: it cannot be read, or something in it is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RulesError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    return parse_rules(text, source=str(path))


def parse_rules(text: str, *, source: str) -> RulesFile:
    """Read the text of a rules file; `source` is what messages call it.

    Raises:
        RulesError: something in it is wrong.
    """
    try:
        tree = strictyaml.parse(text)
        if tree is None:
            raise RulesError(f"{source}: there is nothing in it; it needs rules, externalRules or resourceRules")
        decoded = msgspec.convert(tree, type=_File)
    except strictyaml.StrictYamlError as error:
        raise RulesError(f"{source}: {error}") from error
    except msgspec.ValidationError as error:
        raise RulesError(f"{source}: {_reworded(error)}{_query_at(tree, str(error))}") from error
    return RulesFile(
        custom=_rules(decoded.rules, _Place(source, "rules")),
        external=_rules(decoded.external_rules, _Place(source, "externalRules")),
        resource=_resource_rules(decoded.resource_rules, _Place(source, "resourceRules")),
    )


# The file as it is written. Values are text; strictyaml says why.


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Unknown keys are errors in every part."""


class _Filter(_Strict):
    is_: str = msgspec.field(name="is", default="")
    is_not: str = ""


class _GroupResource(_Strict):
    resource: str
    group: str = ""


class _Resources(_Strict):
    template: str = ""
    overrides: dict[str, _GroupResource] = {}
    namespaced: str = "true"


class _Name(_Strict):
    matches: str = ""
    as_: str = msgspec.field(name="as", default="")


class _Rule(_Strict):
    series_query: str = ""
    series_filters: tuple[_Filter, ...] = ()
    resources: _Resources = msgspec.field(default_factory=_Resources)
    name: _Name = msgspec.field(default_factory=_Name)
    metrics_query: str = ""


class _ResourceRule(_Strict):
    container_query: str = ""
    node_query: str = ""
    resources: _Resources = msgspec.field(default_factory=_Resources)
    container_label: str = ""


class _ResourceRules(_Strict):
    cpu: _ResourceRule = msgspec.field(default_factory=_ResourceRule)
    memory: _ResourceRule = msgspec.field(default_factory=_ResourceRule)
    window: str = "0s"


class _File(_Strict):
    rules: tuple[_Rule, ...] = ()
    external_rules: tuple[_Rule, ...] = ()
    resource_rules: _ResourceRules | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the file something stands, for messages."""

    source: str
    path: str
    series_query: str = ""

    def at(self, key: str, *, series_query: str = "") -> _Place:
        separator = "" if key.startswith("[") else "."
        return _Place(self.source, f"{self.path}{separator}{key}", series_query or self.series_query)

    def error(self, why: object) -> RulesError:
        about = f" (seriesQuery: {_shortened(self.series_query)})" if self.series_query else ""
        return RulesError(f"{self.source}: {self.path}: {why}{about}")

    def read(self, reader: Callable[[str], _T], text: str) -> _T:
        try:
            return reader(text)
        except ValueError as error:
            raise self.error(error) from error

    def required(self, text: str) -> str:
        if not text.strip():
            raise self.error("this key is required")
        return text


def _rules(written: tuple[_Rule, ...], section: _Place) -> tuple[Rule, ...]:
    return tuple(
        _rule(rule, section.at(f"[{index}]", series_query=rule.series_query)) for index, rule in enumerate(written)
    )


def _rule(written: _Rule, place: _Place) -> Rule:
    place.at("seriesQuery").required(written.series_query)
    place.at("metricsQuery").required(written.metrics_query)
    filters = [_filter(one, place.at(f"seriesFilters[{index}]")) for index, one in enumerate(written.series_filters)]
    naming = _naming(written.name, place.at("name"))
    if written.name.matches:
        filters.append(SeriesFilter(naming.matches, keeps=True))
    return Rule(
        key=place.path,
        series_query=written.series_query,
        filters=tuple(filters),
        naming=naming,
        resources=_resources(written.resources, place.at("resources")),
        query=_query(written.metrics_query, place.at("metricsQuery")),
    )


def _filter(written: _Filter, place: _Place) -> SeriesFilter:
    if bool(written.is_) == bool(written.is_not):
        raise place.error("give exactly one of is and isNot")
    key, text = ("is", written.is_) if written.is_ else ("isNot", written.is_not)
    return SeriesFilter(place.at(key).read(GoRegex.compile, text), keeps=key == "is")


def _naming(written: _Name, place: _Place) -> MetricNaming:
    matches = place.at("matches").read(GoRegex.compile, written.matches or ".*")
    if not written.as_ and matches.groups > 1:
        raise place.at("as").error(f"required, because matches has {matches.groups} groups")
    return MetricNaming(matches, written.as_ or ("${1}" if matches.groups else "${0}"))


def _resources(written: _Resources, place: _Place) -> ResourceNaming:
    for label, resource in written.overrides.items():
        override = place.at(f"overrides.{label}")
        if not resource.resource:
            raise override.at("resource").error("this key is required")
        if not is_label_name(label):
            _log.warning("%s", override.error("no Prometheus label has such a name; no series can have it"))
    return ResourceNaming(
        template=place.at("template").read(LabelTemplate.parse, written.template) if written.template else None,
        overrides=tuple(
            (label, GroupResource(resource.group, resource.resource)) for label, resource in written.overrides.items()
        ),
        namespaced=place.at("namespaced").read(strictyaml.boolean, written.namespaced),
    )


def _query(text: str, place: _Place) -> Template:
    try:
        return Template.parse(text, fields=QUERY_FIELDS)
    except TemplateError as error:
        raise place.error(error) from error


def _resource_rules(written: _ResourceRules | None, place: _Place) -> ResourceRules | None:
    if written is None:
        return None
    return ResourceRules(
        cpu=_resource_rule(written.cpu, place.at("cpu")),
        memory=_resource_rule(written.memory, place.at("memory")),
        window=place.at("window").read(_window_seconds, written.window),
    )


def _resource_rule(written: _ResourceRule, place: _Place) -> ResourceRule:
    container, node = place.at("containerQuery"), place.at("nodeQuery")
    return ResourceRule(
        container_query=_query(container.required(written.container_query), container),
        node_query=_query(node.required(written.node_query), node),
        resources=_resources(written.resources, place.at("resources")),
        container_label=place.at("containerLabel").required(written.container_label),
    )


def _window_seconds(text: str) -> float:
    """A duration as Prometheus writes it: 5m, 1h30m, 1d."""
    found = _WINDOW.fullmatch(text)
    if text == "0":
        return 0.0
    if found is None or not text or len(text) > 32:
        raise ValueError(f"not a duration: {text!r}; write it as 5m or 1h30m")
    return sum(int(count or 0) * millis for count, millis in zip(found.groups(), _WINDOW_MILLIS, strict=True)) / 1000.0


def _shortened(query: str) -> str:
    flat = " ".join(query.split())
    return flat if len(flat) <= _SHOWN_QUERY else f"{flat[:_SHOWN_QUERY]}..."


def _reworded(error: msgspec.ValidationError) -> str:
    """The message of msgspec with the path first, in the words of a YAML file."""
    message, _, path = str(error).partition(" - at `$")
    path = path.removesuffix("`").removeprefix(".")
    message = message.replace("Object contains unknown field", "unknown key").replace(
        "Object missing required field", "missing key"
    )
    for internal, word in (("`array`", "a list"), ("`object`", "a mapping"), ("`str`", "text")):
        message = message.replace(internal, word)
    message = message[:1].lower() + message[1:]
    return f"{path}: {message}" if path else message


def _query_at(tree: object, message: str) -> str:
    """The seriesQuery of the rule that a message of msgspec is about, for people who do not count rules."""
    found = re.search(r"\$\.(rules|externalRules)\[(\d+)\]", message)
    rules = tree.get(found[1]) if found and isinstance(tree, Mapping) else None
    rule = rules[int(found[2])] if found and isinstance(rules, list) else None
    query = rule.get("seriesQuery") if isinstance(rule, Mapping) else None
    return f" (seriesQuery: {_shortened(query)})" if isinstance(query, str) else ""
