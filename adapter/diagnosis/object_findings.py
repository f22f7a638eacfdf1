"""Findings about rules in objects, with the names of the objects' fields."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from adapter.diagnosis.lint import about
from adapter.diagnosis.report import Finding
from adapter.rules import AnyRule, Rule
from adapter.rules.objects import CLUSTER_METRIC_RULE, METRIC_RULE

_RESOURCES: Final = re.compile(r"^resources\b")
_WITH_SPEC: Final = tuple(f"{kind} " for kind in (METRIC_RULE, CLUSTER_METRIC_RULE))


def object_findings(rule: AnyRule, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings about a rule of an object; `where` is as "MetricRule shop/queue: spec.query".

    The short form of a MetricRule has `labels` where that of the rules file has `resources`.
    """
    return tuple(_in_object(rule, finding) for finding in findings)


def _in_object(rule: AnyRule, finding: Finding) -> Finding:
    path, message = finding.where.removeprefix(rule.key).lstrip("."), finding.message
    if rule.key.startswith(_WITH_SPEC):
        if not isinstance(rule, Rule):
            path = _RESOURCES.sub("labels", path)
            message = message.replace("add one to resources", "add one to labels")
        path = f"spec.{path}" if path else ""
    where = f"{rule.key}: {path}" if path else rule.key
    return msgspec.structs.replace(finding, where=where, message=message, about=about(rule))
