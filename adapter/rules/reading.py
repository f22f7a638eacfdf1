"""From the text of a rules file to rules: decodes each part by its schema, and says where what is wrong."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.rules import strictyaml
from adapter.rules.model import (
    ForwardOptions,
    QueryRule,
    ResourceRule,
    ResourceRules,
    Rule,
    RulesFile,
    ValuePolicy,
    shortened,
)
from adapter.rules.naming import ANY_SERIES, ResourceNaming, SeriesFilter, is_metric_name
from adapter.rules.schema import (
    DestinationSpec,
    FileSpec,
    ForwardSpec,
    Part,
    Policy,
    QueryRuleSpec,
    ResourceRulesSpec,
    RulesError,
    RuleSpec,
    ServerSpec,
    ValuesSpec,
)
from adapter.rules.schema_types import is_label_name
from kube.mapping import GroupResource

CHART_KEYS = frozenset({"default", "custom", "existing", "external", "resource"})
"""Keys below `rules` in the values of prometheus-adapter's chart."""

_NAMESPACES = (GroupResource("", "namespace"), GroupResource("", "namespaces"))
_log = logging.getLogger(__name__)


def load_rules(path: Path) -> RulesFile:
    """Read a rules file.

    Raises:
        RulesError: it cannot be read, or something in it is wrong.
    """
    return parse_rules(read_text(path), source=str(path))


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        RulesError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RulesError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def parse_yaml(text: str, *, source: str) -> list[strictyaml.Tree]:
    """Return the documents of a text; `source` names it in messages.

    Raises:
        RulesError: it is not YAML, or not of the strict kind.
    """
    try:
        return strictyaml.parse(text)
    except strictyaml.StrictYamlError as error:
        raise RulesError(f"{source}: {error}") from error


def parse_rules(text: str, *, source: str) -> RulesFile:
    """Read the text of a rules file; `source` names it in messages.

    Raises:
        RulesError: something in it is wrong.
    """
    documents = parse_yaml(text, source=source)
    if len(documents) > 1:
        raise RulesError(f"{source}: expected a single document, but found {len(documents)}")
    return decode_rules(documents[0] if documents else {}, source=source, text=text)


def decode_rules(tree: strictyaml.Tree, *, source: str, text: str) -> RulesFile:
    """Decode the tree of a rules file; `text` is what it was parsed from.

    Raises:
        RulesError: something in it is wrong.
    """
    if hint := _hint(tree):
        raise RulesError(f"{source}: {hint}")
    file = Part(source).decode(tree, FileSpec)
    servers = {
        name: _server(Part(source, f"prometheusServers.{name}"), entry, name)
        for name, entry in file.prometheus_servers.items()
    }
    custom, custom_queries = _rules(source, "rules", file.rules, servers)
    external, external_queries = _rules(source, "externalRules", file.external_rules, servers)
    return RulesFile(
        custom=custom,
        external=external,
        resource=_resource_rules(Part(source, "resourceRules"), file.resource_rules, servers),
        custom_queries=custom_queries,
        external_queries=external_queries,
        forward=_forward(Part(source, "forwardExternal"), file.forward_external),
        digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    )


def _hint(tree: strictyaml.Tree) -> str:
    """Return what to do with a file that has its rules inside another format; "" for a rules file."""
    if not isinstance(tree, dict):
        return ""
    kind = tree.get("kind")
    if kind == "ConfigMap":
        return "this is a ConfigMap, and the rules file is the text of one key in its data"
    if isinstance(kind, str) and "apiVersion" in tree:
        return f"this is a {kind}, and no rules file; the check command looks for rules in it"
    rules = tree.get("rules")
    if isinstance(rules, dict) and CHART_KEYS & rules.keys():
        return "these are the values of a Helm chart; the rules file is the text in its ConfigMap"
    return ""


def _rules(
    source: str, section: str, entries: Iterable[dict[str, object]], servers: Mapping[str, PrometheusOptions]
) -> tuple[tuple[Rule, ...], tuple[QueryRule, ...]]:
    rules: list[Rule] = []
    queries: list[QueryRule] = []
    for index, entry in enumerate(entries):
        names = ((name, entry.get(name)) for name in ("seriesQuery", "name"))
        about = next((f"{name}: {shortened(text)}" for name, text in names if isinstance(text, str) and text), "")
        part = Part(source, f"{section}[{index}]", about)
        if "query" in entry and "seriesQuery" not in entry and "metricsQuery" not in entry:
            query_spec = part.decode(entry, QueryRuleSpec)
            labels = _labels(part, query_spec, external=section == "externalRules")
            queries.append(
                QueryRule(**structs.asdict(query_spec), **_common(part, query_spec, entry, servers), **labels)
            )
        else:
            spec = part.decode(entry, RuleSpec)
            _warn_of_labels(part, spec.resources)
            if spec.naming.matches is not ANY_SERIES:
                filters = (*spec.filters, SeriesFilter(is_=spec.naming.matches))
                spec = structs.replace(spec, filters=filters)
            rules.append(Rule(**structs.asdict(spec), **_common(part, spec, entry, servers)))
    return tuple(rules), tuple(queries)


def _common(
    part: Part, spec: ValuesSpec, entry: Mapping[str, object], servers: Mapping[str, PrometheusOptions]
) -> dict[str, Any]:
    """Return the fields that both forms of rules have in addition to their specs."""
    return {
        "key": part.path,
        "destination": _destination(part, spec, servers),
        "values": ValuePolicy(
            nan=spec.nan or Policy.ZERO,
            inf=spec.inf or Policy.MISSING,
            empty=spec.empty or Policy.MISSING,
            nan_is_written=spec.nan is not None,
        ),
        "digest": hashlib.sha256(msgspec.json.encode(entry, order="deterministic")).hexdigest(),
    }


def _destination(part: Part, spec: DestinationSpec, servers: Mapping[str, PrometheusOptions]) -> Destination:
    name = spec.prometheus
    if name not in ("", DEFAULT_SERVER, *servers):
        known = ", ".join(sorted([DEFAULT_SERVER, *servers]))
        raise part.error(f"there is no server {name!r} in prometheusServers; there are {known}", key=".prometheus")
    return Destination(servers.get(name), spec.headers)


def _labels(part: Part, rule: QueryRuleSpec, *, external: bool) -> dict[str, Any]:
    """Check a rule of the short form, and return the labels that name its namespaces and objects."""
    if not is_metric_name(rule.metric):
        raise part.error(f"{rule.metric!r} cannot stand in the path of a request", key=".name")
    if not rule.metric.isprintable() or " " in rule.metric:
        raise part.error(f"{rule.metric!r} has a space or an invisible character", key=".name")
    if "<<" in rule.query:
        raise part.error("the query of a short rule is no template; use seriesQuery and metricsQuery", key=".query")
    namespace_label, resource_label, resource = "", "", None
    for label, named in rule.resources:
        key = f".resources.{label}"
        if not is_label_name(label):
            raise part.error("no Prometheus label has such a name", key=key)
        if named in _NAMESPACES:
            if namespace_label:
                raise part.error(f"{namespace_label} names the namespace already", key=key)
            namespace_label = label
        elif external:
            raise part.error("an external metric is about no object; only a namespace can be named", key=key)
        elif resource is not None:
            why = f"{resource_label} names a resource already; give each resource a rule of its own, with its own query"
            raise part.error(why, key=key)
        else:
            resource_label, resource = label, named
    if not external and resource is None:
        if not namespace_label:
            raise part.error("say which label names which resource, such as {pod: pod}", key=".resources")
        # A metric of namespaces themselves, which are in no namespace.
        namespace_label, resource_label, resource = "", namespace_label, _NAMESPACES[1]
    return {"resource": resource, "resource_label": resource_label, "namespace_label": namespace_label}


def _warn_of_labels(part: Part, resources: ResourceNaming) -> None:
    for label, _ in resources.overrides:
        if not is_label_name(label):
            why = "no Prometheus label has such a name; no series can have it"
            _log.warning("%s", part.error(why, key=f".resources.overrides.{label}"))


def _resource_rules(
    part: Part, entry: Mapping[str, object] | None, servers: Mapping[str, PrometheusOptions]
) -> ResourceRules | None:
    if entry is None:
        return None
    spec = part.decode(entry, ResourceRulesSpec)
    rules = []
    for name, rule in (("cpu", spec.cpu), ("memory", spec.memory)):
        inner = Part(part.source, f"{part.path}.{name}")
        _warn_of_labels(inner, rule.resources)
        rules.append(ResourceRule(**structs.asdict(rule), destination=_destination(inner, rule, servers)))
    return ResourceRules(cpu=rules[0], memory=rules[1], window=spec.window)


def _server(part: Part, entry: object, name: str) -> PrometheusOptions:
    spec = part.decode(entry, ServerSpec)
    if name == DEFAULT_SERVER:
        raise part.error(f"{DEFAULT_SERVER} is the server of --prometheus-url; call this one something else")
    try:
        return PrometheusOptions(name=name, **spec.arguments())
    except ValueError as error:
        raise part.error(error) from error


def _forward(part: Part, entry: Mapping[str, object] | None) -> ForwardOptions | None:
    if entry is None:
        return None
    spec = part.decode(entry, ForwardSpec)
    try:
        return ForwardOptions(**spec.arguments())
    except ValueError as error:
        raise part.error(error) from error
