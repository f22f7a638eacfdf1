"""The rules file: prometheus-adapter's format, and what is added to it.

    rules:               custom.metrics.k8s.io
    externalRules:       external.metrics.k8s.io
    resourceRules:       metrics.k8s.io
    prometheusServers:   servers beside the one of --prometheus-url, for rules to name
    forwardExternal:     another metrics adapter, for external metrics that no rule makes

`model` has the rules, which are the schema of a file, too; `reading` decodes and checks a file, and `manifests` finds
rules inside other files. Everything that can be wrong with a file is found when it is
loaded, and is one RulesError of one line: file, place in it, what to change. Nothing here does I/O but reading files.
"""

from __future__ import annotations

from adapter.rules.model import (
    AnyRule,
    ForwardOptions,
    Merge,
    Policy,
    QueryRule,
    ResourceRule,
    ResourceRules,
    Rule,
    RulesFile,
)
from adapter.rules.reading import load_rules, parse_rules
from adapter.rules.strictyaml import RulesError

__all__ = [
    "AnyRule",
    "ForwardOptions",
    "Merge",
    "Policy",
    "QueryRule",
    "ResourceRule",
    "ResourceRules",
    "Rule",
    "RulesError",
    "RulesFile",
    "load_rules",
    "parse_rules",
]
