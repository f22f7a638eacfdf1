"""The rules file: prometheus-adapter's format, and milliscale's additions.

    rules:               custom.metrics.k8s.io
    externalRules:       external.metrics.k8s.io
    resourceRules:       metrics.k8s.io
    prometheusServers:   further servers, which rules name
    forwardExternal:     other metrics adapters, for external metrics that no rule makes

`model` has the rules, which are also the schema of a file. `reading` decodes and checks a file, and `manifests` finds
rules inside other files. A file is checked completely when it is loaded. An invalid one raises a RulesError of one
line: file, path in the file, advice. The only I/O here is reading files.
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
    ScheduleRule,
)
from adapter.rules.reading import load_rules, parse_rule, parse_rules
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
    "ScheduleRule",
    "load_rules",
    "parse_rule",
    "parse_rules",
]
