"""Findings about a rules file alone, without Prometheus, and about rules in objects, with the names of their fields."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from promql_parser import VectorSelector

from adapter.diagnosis.query_lint import (
    lint_custom_query,
    lint_external_query,
    lint_resource_queries,
    lint_selector,
    lint_short_query,
)
from adapter.diagnosis.report import Finding, error, warning
from adapter.gil import releasing_gil
from adapter.metrics.resource_metrics import missing_resource_labels
from adapter.promql import PromqlError, matcher_sign, matchers, parse
from adapter.rules import AnyRule, QueryRule, ResourceRules, Rule, RulesFile, ScheduleRule
from adapter.rules.goregex import GoRegex, GoRegexError
from adapter.rules.naming import NAMESPACES
from adapter.rules.objects import CLUSTER_METRIC_RULE, METRIC_RULE
from kube.api.mapping import GroupResource, NoMatchError, ResourceInfo, ResourceLookup

_Resources = Mapping[GroupResource, ResourceInfo | None]
"""The resources that rules name; None for those that do not exist or are unknown."""


async def lint(rules: RulesFile, lookup: ResourceLookup, *, knows_cluster: bool) -> tuple[Finding, ...]:
    """Return the findings, in the order of the file.

    With `knows_cluster`, `lookup` knows all resources of the cluster, and not only Kubernetes' own.

    Raises:
        KubeUnreachable, StatusError: the API server cannot list its resources.
    """
    named = {resource for rule in rules.all_rules for resource in _named_resources(rule).values()}
    resources = {resource: await _resolve(resource, lookup) for resource in named}
    # In a thread, because hundreds of rules take long, and a running adapter must serve requests.
    findings = await asyncio.to_thread(_lint, rules, resources, knows_cluster=knows_cluster)
    return in_order(findings, rules)


def in_order(findings: Iterable[Finding], rules: RulesFile) -> tuple[Finding, ...]:
    """Return findings in the order of the file, those of resourceRules last, each with its rule's `about`."""
    abouts = {rule.key: about(rule) for rule in rules.all_rules}
    order = {key: index for index, key in enumerate(abouts)}
    found = sorted(findings, key=lambda finding: order.get(finding.rule, len(order)))
    return tuple(msgspec.structs.replace(finding, about=abouts.get(finding.rule, "")) for finding in found)


def about(rule: AnyRule) -> str:
    """Return a readable name of a rule: its seriesQuery, or the metric of a short rule."""
    return rule.series_query if isinstance(rule, Rule) else rule.metric


def _named_resources(rule: AnyRule) -> dict[str, GroupResource]:
    """Return the resources that a rule names, by label."""
    if isinstance(rule, Rule):
        return dict(rule.resources.overrides)
    if isinstance(rule, ScheduleRule):
        return {}
    return {rule.resource_label: rule.resource} if rule.resource is not None else {}


async def _resolve(resource: GroupResource, lookup: ResourceLookup) -> ResourceInfo | None:
    try:
        return await lookup.resource_for(resource.resource, resource.group)
    except NoMatchError:
        return None


def _lint(rules: RulesFile, resources: _Resources, *, knows_cluster: bool) -> list[Finding]:
    findings: list[Finding] = []
    if not rules.all_rules and rules.resource is None and not rules.forward:
        findings.append(warning("no-rules", "", "there are no rules in it, so no metrics are served"))
    for rule in releasing_gil(rules.all_rules, every=1):
        if isinstance(rule, ScheduleRule):
            continue
        findings += _lint_rule(rule) if isinstance(rule, Rule) else lint_short_query(rule)
        findings += _lint_resources(rule, resources, knows_cluster=knows_cluster)
        findings += _lint_namespace_label(rule, resources)
    for section in (rules.custom, rules.external):
        findings += _lint_overlaps(section)
    if rules.resource is not None:
        findings += _lint_resource_rules(rules.resource)
    return findings


def _lint_rule(rule: Rule) -> Iterator[Finding]:
    yield from _lint_filters(rule)
    series = next(iter(SeriesNames.of(rule.series_query).names or ()), "")
    yield from (lint_external_query if rule.external else lint_custom_query)(rule, series=series)
    unknown = rule.naming.matches.unknown_groups(rule.naming.as_)
    if unknown:
        yield error(
            "unknown-group",
            f"{rule.key}.name.as",
            f"${unknown[0]} is no group of name.matches and becomes nothing; a number is written ${{1}}_suffix",
        )
    if not rule.external and rule.resources.template is None and not rule.resources.overrides:
        yield error("no-resource", rule.key, "no label maps to a resource, so it makes nothing; add resources")


def _lint_filters(rule: Rule) -> Iterator[Finding]:
    problems = list(lint_selector(rule))
    if problems:
        yield from problems
        return
    names = SeriesNames.of(rule.series_query).names
    if names == ():
        yield error("dead-query", f"{rule.key}.seriesQuery", "its conditions on the name exclude each other")
    if not names:
        return
    shown = f"({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
    for key, one in rule.all_filters():
        path, pattern = f"{rule.key}.{key}", repr(one.regex.pattern)
        passing = sum(map(one.takes, names))
        if one.keeps and not passing:
            message = f"{pattern} matches no series that the seriesQuery can find {shown}"
            yield error("dead-filter", path, f"{message}, so the rule makes nothing")
        elif not passing:
            message = f"{pattern} leaves out every series that the seriesQuery can find {shown}"
            yield error("dead-filter", path, message)
        elif not one.keeps and passing == len(names):
            message = f"{pattern} leaves out none of the series that the seriesQuery can find"
            yield warning("idle-filter", path, message)


def _lint_resources(rule: AnyRule, resources: _Resources, *, knows_cluster: bool) -> Iterator[Finding]:
    path = f"{rule.key}.resources.overrides" if isinstance(rule, Rule) else f"{rule.key}.resources"
    for label, named in _named_resources(rule).items():
        if resources[named] is not None:
            continue
        if knows_cluster:
            message = f"the cluster has no resource {named}, so the label maps to nothing"
            yield error("unknown-resource", f"{path}.{label}", message)
        else:
            message = f"{named} is not a built-in resource; give --lister-kubeconfig to look it up in the cluster"
            yield warning("unchecked-resource", f"{path}.{label}", message)


def _lint_namespace_label(rule: Rule | QueryRule, resources: _Resources) -> Iterator[Finding]:
    """Requests for objects in namespaces need the label with the namespace; cluster-scoped ones do not.

    For a rule of one namespace, the whole result counts.
    """
    if rule.namespace:
        return
    infos = [info for named in _named_resources(rule).values() if (info := resources[named]) is not None]
    namespaced = ", ".join(dict.fromkeys(str(info.group_resource) for info in infos if info.namespaced))
    if isinstance(rule, QueryRule):
        if namespaced and not rule.namespace_label:
            message = (
                f"no label maps to namespaces, so its metric of {namespaced} can never be found; add one to resources"
            )
            yield error("no-namespace-label", f"{rule.key}.resources", message)
        return
    if rule.resources.template is not None or any(info.group_resource == NAMESPACES for info in infos):
        return
    if rule.external:
        if rule.resources.namespaced:
            message = "no label maps to namespaces, so every request for its metrics fails"
            instead = "add one to resources.overrides, or set resources.namespaced to false"
            yield error("no-namespace-label", rule.key, f"{message}; {instead}")
    elif namespaced:
        message = f"no label maps to namespaces, so its metrics of {namespaced} can never be found"
        finding = error if all(info.namespaced for info in infos) else warning
        yield finding("no-namespace-label", rule.key, f"{message}; add one to resources.overrides")


def _lint_overlaps(rules: Sequence[AnyRule]) -> Iterator[Finding]:
    """Yield pairs of rules that make the same metric."""
    resources = [_resource_words(rule) for rule in rules]
    makers: dict[Hashable, list[int]] = {}
    for number, (second, metrics) in enumerate(releasing_gil(zip(rules, _metrics(rules), strict=True), every=1)):
        shared: dict[int, str] = {}
        for metric, shown in metrics.items():
            for earlier in makers.setdefault(metric, []):
                shared.setdefault(earlier, shown)
            makers[metric].append(number)
        for earlier in sorted(shared):
            first, some, others = rules[earlier], resources[earlier], resources[number]
            if some is not None and others is not None and not some & others:
                continue
            same_series = isinstance(first, Rule) and first.series_query == getattr(second, "series_query", None)
            message = f"{first.key} also makes {shared[earlier]}; the later one wins"
            if same_series or not (isinstance(first, Rule) and isinstance(second, Rule)):
                yield warning("overlap", second.key, message)
            else:
                yield warning("may-overlap", second.key, f"{message} where both find series")


def _metrics(rules: Sequence[AnyRule]) -> Iterator[Mapping[Hashable, str]]:
    """Yield the metrics of each rule, as far as the names of its series are known, with their names for messages.

    Rules with the same seriesQuery, filters and `name` make the same metrics even if the series are unknown, so these
    three are also a key.
    """
    known = {rule.key: SeriesNames.of(rule.series_query) for rule in rules if isinstance(rule, Rule)}
    candidates = sorted({name for names in known.values() for name in names.names or ()})
    for rule in rules:
        if not isinstance(rule, Rule):
            yield {rule.metric: rule.metric}
            continue
        names = known[rule.key]
        found = sorted(names.names) if names.names is not None else filter(names.can_be, candidates)
        metrics = (rule.metric_for(name) for name in found)
        filters = tuple((one.regex.pattern, one.keeps) for one in rule.filters)
        everything = (rule.series_query, filters, rule.naming.matches.pattern, rule.naming.as_)
        yield {metric: metric for metric in metrics if metric is not None} or {everything: "the same metrics"}


def _resource_words(rule: AnyRule) -> frozenset[str] | None:
    """Return the resources that a rule names, in the singular; None if it can be any resource."""
    if isinstance(rule, Rule) and rule.resources.template is not None:
        return None
    words = frozenset(named.resource.lower().removesuffix("s") for named in _named_resources(rule).values())
    return words or None


def _lint_resource_rules(rules: ResourceRules) -> Iterator[Finding]:
    yield from lint_resource_queries(rules)
    for key, rule in (("resourceRules.cpu", rules.cpu), ("resourceRules.memory", rules.memory)):
        for resource in missing_resource_labels(rule):
            yield error("no-resource", f"{key}.resources", f"no label maps to {resource}; add one to overrides")


# A list of names, or names with a list in one group: ^(a|b)_total$
_LIST = re.compile(r"[\w:]+(?:\|[\w:]+)*|\^[\w:]+|[\w:]+\$|\^[\w:]+\$", re.ASCII)
_GROUP = re.compile(r"\^?([\w:]*)\((?:\?:)?([\w:|]*)\)([\w:]*)\$?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """The names of series that a seriesQuery can find: all of them, or None if the text does not list them."""

    names: tuple[str, ...] | None = None
    _patterns: tuple[tuple[GoRegex, bool], ...] = ()

    @classmethod
    def of(cls, series_query: str) -> SeriesNames:
        """Parse a selector. If it cannot be parsed, the names are unknown."""
        try:
            tree = parse(series_query)
            if not isinstance(tree, VectorSelector):
                return cls()
            names: tuple[str, ...] | None = None
            patterns = []
            for sign, text in [(matcher_sign(one), one.value) for one in matchers(tree) if one.name == "__name__"]:
                if sign == "=":
                    names = (text,)
                elif sign == "=~":
                    names = _listed(text) if names is None else names
                pattern = text if sign in ("=~", "!~") else re.escape(text)
                patterns.append((GoRegex(f"^(?:{pattern})$"), sign in ("=", "=~")))
        except (PromqlError, GoRegexError):
            return cls()
        known = cls(None, tuple(patterns))
        return known if names is None else cls(tuple(filter(known.can_be, names)), known._patterns)

    def can_be(self, name: str) -> bool:
        """Return whether the selector can find a series of this name."""
        if self.names is not None and name not in self.names:
            return False
        return all(pattern.matches(name) == wanted for pattern, wanted in self._patterns)


def _listed(pattern: str) -> tuple[str, ...] | None:
    """Return the names that a pattern lists; None if it is more than a list."""
    if _LIST.fullmatch(pattern):
        return tuple(pattern.strip("^$").split("|"))
    found = _GROUP.fullmatch(pattern)
    return tuple(f"{found[1]}{middle}{found[3]}" for middle in found[2].split("|")) if found is not None else None


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
