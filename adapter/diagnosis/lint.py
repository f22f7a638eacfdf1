"""What can be said against a rules file without Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec

from adapter.diagnosis.query_lint import check_custom, check_external, check_resource_rules, check_selector, check_short
from adapter.diagnosis.report import Finding, Severity
from adapter.diagnosis.series_names import SeriesNames
from adapter.metrics.resource_metrics import missing_resource_labels
from adapter.rules import AnyRule, QueryRule, ResourceRules, Rule, RulesFile
from adapter.rules.naming import ResourceNaming, SeriesFilter
from kube.mapping import GroupResource, NoMatchError, ResourceInfo, ResourceLookup

_NAMESPACES = GroupResource("", "namespaces")


async def lint(rules: RulesFile, lookup: ResourceLookup, *, knows_cluster: bool) -> tuple[Finding, ...]:
    """The findings, in the order of the file.

    Args:
        rules: the rules.
        lookup: which resources there are.
        knows_cluster: whether `lookup` knows all of them, and not only Kubernetes' own.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    # In a thread, since hundreds of rules take a while, and the process that asks may be answering requests.
    findings, overlaps = await asyncio.to_thread(_without_cluster, rules)
    external = {rule.key for rule in rules.external_rules}
    for rule in rules.all_rules:
        findings += await _resources(rule, lookup, external=rule.key in external, knows_cluster=knows_cluster)
    return in_order([*findings, *overlaps], rules)


def in_order(findings: Iterable[Finding], rules: RulesFile) -> tuple[Finding, ...]:
    """Findings in the order of the file, those of resourceRules last, each with what its rule is about."""
    abouts = {rule.key: about(rule) for rule in rules.all_rules}
    order = {key: index for index, key in enumerate(abouts)}
    found = sorted(findings, key=lambda finding: order.get(finding.rule, len(order)))
    return tuple(msgspec.structs.replace(finding, about=abouts.get(finding.rule, "")) for finding in found)


def about(rule: AnyRule) -> str:
    """What people know a rule by: its seriesQuery, or the metric of a short rule."""
    return rule.series_query if isinstance(rule, Rule) else rule.metric


def _without_cluster(rules: RulesFile) -> tuple[list[Finding], list[Finding]]:
    """What needs no knowledge of the resources: of rules by themselves, and of several together."""
    findings: list[Finding] = []
    if not rules.all_rules and rules.resource is None and rules.forward is None:
        findings.append(_warning("no-rules", "", "there are no rules in it, so no metrics are served"))
    for external, some in ((False, rules.custom_rules), (True, rules.external_rules)):
        for rule in some:
            if isinstance(rule, Rule):
                findings += _filters(rule)
                series = next(iter(SeriesNames.of(rule.series_query).names or ()), "")
                findings += (check_external if external else check_custom)(rule, series=series)
                findings += _name(rule)
                if not external and rule.resources.template is None and not rule.resources.overrides:
                    findings.append(
                        _error("no-resource", rule.key, "no label means a resource, so it makes nothing; add resources")
                    )
            else:
                findings += check_short(rule)
    overlaps = [*_overlaps(rules.custom_rules), *_overlaps(rules.external_rules)]
    if rules.resource is not None:
        overlaps += _resource_rules(rules.resource)
    return findings, overlaps


async def _resources(
    rule: AnyRule, lookup: ResourceLookup, *, external: bool, knows_cluster: bool
) -> Sequence[Finding]:
    """What the cluster's resources, or Kubernetes' own, say of a rule."""
    if isinstance(rule, Rule):
        return [
            *await _overrides(rule.key, rule.resources, lookup, knows_cluster=knows_cluster),
            *await _namespace_label(rule, lookup, external=external),
        ]
    if rule.resource is None:
        return []
    place = f"{rule.key}.resources.{rule.resource_label}"
    findings = [*await _resource(place, rule.resource, lookup, knows_cluster=knows_cluster)]
    info = await _info(rule.resource, lookup)
    if not rule.namespace_label and info is not None and info.namespaced:
        findings.append(
            _error(
                "no-namespace-label",
                f"{rule.key}.resources",
                f"no label means namespaces, so its metric of {info.group_resource} can never be found;"
                " add one to resources",
            )
        )
    return findings


def _error(code: str, where: str, message: str) -> Finding:
    return Finding(severity=Severity.ERROR, code=code, where=where, message=message)


def _warning(code: str, where: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, code=code, where=where, message=message)


def _filters(rule: Rule) -> Iterable[Finding]:
    problems = list(check_selector(rule))
    if problems:
        yield from problems
        return
    names = SeriesNames.of(rule.series_query)
    for index, one in enumerate(rule.filters):
        place = f"{rule.key}.{_filter_key(rule, index, one)}"
        if one.keeps and not names.can_match(one.regex):
            yield _error(
                "dead-filter",
                place,
                f"{one.regex.pattern!r} matches no series that the seriesQuery can find{_listed(names)},"
                " so the rule makes nothing",
            )
        elif not one.keeps and names.names:
            if not any(one.takes(name) for name in names.names):
                yield _error(
                    "dead-filter",
                    place,
                    f"{one.regex.pattern!r} leaves out every series that the seriesQuery can find{_listed(names)}",
                )
            elif all(one.takes(name) for name in names.names):
                yield _warning(
                    "idle-filter",
                    place,
                    f"{one.regex.pattern!r} leaves out none of the series that the seriesQuery can find",
                )
    if names.names == ():
        yield _error("dead-query", f"{rule.key}.seriesQuery", "its conditions on the name exclude each other")


def _filter_key(rule: Rule, index: int, one: SeriesFilter) -> str:
    if one.regex is rule.naming.matches:
        return "name.matches"
    return f"seriesFilters[{index}].{'is' if one.keeps else 'isNot'}"


def _listed(names: SeriesNames) -> str:
    if names.names:
        return f" ({', '.join(names.names[:3])}{', ...' if len(names.names) > 3 else ''})"
    known = [
        text for text in (f"{names.begins}..." * bool(names.begins), f"...{names.ends}" * bool(names.ends)) if text
    ]
    return f" ({', '.join(known)})" if known else ""


def _name(rule: Rule) -> Iterable[Finding]:
    unknown = rule.naming.matches.unknown_groups(rule.naming.as_)
    if unknown:
        yield _error(
            "unknown-group",
            f"{rule.key}.name.as",
            f"${unknown[0]} is no group of name.matches and becomes nothing; a number is written ${{1}}_suffix",
        )


async def _overrides(
    key: str, naming: ResourceNaming, lookup: ResourceLookup, *, knows_cluster: bool
) -> Sequence[Finding]:
    findings: list[Finding] = []
    for label, named in naming.overrides:
        findings += await _resource(f"{key}.resources.overrides.{label}", named, lookup, knows_cluster=knows_cluster)
    return findings


async def _resource(
    place: str, named: GroupResource, lookup: ResourceLookup, *, knows_cluster: bool
) -> Sequence[Finding]:
    if await _info(named, lookup) is not None:
        return []
    if knows_cluster:
        return [_error("unknown-resource", place, f"the cluster has no resource {named}; the label means nothing")]
    why = f"{named} is no resource of Kubernetes itself; give --lister-kubeconfig to ask the cluster"
    return [_warning("unchecked-resource", place, why)]


async def _namespace_label(rule: Rule, lookup: ResourceLookup, *, external: bool) -> Sequence[Finding]:
    """What is asked for in a namespace needs the label that says which series are in it.

    Whoever asks for an object at the root of the cluster needs none, as of nodes.
    """
    if rule.resources.template is not None:
        return []
    infos = [await _info(named, lookup) for _, named in rule.resources.overrides]
    if any(info is not None and info.group_resource == _NAMESPACES for info in infos):
        return []
    if external:
        lost = "every request for its metrics fails" if rule.resources.namespaced else ""
        instead = ", or set resources.namespaced to false"
    else:
        in_namespaces = dict.fromkeys(
            str(info.group_resource) for info in infos if info is not None and info.namespaced
        )
        # Requests for these are in a namespace, and the query cannot be written without its label.
        lost = f"its metrics of {', '.join(in_namespaces)} can never be found" if in_namespaces else ""
        instead = ""
    if not lost:
        return []
    message = f"no label means namespaces, so {lost}; add one to resources.overrides{instead}"
    works = not external and any(info is not None and not info.namespaced for info in infos)
    return [(_warning if works else _error)("no-namespace-label", rule.key, message)]


async def _info(named: GroupResource, lookup: ResourceLookup) -> ResourceInfo | None:
    try:
        return await lookup.resource_for(named.resource, named.group)
    except NoMatchError:
        return None


def _overlaps(rules: Sequence[AnyRule]) -> Iterable[Finding]:
    """Pairs of rules that make the same metric of a name that one of them names."""
    words = [_words(rule) for rule in rules]
    makers: dict[Hashable, list[int]] = {}
    for number, (second, made) in enumerate(zip(rules, _made(rules), strict=True)):
        shared: dict[int, str] = {}
        for metric, shown in made.items():
            for earlier in makers.setdefault(metric, []):
                shared.setdefault(earlier, shown)
            makers[metric].append(number)
        for earlier in sorted(shared):
            first = rules[earlier]
            if not _meet(words[earlier], words[number]):
                continue
            alike = isinstance(first, Rule) and first.series_query == getattr(second, "series_query", None)
            certain = alike or isinstance(first, QueryRule) or isinstance(second, QueryRule)
            yield _warning(
                "overlap" if certain else "may-overlap",
                second.key,
                f"{first.key} also makes {shared[earlier]}; the later one wins"
                + ("" if certain else " where both find series"),
            )


def _made(rules: Sequence[AnyRule]) -> Iterator[Mapping[Hashable, str]]:
    """What each rule makes, as far as names are known, with how it is called.

    Of a rule of which none is known, all of it is one thing: what a rule with the same words makes, too.
    """
    known = {rule.key: SeriesNames.of(rule.series_query) for rule in rules if isinstance(rule, Rule)}
    candidates = sorted({name for names in known.values() for name in names.names or ()})
    for rule in rules:
        if isinstance(rule, QueryRule):
            yield {rule.metric: rule.metric}
            continue
        names = known[rule.key]
        found = sorted(names.names) if names.names is not None else filter(names.can_be, candidates)
        made = (rule.metric_for(name) for name in found)
        yield {metric: metric for metric in made if metric is not None} or {_spelt(rule): "the same metrics"}


def _spelt(rule: Rule) -> Hashable:
    """What decides which metrics a rule makes."""
    filters = tuple((one.regex.pattern, one.keeps) for one in rule.filters)
    return (rule.series_query, filters, rule.naming.matches.pattern, rule.naming.as_)


def _meet(first: frozenset[str] | None, second: frozenset[str] | None) -> bool:
    """Tell whether two rules can be about the same resource, by their words. A template can be about any."""
    return first is None or second is None or bool(first & second)


def _words(rule: AnyRule) -> frozenset[str] | None:
    if isinstance(rule, QueryRule):
        return None if rule.resource is None else frozenset({_word(rule.resource)})
    if rule.resources.template is not None or not rule.resources.overrides:
        return None
    return frozenset(_word(named) for _, named in rule.resources.overrides)


def _word(named: GroupResource) -> str:
    """A resource's name without what its plural adds, since a rule may use either."""
    return named.resource.lower().removesuffix("s")


def _resource_rules(rules: ResourceRules) -> Iterable[Finding]:
    yield from check_resource_rules(rules)
    for key, rule in (("resourceRules.cpu", rules.cpu), ("resourceRules.memory", rules.memory)):
        for resource in missing_resource_labels(rule):
            yield _error("no-resource", f"{key}.resources", f"no label means {resource}; add one to overrides")
