"""From the text of a rules file to rules: decodes each part by its schema; errors name the path in the file."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.rules import strictyaml
from adapter.rules.decoding import Part
from adapter.rules.model import (
    AnyRule,
    FileSpec,
    ForwardOptions,
    ForwardSpec,
    QueryRule,
    ResourceRules,
    Rule,
    RulesFile,
    ScheduleRule,
    ScheduleSection,
    ServerSpec,
    shortened,
)
from adapter.rules.naming import NAMESPACE_NAMES, NAMESPACES, is_metric_name
from adapter.rules.schedule_spec import ReadFile, SpecError, made_schedule
from adapter.rules.strictyaml import RulesError
from adapter.upstream import Auth

CHART_KEYS = frozenset({"default", "custom", "existing", "external", "resource"})
"""Keys below `rules` in the values of prometheus-adapter's chart."""

_MAX_OTHER_ADAPTERS = 10
_Servers = Mapping[str, PrometheusOptions]
_log = logging.getLogger(__name__)


def load_rules(path: Path) -> RulesFile:
    """Read a rules file.

    Raises:
        RulesError: the file cannot be read or is invalid.
    """
    return parse_rules(read_text(path), source=str(path), directory=path.parent)


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


def parse_rules(text: str, *, source: str, directory: Path | None = None) -> RulesFile:
    """Read the text of a rules file; `source` names it in messages.

    Paths of files with holidays begin at `directory`; without one, rules cannot name such files.

    Raises:
        RulesError: the file is invalid.
    """
    return decode_rules(_document(text, source), source=source, text=text, directory=directory)


def decode_rules(tree: strictyaml.Tree, *, source: str, text: str, directory: Path | None = None) -> RulesFile:
    """Decode the tree of a rules file; `text` is what it was parsed from, `directory` as for `parse_rules`.

    Raises:
        RulesError: the file is invalid.
    """
    if hint := _hint(tree):
        raise RulesError(f"{source}: {hint}")
    file = Part(source).decode(tree, FileSpec)
    servers = {
        name: _server(Part(source, f"prometheusServers.{name}"), entry, name)
        for name, entry in file.prometheus_servers.items()
    }
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    others: dict[Path, str] = {}

    def read_file(name: Path) -> str:
        path = (directory or Path()) / name
        others[path] = content = read_text(path)
        digest.update(content.encode())
        return content

    files = None if directory is None else read_file
    return RulesFile(
        custom=_rules(source, "rules", file.rules, servers),
        external=_rules(source, "externalRules", file.external_rules, servers, files=files),
        resource=_resource_rules(Part(source, "resourceRules"), file.resource_rules, servers),
        forward=_forward(source, file.forward_external),
        digest=digest.hexdigest(),
        prometheus_servers=servers,
        other_files=tuple(others),
        entries={
            f"{section}[{index}]": entry
            for section, entries in (("rules", file.rules), ("externalRules", file.external_rules))
            for index, entry in enumerate(entries)
        },
    )


def parse_rule(text: str, *, section: str, servers: Mapping[str, PrometheusOptions], source: str) -> RulesFile:
    """Read one rule: as a mapping, as a list of one, or as a rules file that has one rule and nothing else.

    Args:
        text: YAML.
        section: "rules" or "externalRules", unless the text says which.
        servers: what the rule can name as `prometheus`. The text cannot define any, since it may come from somebody who
            may not read the files that credentials are in.
        source: names the text in messages.

    Raises:
        RulesError: the text is invalid, or not one rule.
    """
    documents = strictyaml.parse(text, source=source)
    if len(documents) != 1:
        raise RulesError(f"{source}: expected one rule, but found {len(documents)} documents")
    tree = documents[0]
    if not (isinstance(tree, dict) and tree.keys() & {"rules", "externalRules"}):
        tree = {section: tree if isinstance(tree, list) else [tree]}
    rules = _rules_only(tree, servers=servers, source=source)
    if len(rules.all_rules) != 1:
        raise RulesError(f"{source}: expected one rule, but found {len(rules.all_rules)}")
    return rules


def parse_rules_only(text: str, *, servers: Mapping[str, PrometheusOptions], source: str) -> RulesFile:
    """Read the text of a rules file that has rules and externalRules only; see `parse_rule` for the arguments.

    Raises:
        RulesError: it is invalid.
    """
    return _rules_only(_document(text, source), servers=servers, source=source)


def _document(text: str, source: str) -> strictyaml.Tree:
    """Return the only document of a text; an empty mapping if there is none."""
    documents = strictyaml.parse(text, source=source)
    if len(documents) > 1:
        raise RulesError(f"{source}: expected a single document, but found {len(documents)}")
    return documents[0] if documents else {}


def _rules_only(tree: strictyaml.Tree, *, servers: _Servers, source: str) -> RulesFile:
    """Decode a file without other sections."""
    if isinstance(tree, dict) and (other := tree.keys() - {"rules", "externalRules"}):
        raise RulesError(f"{source}: only rules and externalRules can be here, not {min(other)}")
    file = Part(source).decode(tree, FileSpec)
    return RulesFile(
        custom=_rules(source, "rules", file.rules, servers),
        external=_rules(source, "externalRules", file.external_rules, servers),
    )


def parse_auth(text: str, *, source: str) -> Auth:
    """Read the YAML or JSON of `auth`, such as {sigv4: {region: eu-west-1}}; `source` names it in messages.

    Raises:
        RulesError: it is invalid.
    """
    documents = strictyaml.parse(text, source=source)
    return Part(source).decode(documents[0] if len(documents) == 1 else None, Auth)


def _hint(tree: strictyaml.Tree) -> str:
    """Return advice for a file that has its rules inside another format; "" for a rules file."""
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
    source: str,
    section: str,
    entries: Iterable[dict[str, object]],
    servers: _Servers,
    *,
    files: ReadFile | None = None,
) -> tuple[AnyRule, ...]:
    rules: list[AnyRule] = []
    for index, entry in enumerate(entries):
        names = ((name, entry.get(name)) for name in ("seriesQuery", "name"))
        about = next((f"{name}: {shortened(text)}" for name, text in names if isinstance(text, str) and text), "")
        part = Part(source, f"{section}[{index}]", about)
        rules.append(read_rule(part, entry, section=section, servers=servers, files=files))
    return tuple(sorted(rules, key=lambda rule: not isinstance(rule, Rule)))


def read_rule(
    part: Part,
    entry: Mapping[str, object],
    *,
    section: str,
    servers: Mapping[str, PrometheusOptions],
    files: ReadFile | None = None,
) -> AnyRule:
    """Decode a rule of "rules" or "externalRules"; its key is the part's path.

    `servers` is what it can name as `prometheus`; without `files`, it can name no file with holidays.

    Raises:
        RulesError: it is invalid.
    """
    external = section == "externalRules"
    rule: AnyRule
    if internal := [key for key in entry if key.startswith("<")]:
        raise part.error(f"unknown key `{internal[0]}`")
    if "schedule" in entry and external:
        return _schedule_rule(part, entry, files=files)
    if "query" in entry and "seriesQuery" not in entry and "metricsQuery" not in entry:
        rule = _with_labels(part, part.decode(entry, QueryRule), external=external)
    else:
        rule = part.decode(entry, Rule)
    if rule.activation is not None and not external:
        raise part.error("activation is for external metrics; an HPA does not sleep on others", key=".activation")
    if rule.forecast is not None and isinstance(rule, QueryRule) and rule.forecast.as_:
        _check_metric_name(part, rule.forecast.as_, key=".forecast.as")
        if rule.forecast.as_ == rule.metric:
            raise part.error("the metric has this name itself; leave the key out, or give another", key=".forecast.as")
    return structs.replace(rule, key=part.path, external=external, destination=_destination(part, rule, servers))


def _destination(part: Part, rule: Any, servers: _Servers) -> Destination:
    if rule.prometheus not in ("", DEFAULT_SERVER, *servers):
        known = ", ".join(sorted([DEFAULT_SERVER, *servers]))
        why = f"there is no server {rule.prometheus!r} in prometheusServers; there are {known}"
        raise part.error(why, key=".prometheus")
    return Destination(servers.get(rule.prometheus), rule.headers)


def _schedule_rule(part: Part, entry: Mapping[str, object], *, files: ReadFile | None = None) -> ScheduleRule:
    """Return the rule of an entry with a schedule; without `files` it cannot name any."""
    section = part.decode(entry, ScheduleSection)
    _check_metric_name(part, section.metric)
    try:
        schedule = made_schedule(section.schedule, read_file=files)
    except SpecError as error:
        raise part.error(error, key=f".schedule{error.key}") from error
    return ScheduleRule(key=part.path, external=True, metric=section.metric, schedule=schedule)


def _check_metric_name(part: Part, name: str, *, key: str = ".name") -> None:
    if not is_metric_name(name):
        raise part.error(f"{name!r} cannot stand in the path of a request", key=key)
    if not name.isprintable() or " " in name:
        raise part.error(f"{name!r} has a space or an invisible character", key=key)


def _with_labels(part: Part, rule: QueryRule, *, external: bool) -> QueryRule:
    """Check a rule of the short form, and set the labels that name its namespaces and objects."""
    _check_metric_name(part, rule.metric)
    if "<<" in rule.query:
        raise part.error("the query of a short rule is no template; use seriesQuery and metricsQuery", key=".query")
    namespace_label, resource_label, resource = "", "", None
    for label, named in rule.overrides:
        key = f".resources.{label}"
        if not label.isprintable() or not label.strip():  # since Prometheus 3 almost any name is valid: k8s.pod.name
            raise part.error("no Prometheus label has such a name", key=key)
        if named in NAMESPACE_NAMES:
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
        namespace_label, resource_label, resource = "", namespace_label, NAMESPACES
    return structs.replace(rule, resource=resource, resource_label=resource_label, namespace_label=namespace_label)


def _resource_rules(part: Part, entry: Mapping[str, object] | None, servers: _Servers) -> ResourceRules | None:
    if entry is None:
        return None
    rules = part.decode(entry, ResourceRules)
    found = []
    for name, rule in (("cpu", rules.cpu), ("memory", rules.memory)):
        inner = Part(part.source, f"{part.path}.{name}")
        found.append(structs.replace(rule, destination=_destination(inner, rule, servers)))
    return structs.replace(rules, cpu=found[0], memory=found[1])


def _server(part: Part, entry: object, name: str) -> PrometheusOptions:
    spec = part.decode(entry, ServerSpec)
    if name == DEFAULT_SERVER:
        raise part.error(f"{DEFAULT_SERVER} is the server of --prometheus-url; call this one something else")
    try:
        return PrometheusOptions(name=name, **spec.arguments())
    except ValueError as error:
        raise part.error(error) from error


def _forward(
    source: str, entries: Mapping[str, object] | tuple[Mapping[str, object], ...] | None
) -> tuple[ForwardOptions, ...]:
    if entries is None:
        return ()
    if isinstance(entries, Mapping):
        return (_forward_options(Part(source, "forwardExternal"), entries),)
    parts = [Part(source, f"forwardExternal[{index}]") for index in range(len(entries))]
    if len(parts) > _MAX_OTHER_ADAPTERS:
        raise parts[_MAX_OTHER_ADAPTERS].error(f"there can be {_MAX_OTHER_ADAPTERS} other adapters")
    found = [_forward_options(*each) for each in zip(parts, entries, strict=True)]
    for index, (part, one) in enumerate(zip(parts, found, strict=True)):
        if not one.name:
            raise part.error("each adapter of a list needs a name, for messages", key=".name")
        if one.name in (other.name for other in found[:index]):
            raise part.error(f"there is another adapter {one.name}", key=".name")
        if not one.metrics and one is not found[-1]:
            why = "without patterns this adapter gets all metrics, and those after it none; put it last"
            raise part.error(why, key=".metrics")
    return tuple(found)


def _forward_options(part: Part, entry: Mapping[str, object]) -> ForwardOptions:
    spec = part.decode(entry, ForwardSpec)
    if not spec.name.isprintable() or " " in spec.name:
        raise part.error(f"{spec.name!r} has a space or an invisible character", key=".name")
    for index, pattern in enumerate(spec.metrics):
        if not is_metric_name(pattern):
            why = f"{pattern!r} is not the name of a metric, in which * may stand for any text"
            raise part.error(why, key=f".metrics[{index}]")
    try:
        return ForwardOptions(**spec.arguments())
    except ValueError as error:
        raise part.error(error) from error
