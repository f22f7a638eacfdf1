"""The rules file: prometheus-adapter's format, and what is added to it.

    rules:               custom.metrics.k8s.io
    externalRules:       external.metrics.k8s.io
    resourceRules:       metrics.k8s.io
    prometheusServers:   servers beside the one of --prometheus-url, for rules to name
    forwardExternal:     another adapter, which is asked for external metrics that no rule makes

`model` has what comes out, `written` the keys that may stand in a file, `reading` the way from one to the other.
Everything that can be wrong with a file is found when it is loaded and is one RulesError of one line that says where.
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
    RulesError,
    RulesFile,
    ValuePolicy,
)
from adapter.rules.reading import load_rules, parse_rules

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
    "ValuePolicy",
    "load_rules",
    "parse_rules",
]
