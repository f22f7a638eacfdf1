"""Rules in objects of the cluster: MetricRules, ClusterMetricRules and ConfigMaps.

An object's spec is a rule of the rules file, in a slightly other form: `metric` instead of `name`, `labels` instead of
`resources` in the short form, and `type` instead of the section. It is decoded by the same functions, so messages are
the same. Objects come from many users: nothing in one can raise an error here; an invalid object has the reason
instead of rules.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from adapter.prometheus.options import PrometheusOptions, Tenant
from adapter.rules.decoding import Part, known_keys
from adapter.rules.field_types import Boolean
from adapter.rules.model import AnyRule, Merge, QueryRule, Rule, ScheduleSection
from adapter.rules.naming import NAMESPACE_NAMES
from adapter.rules.reading import parse_rules_only, read_rule
from adapter.rules.strictyaml import RulesError, Tree
from kube.api.mapping import GroupResource

METRIC_RULE = "MetricRule"
CLUSTER_METRIC_RULE = "ClusterMetricRule"
CONFIG_MAP = "ConfigMap"

INVALID = "Invalid"
"""The reason of an object that is no rule."""

# As in the rules file (adapter.rules.strictyaml).
_MAX_VALUES = 50_000
_MAX_DEPTH = 30
_SHOWN_KEY = 80
_MAX_FILTERS = 16  # as in the CustomResourceDefinition
_SECTIONS = {"External": "externalRules", "Pods": "rules", "Object": "rules"}
_PODS = (GroupResource("", "pod"), GroupResource("", "pods"))
_Servers = Mapping[str, PrometheusOptions]


class ObjectName(msgspec.Struct, frozen=True, order=True):
    """An object's kind, namespace ("" if it is cluster-scoped) and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class RuleObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object with rules."""

    name: ObjectName
    """The object."""
    uid: str = ""
    """Its UID."""
    created: str = ""
    """Its creationTimestamp, as text: 2026-11-20T08:37:41Z."""
    generation: int = 0
    """Its metadata.generation; 0 for objects without one."""
    rules: tuple[AnyRule, ...] = ()
    """Its rules; none if it is invalid."""
    error: str = ""
    """What is wrong, and what to change; "" if it is valid."""
    reason: str = ""
    """The reason of the condition Ready for `error`; "" if it is valid."""


class Tenancy(msgspec.Struct, frozen=True, kw_only=True):
    """What rules of namespaces may do."""

    label: str = ""
    """The label that every selector of their queries gets, with the namespace as its value; "" for none."""
    query_seconds: float = 10.0
    """The longest that a query may take."""
    max_samples: int = 10_000
    """The most samples that a result may have."""
    max_rules: int = 100
    """The most rules of a namespace."""
    max_metrics: int = 1_000
    """The most metrics that the rules of a namespace make."""
    total_metrics: int = 20_000
    """The most metrics that all objects make, those for all namespaces among them."""
    own_namespace: str = ""
    """The adapter's namespace, whose ConfigMaps have rules for all namespaces."""

    def tenant(self, namespace: str) -> Tenant:
        """Return the restrictions of a namespace's queries."""
        return Tenant(
            namespace=namespace, label=self.label, query_seconds=self.query_seconds, max_samples=self.max_samples
        )


def read_object(obj: Mapping[str, Any], servers: _Servers, tenancy: Tenancy) -> RuleObject:
    """Read a MetricRule, a ClusterMetricRule or a ConfigMap, by its `kind`.

    Args:
        obj: the object's JSON, which may be anything.
        servers: the servers of the rules file, by name.
        tenancy: what rules of namespaces may do.
    """
    kind = obj.get("kind")
    if kind == CONFIG_MAP:
        return identified(obj, CONFIG_MAP, lambda name: _rules_of_config_map(obj, name, servers, tenancy))
    name_of_kind = CLUSTER_METRIC_RULE if kind == CLUSTER_METRIC_RULE else METRIC_RULE
    return identified(
        obj,
        name_of_kind,
        lambda name: (_rule_of(obj.get("spec"), name, usable_servers(servers, name.namespace), tenancy),),
    )


def usable_servers(servers: _Servers, namespace: str) -> _Servers:
    """Return the servers that rules of a namespace may name; "" for rules for all namespaces.

    A message for its users does not tell whether there is another server of the name.
    """
    return {name: one for name, one in servers.items() if one.tenants or not namespace}


def identified(
    obj: Mapping[str, Any], kind: str, read: Callable[[ObjectName], Iterable[AnyRule]], *, suffix: str = ""
) -> RuleObject:
    """Return an object with the rules that `read` finds in it; with its RulesError, if it raises one.

    `suffix` follows the object's name, for one of several that are made of the same object.
    """
    found = obj.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    name = ObjectName(kind, _text(metadata.get("namespace")), _text(metadata.get("name")) + suffix)
    generation = metadata.get("generation")
    made = RuleObject(
        name=name,
        uid=_text(metadata.get("uid")),
        created=_text(metadata.get("creationTimestamp")),
        generation=generation if isinstance(generation, int) else 0,
    )
    try:
        return structs.replace(made, rules=tuple(read(name)))
    except RulesError as error:
        return structs.replace(made, error=str(error).removeprefix(f"{name}: "), reason=INVALID)


def unreadable(obj: Mapping[str, Any], kind: str, why: str) -> RuleObject:
    """Return an object without rules, and why."""

    def read(_: ObjectName) -> Iterable[AnyRule]:
        raise RulesError(why)

    return identified(obj, kind, read)


def restricted(rule: AnyRule, *, key: str, namespace: str, tenancy: Tenancy) -> AnyRule:
    """Return a rule that serves one namespace, with the restrictions of its queries; "" for a rule for all namespaces.

    Its metrics need no label for the namespace: without one, the whole result counts for it.

    Raises:
        RulesError: the rule names a server that is not for rules of namespaces, or has too many filters.
    """
    if not namespace:
        return structs.replace(rule, key=key)
    server = rule.destination.server
    if server is not None and not server.tenants:
        raise RulesError(f"{key}: prometheus: this server is not for rules of namespaces")
    destination = structs.replace(rule.destination, tenant=tenancy.tenant(namespace))
    rule = structs.replace(rule, key=key, namespace=namespace, destination=destination)
    if not isinstance(rule, Rule):
        return rule
    if len(rule.filters) > _MAX_FILTERS:
        raise RulesError(f"{key}: seriesFilters: there can be {_MAX_FILTERS}, and these are {len(rule.filters)}")
    # Requests for other namespaces never come, so a query for all of them would be waste.
    rule = structs.replace(rule, merge=Merge.NEVER)
    resources = rule.resources
    has_label = resources.template is not None or any(named in NAMESPACE_NAMES for _, named in resources.overrides)
    if rule.external and not has_label:
        rule = structs.replace(rule, resources=structs.replace(resources, namespaced=Boolean(False)))
    return rule


_CLUSTER_ONLY = ("headers", "merge")
# The names of keys in the rules file, and in objects.
_OWN_NAMES = {"name": "metric", "resources": "labels"}
_FORMS = {
    "query": ("type", *(_OWN_NAMES.get(key, key) for key in known_keys(QueryRule))),
    "seriesQuery": ("type", *known_keys(Rule)),
    "schedule": ("type", *(_OWN_NAMES.get(key, key) for key in known_keys(ScheduleSection))),
}
"""The keys of each form, by the one that determines it."""


def _rule_of(spec: object, name: ObjectName, servers: _Servers, tenancy: Tenancy) -> AnyRule:
    """Read the spec of a MetricRule or ClusterMetricRule. Raises RulesError."""
    part = Part(str(name), "spec")
    if not isinstance(spec, dict):
        raise part.error("this key is required" if spec is None else "expected a mapping")
    tree = _texts(part, spec)
    assert isinstance(tree, dict), "it was a mapping"
    form = _check_keys(part, tree, namespaced=bool(name.namespace))
    kind = tree.pop("type", None)
    section = _SECTIONS.get(kind) if isinstance(kind, str) else None
    if section is None:
        why = "this key is required" if kind is None else f"expected External, Pods or Object, got {kind!r}"
        raise part.error(why, key=".type")
    if form != "seriesQuery":
        if kind == "Pods":
            tree.setdefault("labels", {"pod": "pod"} if name.namespace else {"pod": "pod", "namespace": "namespace"})
        names = {own: key for key, own in _OWN_NAMES.items()}
        tree = {names.get(key, key): value for key, value in tree.items()}
        part = Part(part.source, part.path, own_names=_OWN_NAMES)
    rule = read_rule(part, tree, section=section, servers=servers)
    if kind == "Pods" and isinstance(rule, QueryRule) and rule.resource not in _PODS:
        raise part.error("say which label names the pods, such as {pod: pod}", key=".resources")
    if kind == "Pods" and isinstance(rule, QueryRule) and not (name.namespace or rule.namespace_label):
        raise part.error("say which label names the namespace, such as {namespace: namespace}", key=".resources")
    return restricted(rule, key=str(name), namespace=name.namespace, tenancy=tenancy)


def _check_keys(part: Part, tree: Mapping[str, Tree], *, namespaced: bool) -> str:
    """Return the key that determines the form. Raises RulesError for a key that it does not have."""
    known = set().union(*_FORMS.values())
    for key in tree:  # a misspelled `query` would leave no form
        if key not in known:
            close = difflib.get_close_matches(key, sorted(known), n=1)
            raise part.error(f"unknown key `{key[:_SHOWN_KEY]}`" + (f"; did you mean `{close[0]}`?" if close else ""))
    forms = [key for key in _FORMS if key in tree]
    if len(forms) != 1:
        given = f", not {' and '.join(forms)} together" if forms else ""
        raise part.error(f"give one of query, seriesQuery (with metricsQuery) and schedule{given}")
    [form] = forms
    for key in tree:
        if namespaced and key in _CLUSTER_ONLY:
            raise part.error(f"only a {CLUSTER_METRIC_RULE} can set this key", key=f".{key}")
        if key not in _FORMS[form]:
            raise part.error(f"this key does not go with {form}", key=f".{key}")
    return form


def _rules_of_config_map(
    obj: Mapping[str, Any], name: ObjectName, servers: _Servers, tenancy: Tenancy
) -> Iterable[AnyRule]:
    """Read each key of a ConfigMap's data, which is a rules file with `rules` and `externalRules` only.

    The result ends after the key with which there are more rules than a namespace can have.
    """
    found = obj.get("data")
    data = found if isinstance(found, dict) else {}
    namespace = "" if name.namespace == tenancy.own_namespace else name.namespace
    # A MiB has room for thousands of files and of rules, which take seconds to read.
    if namespace and len(data) > tenancy.max_rules:
        raise RulesError(f"{name}: data: there can be {tenancy.max_rules} keys, and these are {len(data)}")
    left = tenancy.max_rules if namespace else sys.maxsize
    for key, text in data.items():
        source = f"{name}: data.{key}"
        file = parse_rules_only(_text(text), servers=usable_servers(servers, namespace), source=source)
        for rule in file.all_rules:
            if namespace and rule.destination.headers:
                raise RulesError(f"{source}: {rule.key}.headers: only rules for all namespaces can set headers")
            yield restricted(rule, key=f"{name} {key} {rule.key}", namespace=namespace, tenancy=tenancy)
        left -= len(file.all_rules)
        if left < 0:  # too many, however many the other keys have
            return


def _texts(part: Part, value: object) -> Tree | None:
    """Return JSON as the tree that strict YAML has: every scalar is text, and keys whose value is null are left out.

    Raises:
        RulesError: it is too large.
    """
    left = _MAX_VALUES

    def tree(value: object, depth: int) -> Tree | None:
        nonlocal left
        left -= 1
        if left < 0 or depth > _MAX_DEPTH:
            raise part.error("it has too many values, or is nested too deeply")
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case dict():
                entries = {str(key): tree(entry, depth + 1) for key, entry in value.items()}
                return {key: entry for key, entry in entries.items() if entry is not None}
            case list():
                return [tree(entry, depth + 1) for entry in value]
        return str(value)

    return tree(value, 1)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
