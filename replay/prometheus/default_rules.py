"""The rules of a replay where there is no rules file, or where it has no resourceRules."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import yaml
from msgspec import structs

from adapter.rules import AnyRule, Rule, RulesError, RulesFile, parse_rules
from autoscaler.core.model import ExternalMetric, MetricSource, ObjectMetric, PodsMetric
from kube.values.fields import quote
from replay.load import ReplayError

_CPU: Final = "rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,%s}[3m])"
_MEMORY: Final = "container_memory_working_set_bytes{<<.LabelMatchers>>,%s}"
_CONTAINER: Final = 'container!="",container!="POD"'
_NODE: Final = 'id="/"'


def complete_rules(rules: RulesFile | None, metrics: Collection[MetricSource]) -> RulesFile:
    """Return the rules for some metrics: the file's, or without a file those of the metrics' own names.

    Sections that none of the metrics needs are left out, since to list the series of many rules takes long.

    Raises:
        ReplayError: a metric's name cannot be that of a series.
    """
    if rules is None:
        rules = _rules_by_name(metrics)
    if rules.resource is None:
        text = yaml.safe_dump({"resourceRules": {"cpu": _usage(_CPU), "memory": _usage(_MEMORY), "window": "3m"}})
        rules = replace(rules, resource=parse_rules(text, source="resourceRules").resource)
    has_custom = any(isinstance(source, PodsMetric | ObjectMetric) for source in metrics)
    has_external = any(isinstance(source, ExternalMetric) for source in metrics)
    return replace(
        rules,
        custom=_of_any_age(rules.custom) if has_custom else (),
        external=_of_any_age(rules.external) if has_external else (),
    )


def _of_any_age(rules: Iterable[AnyRule]) -> tuple[AnyRule, ...]:
    """Return rules for which a series counts if it has a sample in the range of the replay."""
    return tuple(structs.replace(rule, max_age=None) if isinstance(rule, Rule) else rule for rule in rules)


def _rules_by_name(metrics: Iterable[MetricSource]) -> RulesFile:
    custom: dict[str, object] = {}
    external: dict[str, object] = {}
    for source in metrics:
        match source:
            case PodsMetric(metric) | ObjectMetric(metric):
                custom[metric.name] = _rule(metric.name, {"template": "<<.Resource>>"})
            case ExternalMetric(metric):
                external[metric.name] = _rule(metric.name, {"namespaced": False})
    text = yaml.safe_dump({"rules": list(custom.values()), "externalRules": list(external.values())})
    try:
        return parse_rules(text, source="the HPA's metrics")
    except RulesError as error:
        raise ReplayError(f"{error}; give the rules of the adapter with --config") from error


def _rule(name: str, resources: object) -> object:
    return {
        "seriesQuery": f"{{__name__={quote(name)}}}",
        "resources": resources,
        "metricsQuery": "<<.Series>>{<<.LabelMatchers>>}",
    }


def _usage(series: str) -> object:
    """Return a rule as in the values of prometheus-adapter's Helm chart."""
    return {
        "containerQuery": f"sum by (<<.GroupBy>>) ({series % _CONTAINER})",
        "nodeQuery": f"sum by (<<.GroupBy>>) ({series % _NODE})",
        "containerLabel": "container",
        "resources": {"overrides": {name: {"resource": name} for name in ("namespace", "node", "pod")}},
    }
