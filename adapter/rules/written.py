"""The keys that may stand in a rules file. Values are text; strictyaml says why."""

from __future__ import annotations

import msgspec

SECTIONS = frozenset({"rules", "externalRules", "resourceRules"})
"""The keys of a rules file that have rules."""

CHART_KEYS = frozenset({"default", "custom", "existing", "external", "resource"})
"""Keys below `rules` in the values of prometheus-adapter's chart."""


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Unknown keys are errors in every part."""


class WrittenFilter(_Strict):
    """An entry of seriesFilters."""

    is_: str = msgspec.field(name="is", default="")
    is_not: str = ""


class WrittenGroupResource(_Strict):
    """A resource, such as {group: apps, resource: deployment}."""

    resource: str
    group: str = ""


class WrittenResources(_Strict):
    """`resources` of a rule with a seriesQuery."""

    template: str = ""
    overrides: dict[str, WrittenGroupResource] = {}
    namespaced: str = "true"


class WrittenName(_Strict):
    """`name` of a rule with a seriesQuery."""

    matches: str = ""
    as_: str = msgspec.field(name="as", default="")


class WrittenDestination(_Strict, kw_only=True):
    """Where queries go."""

    prometheus: str = ""
    headers: dict[str, str] = {}


class _Common(WrittenDestination, kw_only=True):
    """What is added to prometheus-adapter's rules, in both forms."""

    nan: str = ""
    inf: str = ""
    empty: str = ""


class WrittenRule(_Common, kw_only=True):
    """A rule with a seriesQuery, as prometheus-adapter has them."""

    series_query: str = ""
    series_filters: tuple[WrittenFilter, ...] = ()
    resources: WrittenResources = msgspec.field(default_factory=WrittenResources)
    name: WrittenName = msgspec.field(default_factory=WrittenName)
    metrics_query: str = ""
    max_age: str = ""
    merge: str = ""


class WrittenQueryRule(_Common, kw_only=True):
    """The short form."""

    name: str = ""
    query: str = ""
    resources: dict[str, str] = {}


class WrittenResourceRule(WrittenDestination, kw_only=True):
    """`resourceRules.cpu` and `.memory`."""

    container_query: str = ""
    node_query: str = ""
    resources: WrittenResources = msgspec.field(default_factory=WrittenResources)
    container_label: str = ""


class WrittenResourceRules(_Strict):
    """`resourceRules`."""

    cpu: WrittenResourceRule = msgspec.field(default_factory=WrittenResourceRule)
    memory: WrittenResourceRule = msgspec.field(default_factory=WrittenResourceRule)
    window: str = "0s"


class _Access(_Strict, kw_only=True):
    url: str = ""
    headers: dict[str, str] = {}
    token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure_skip_tls_verify: str = msgspec.field(name="insecureSkipTLSVerify", default="false")
    timeout: str = ""


class WrittenServer(_Access, kw_only=True):
    """An entry of `prometheusServers`."""

    verb: str = "GET"
    max_query_bytes: str = ""


class WrittenForward(_Access, kw_only=True):
    """`forwardExternal`."""


class WrittenFile(_Strict):
    """A whole file. Rules and servers are looked at one by one: what is wrong with one can then say which."""

    rules: tuple[dict[str, object], ...] = ()
    external_rules: tuple[dict[str, object], ...] = ()
    resource_rules: WrittenResourceRules | None = None
    prometheus_servers: dict[str, dict[str, object]] = {}
    forward_external: WrittenForward | None = None


def wrapping_of(tree: object) -> str:
    """What a file is that people have at hand where prometheus-adapter runs, if it is not the rules file itself."""
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
