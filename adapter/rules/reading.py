"""From the YAML of a rules file to rules that are known to be usable.

Nothing after this sees a regex that does not compile, a template that names a field that does not exist, a server that
nobody defined, or a key that nobody reads.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from adapter.gotemplate import Template, TemplateError
from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.rules import strictyaml
from adapter.rules.goregex import GoRegex
from adapter.rules.model import (
    ForwardOptions,
    Merge,
    Policy,
    QueryRule,
    ResourceRule,
    ResourceRules,
    Rule,
    RulesError,
    RulesFile,
    ValuePolicy,
)
from adapter.rules.naming import LabelTemplate, MetricNaming, ResourceNaming, SeriesFilter, is_metric_name
from adapter.rules.place import Place
from adapter.rules.query import QUERY_FIELDS, is_label_name
from adapter.rules.written import (
    WrittenDestination,
    WrittenFile,
    WrittenFilter,
    WrittenForward,
    WrittenName,
    WrittenQueryRule,
    WrittenResourceRule,
    WrittenResourceRules,
    WrittenResources,
    WrittenRule,
    WrittenServer,
    wrapping_of,
)
from adapter.upstream import header
from kube.durations import parse_duration
from kube.mapping import GroupResource

_log = logging.getLogger(__name__)

_WINDOW = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_WINDOW_MILLIS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
_NAMESPACE_WORDS = frozenset({"namespace", "namespaces"})
BOOLEANS = frozenset({("resources", "namespaced")})
"""The keys of booleans in a rules file, each after the key that it is under."""
# Below this a query cannot even name a metric and an object.
_SMALLEST_QUERY_LIMIT = 1024


def load_rules(path: Path) -> RulesFile:
    """Read a rules file.

    Raises:
        RulesError: it cannot be read, or something in it is wrong.
    """
    return parse_rules(read_text(path), source=str(path))


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        RulesError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RulesError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def parse_rules(text: str, *, source: str) -> RulesFile:
    """Read the text of a rules file; `source` is what messages call it.

    Raises:
        RulesError: something in it is wrong.
    """
    try:
        tree = strictyaml.parse(text, booleans=BOOLEANS)
    except strictyaml.StrictYamlError as error:
        raise Place(source).error(error) from error
    return rules_of(tree, source=source, text=text)


def rules_of(tree: strictyaml.Tree | None, *, source: str, text: str) -> RulesFile:
    """Read the tree of a rules file, and note the digest of the `text` that it came from.

    A file with nothing in it has no rules.

    Raises:
        RulesError: something in it is wrong.
    """
    place = Place(source)
    if wrapping := wrapping_of(tree):
        raise place.error(wrapping)
    written = place.convert(tree if tree is not None else {}, WrittenFile)
    servers = {
        name: _server(name, entry, place.at(f"prometheusServers.{name}"))
        for name, entry in written.prometheus_servers.items()
    }
    custom = _Section(place.at("rules"), servers, external=False)
    external = _Section(place.at("externalRules"), servers, external=True)
    custom_rules, custom_queries = custom.read(written.rules)
    external_rules, external_queries = external.read(written.external_rules)
    return RulesFile(
        custom=custom_rules,
        external=external_rules,
        resource=_resource_rules(written.resource_rules, servers, place.at("resourceRules")),
        custom_queries=custom_queries,
        external_queries=external_queries,
        forward=_forward(written.forward_external, place.at("forwardExternal")),
        digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """`rules` or `externalRules`."""

    place: Place
    servers: Mapping[str, PrometheusOptions]
    external: bool

    def read(self, entries: tuple[dict[str, object], ...]) -> tuple[tuple[Rule, ...], tuple[QueryRule, ...]]:
        rules: list[Rule] = []
        queries: list[QueryRule] = []
        for index, entry in enumerate(entries):
            place = self.place.of_rule(index, entry)
            if "query" in entry and "seriesQuery" not in entry and "metricsQuery" not in entry:
                queries.append(self._query_rule(place.convert(entry, WrittenQueryRule), place))
            else:
                rules.append(self._rule(place.convert(entry, WrittenRule), place))
        return tuple(rules), tuple(queries)

    def _rule(self, written: WrittenRule, place: Place) -> Rule:
        place.at("seriesQuery").required(written.series_query)
        place.at("metricsQuery").required(written.metrics_query)
        filters = [
            _filter(one, place.at(f"seriesFilters[{index}]")) for index, one in enumerate(written.series_filters)
        ]
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
            destination=_destination(written, self.servers, place),
            values=_values(written, place),
            max_age=_seconds(written.max_age, place.at("maxAge")) if written.max_age else None,
            merge=_merge(written.merge, place.at("merge")),
            digest=_digest(written),
        )

    def _query_rule(self, written: WrittenQueryRule, place: Place) -> QueryRule:
        name = place.at("name").required(written.name)
        if not is_metric_name(name):
            raise place.at("name").error(f"{name!r} cannot stand in the path of a request")
        if not name.isprintable() or " " in name:
            raise place.at("name").error(
                f"{name!r} is no name of a metric: it has a space or a sign that cannot be seen"
            )
        place.at("query").required(written.query)
        if "<<" in written.query:
            raise place.at("query").error("the query of a short rule is no template; use seriesQuery and metricsQuery")
        namespace_label, label, resource = _labels(written.resources, place.at("resources"))
        if self.external and resource is not None:
            raise place.at("resources").error("an external metric is about no object; only a namespace can be named")
        if not self.external and resource is None:
            if not namespace_label:
                raise place.at("resources").error("say which label names which resource, such as {pod: pod}")
            # A metric of namespaces themselves, which are in no namespace.
            label, resource, namespace_label = namespace_label, GroupResource("", "namespaces"), ""
        return QueryRule(
            key=place.path,
            metric=name,
            query=written.query,
            resource=resource,
            resource_label=label,
            namespace_label=namespace_label,
            destination=_destination(written, self.servers, place),
            values=_values(written, place),
            digest=_digest(written),
        )


def _destination(written: WrittenDestination, servers: Mapping[str, PrometheusOptions], place: Place) -> Destination:
    server = None
    if written.prometheus not in ("", DEFAULT_SERVER):
        server = servers.get(written.prometheus)
        if server is None:
            known = ", ".join(sorted([DEFAULT_SERVER, *servers]))
            raise place.at("prometheus").error(
                f"there is no server {written.prometheus!r} in prometheusServers; there are {known}"
            )
    return Destination(server, _headers(written.headers, place.at("headers")))


def _labels(written: Mapping[str, str], place: Place) -> tuple[str, str, GroupResource | None]:
    """The label of the namespace, that of the objects, and the objects' resource; "", "" and None where not given."""
    namespace_label, object_label, resource = "", "", None
    for label, word in written.items():
        if not is_label_name(label):
            raise place.at(label).error("no Prometheus label has such a name")
        place.at(label).required(word)
        name, _, group = word.partition(".")
        if word in _NAMESPACE_WORDS:
            if namespace_label:
                raise place.at(label).error(f"{namespace_label} names the namespace already")
            namespace_label = label
        elif resource is not None:
            raise place.at(label).error(
                f"{object_label} names a resource already; give each resource a rule of its own, with its own query"
            )
        else:
            object_label, resource = label, GroupResource(group, name)
    return namespace_label, object_label, resource


def _values(written: WrittenRule | WrittenQueryRule, place: Place) -> ValuePolicy:
    defaults = ValuePolicy()
    return ValuePolicy(
        nan=_policy(written.nan, defaults.nan, place.at("nan")),
        inf=_policy(written.inf, defaults.inf, place.at("inf")),
        empty=_policy(written.empty, defaults.empty, place.at("empty")),
        nan_is_written=bool(written.nan),
    )


def _policy(text: str, default: Policy, place: Place) -> Policy:
    if not text:
        return default
    try:
        return Policy(text)
    except ValueError as error:
        raise place.error(f"expected zero, missing or error, got {text!r}") from error


def _merge(text: str, place: Place) -> Merge:
    try:
        return Merge(text or "auto")
    except ValueError as error:
        raise place.error(f"expected auto, always or never, got {text!r}") from error


def _headers(written: Mapping[str, str], place: Place) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(header(name, value) for name, value in written.items())
    except ValueError as error:
        raise place.error(error) from error


def _seconds(text: str, place: Place) -> float:
    seconds = place.read(parse_duration, text)
    if seconds <= 0:
        raise place.error(f"must be more than nothing, got {text}")
    return seconds


def _file(text: str) -> Path | None:
    return Path(text) if text else None


def _server(name: str, entry: dict[str, object], place: Place) -> PrometheusOptions:
    written = place.convert(entry, WrittenServer)
    if name == DEFAULT_SERVER:
        raise place.error(f"{DEFAULT_SERVER} is the server of --prometheus-url; call this one something else")
    defaults = PrometheusOptions(url="http://unset")
    limit = defaults.max_query_bytes
    if written.max_query_bytes:
        if not written.max_query_bytes.isascii() or not written.max_query_bytes.isdecimal():
            raise place.at("maxQueryBytes").error(f"expected a number of bytes, got {written.max_query_bytes!r}")
        limit = int(written.max_query_bytes[:18])
        if limit < _SMALLEST_QUERY_LIMIT:
            raise place.at("maxQueryBytes").error(f"must be at least {_SMALLEST_QUERY_LIMIT}")
    seconds = _seconds(written.timeout, place.at("timeout")) if written.timeout else defaults.query_timeout
    headers = _headers(written.headers, place.at("headers"))
    insecure = place.at("insecureSkipTLSVerify").read(strictyaml.boolean, written.insecure_skip_tls_verify)
    try:
        return PrometheusOptions(
            name=name,
            url=place.at("url").required(written.url),
            verb=written.verb,
            headers=headers,
            token_file=_file(written.token_file),
            username=written.username,
            password_file=_file(written.password_file),
            ca_file=_file(written.ca_file),
            cert_file=_file(written.cert_file),
            key_file=_file(written.key_file),
            insecure_skip_tls_verify=insecure,
            query_timeout=seconds,
            max_query_bytes=limit,
        )
    except RulesError:
        raise
    except ValueError as error:
        raise place.error(error) from error


def _forward(written: WrittenForward | None, place: Place) -> ForwardOptions | None:
    if written is None:
        return None
    url = place.at("url").required(written.url)
    headers = _headers(written.headers, place.at("headers"))
    timeout = _seconds(written.timeout, place.at("timeout")) if written.timeout else 10.0
    insecure = place.at("insecureSkipTLSVerify").read(strictyaml.boolean, written.insecure_skip_tls_verify)
    try:
        return ForwardOptions(
            url=url,
            headers=headers,
            token_file=_file(written.token_file),
            username=written.username,
            password_file=_file(written.password_file),
            ca_file=_file(written.ca_file),
            cert_file=_file(written.cert_file),
            key_file=_file(written.key_file),
            insecure_skip_tls_verify=insecure,
            timeout=timeout,
        )
    except ValueError as error:
        raise place.error(error) from error


def _digest(written: msgspec.Struct) -> str:
    return hashlib.sha256(msgspec.json.encode(written)).hexdigest()


def _filter(written: WrittenFilter, place: Place) -> SeriesFilter:
    if bool(written.is_) == bool(written.is_not):
        raise place.error("give exactly one of is and isNot")
    key, text = ("is", written.is_) if written.is_ else ("isNot", written.is_not)
    return SeriesFilter(place.at(key).read(GoRegex.compile, text), keeps=key == "is")


def _naming(written: WrittenName, place: Place) -> MetricNaming:
    matches = place.at("matches").read(GoRegex.compile, written.matches or ".*")
    if not written.as_ and matches.groups > 1:
        raise place.at("as").error(f"required, because matches has {matches.groups} groups")
    return MetricNaming(matches, written.as_ or ("${1}" if matches.groups else "${0}"))


def _resources(written: WrittenResources, place: Place) -> ResourceNaming:
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


def _query(text: str, place: Place) -> Template:
    try:
        return Template.parse(text, fields=QUERY_FIELDS)
    except TemplateError as error:
        raise place.error(error) from error


def _resource_rules(
    written: WrittenResourceRules | None, servers: Mapping[str, PrometheusOptions], place: Place
) -> ResourceRules | None:
    if written is None:
        return None
    return ResourceRules(
        cpu=_resource_rule(written.cpu, servers, place.at("cpu")),
        memory=_resource_rule(written.memory, servers, place.at("memory")),
        window=place.at("window").read(_window_seconds, written.window),
    )


def _resource_rule(
    written: WrittenResourceRule, servers: Mapping[str, PrometheusOptions], place: Place
) -> ResourceRule:
    container, node = place.at("containerQuery"), place.at("nodeQuery")
    return ResourceRule(
        container_query=_query(container.required(written.container_query), container),
        node_query=_query(node.required(written.node_query), node),
        resources=_resources(written.resources, place.at("resources")),
        container_label=place.at("containerLabel").required(written.container_label),
        destination=_destination(written, servers, place),
    )


def _window_seconds(text: str) -> float:
    """A duration as Prometheus writes it: 5m, 1h30m, 1d."""
    found = _WINDOW.fullmatch(text)
    if text == "0":
        return 0.0
    if found is None or not text or len(text) > 32:
        raise ValueError(f"not a duration: {text!r}; write it as 5m or 1h30m")
    return sum(int(count or 0) * millis for count, millis in zip(found.groups(), _WINDOW_MILLIS, strict=True)) / 1000.0
