"""Find rules inside other files.

Rules may be in a ConfigMap, among other objects of a manifest, or in the values of prometheus-adapter's Helm chart: in
a values file, under the name of a subchart, or in an object that installs the chart (Flux' HelmRelease, Argo CD's
Application, Rancher's HelmChart). The adapter serves none of these; `check` finds the rules in them. MetricRules and
ClusterMetricRules in a manifest are rules, too; they can name servers of a rules file in the same manifest.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapter.prometheus import PrometheusOptions
from adapter.rules.model import RulesFile
from adapter.rules.objects import CLUSTER_METRIC_RULE, METRIC_RULE, Tenancy, read_object
from adapter.rules.reading import CHART_KEYS, decode_rules, read_text
from adapter.rules.strictyaml import RulesError, Tree, parse

_Mapping = dict[str, Tree]
# Where the values of a chart are in objects that install one: as a tree, or as text.
_VALUES = {
    "HelmRelease": (("spec", "values"),),
    "Application": (("spec", "source", "helm", "valuesObject"), ("spec", "source", "helm", "values")),
    "HelmChart": (("spec", "valuesContent"),),
    "HelmChartConfig": (("spec", "valuesContent"),),
}
_SECTIONS = frozenset({"rules", "externalRules", "resourceRules"})
_SECTION = re.compile(rf"^(?:{'|'.join(sorted(_SECTIONS))}):", re.MULTILINE)
_SHOWN_OBJECTS = 5
_LISTS = ("List", f"{METRIC_RULE}List", f"{CLUSTER_METRIC_RULE}List")
_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class FoundRules:
    """Rules, and `where` in the file they were found, with notes for the user; "" for a rules file.

    `is_object`: it is the rule of a MetricRule or ClusterMetricRule, and `where` its name.
    """

    where: str
    rules: RulesFile
    is_object: bool = False


def load_manifest_rules(path: Path) -> list[FoundRules]:
    """Return the rules of a rules file, or of each object or Helm values in a manifest; one or more.

    Raises:
        RulesError: the file cannot be read, has no rules, or is invalid.
    """
    return manifest_rules(read_text(path), source=str(path), directory=path.parent)


def manifest_rules(text: str, *, source: str, directory: Path | None = None) -> list[FoundRules]:
    """Return the rules in a text; `source` names it in messages, `directory` is as for `parse_rules`.

    Raises:
        RulesError: as for `load_manifest_rules`.
    """
    documents = parse(text, source=source)
    if len(documents) <= 1 and not any(map(_is_wrapping, documents)):
        return [
            FoundRules(
                "", decode_rules(documents[0] if documents else {}, source=source, text=text, directory=directory)
            )
        ]
    found = []
    for one in documents:
        for where, tree, note in _rules_in(one, source):
            rules = decode_rules(tree, source=f"{source}: {where}", text=text, directory=directory)
            found.append(FoundRules(where + (f"; {note}" if note else ""), rules))
    servers = {name: server for one in found for name, server in one.rules.prometheus_servers.items()}
    found += _metric_rules(documents, source, servers)
    if not found:
        names = [_name(one) for one in documents[:_SHOWN_OBJECTS]]
        more = ", ..." if len(documents) > _SHOWN_OBJECTS else ""
        kinds = [str(one.get("kind")) for one in documents if isinstance(one, dict)]
        close = [each for kind in kinds for each in difflib.get_close_matches(kind, (METRIC_RULE, CLUSTER_METRIC_RULE))]
        hint = f"; did you mean {close[0]}?" if close else ""
        raise RulesError(f"{source}: there are no rules in it, but {', '.join(names)}{more}{hint}")
    return found


def _metric_rules(
    documents: Iterable[Tree | None], source: str, servers: Mapping[str, PrometheusOptions]
) -> Iterator[FoundRules]:
    """Yield the rules of MetricRules and ClusterMetricRules, also of those in Lists. Raises RulesError."""
    errors = []
    for one in documents:
        if not isinstance(one, dict):
            continue
        kind = one.get("kind")
        if kind in (METRIC_RULE, CLUSTER_METRIC_RULE):
            # Outside of the cluster, the namespace may be left to kubectl.
            metadata = one.get("metadata")
            defaults = {"namespace": _NAMESPACE} if kind == METRIC_RULE else {}
            named = {**one, "metadata": {**defaults, **(metadata if isinstance(metadata, dict) else {})}}
            found = read_object(named, servers=servers, tenancy=Tenancy())
            if found.error:
                errors.append(f"{source}: {found.name}: {found.error}")
            for rule in found.rules:
                custom, external = ((), (rule,)) if rule.external else ((rule,), ())
                rules = RulesFile(custom=custom, external=external, prometheus_servers=servers)
                yield FoundRules(str(found.name), rules, is_object=True)
        elif kind in _LISTS and isinstance(items := one.get("items"), list):
            yield from _metric_rules(items, source, servers)
    if errors:
        raise RulesError("\n".join(errors))


def _is_wrapping(tree: Tree) -> bool:
    """Return True for a Kubernetes object and for Helm values."""
    return isinstance(tree, dict) and (("kind" in tree and "apiVersion" in tree) or any(_values(tree, "")))


def _rules_in(tree: Tree, source: str) -> Iterator[tuple[str, Tree, str]]:
    """Yield the rules of a document: path, tree of a rules file, note for the user."""
    if not isinstance(tree, dict):
        return
    kind = str(tree.get("kind", ""))
    if kind == "ConfigMap":
        data = tree.get("data")
        for key, text in data.items() if isinstance(data, dict) else ():
            # Other keys may hold files of other programs.
            if isinstance(text, str) and _SECTION.search(text):
                for inner in parse(text, source=f"{source}: {_name(tree)}: data.{key}"):
                    if isinstance(inner, dict) and _SECTIONS & inner.keys():
                        yield f"{_name(tree)}: data.{key}", inner, ""
    elif kind in _VALUES:
        for path in _VALUES[kind]:
            values = _at(tree, path)
            path_text = f"{_name(tree)}: {'.'.join(path)}"
            for found in parse(values, source=f"{source}: {path_text}") if isinstance(values, str) else [values]:
                if isinstance(found, dict):
                    yield from _values(found, path_text)
    elif not kind:
        if _SECTIONS & tree.keys() and not any(_values(tree, "")):
            yield "a rules file", tree, ""
        yield from _values(tree, "values of a Helm chart")


def _values(values: _Mapping, path: str) -> Iterator[tuple[str, Tree, str]]:
    """Yield the rules in values of prometheus-adapter's chart or of ours, or of one that has it as a subchart."""
    rules = values.get("rules")
    if isinstance(rules, dict) and CHART_KEYS & rules.keys():
        made = {
            "rules": rules.get("custom", []),
            "externalRules": rules.get("external", []),
            **({"resourceRules": rules["resource"]} if rules.get("resource") else {}),
            **{key: rules[key] for key in ("prometheusServers", "forwardExternal") if rules.get(key)},
        }
        notes = ["rules[N] is custom[N], externalRules[N] external[N]"]
        if rules.get("existing"):
            notes = [f"the rules in use are those of the ConfigMap {rules['existing']}, and not here"]
        elif rules.get("default") not in ("false", "False", "FALSE"):
            notes.append("the chart's default rules stand before these, and are not here")
        yield f"{path}, rules", made, "; ".join(notes)
        return
    for key, inner in values.items():
        if isinstance(inner, dict) and isinstance(inner.get("rules"), dict):
            yield from _values(inner, f"{path}, {key}")


def _at(tree: Tree | None, path: tuple[str, ...]) -> Tree | None:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _name(tree: Tree) -> str:
    """An object's kind, namespace and name."""
    if not isinstance(tree, dict) or "kind" not in tree:
        return "a document that is no object"
    names = [str(_at(tree, ("metadata", key)) or "") for key in ("namespace", "name")]
    return f"{tree['kind']} {'/'.join(filter(None, names))}".rstrip()
