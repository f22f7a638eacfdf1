"""Findings about the queries of a rule from their text alone: each is rendered for an object called x, and parsed.

A query that cannot be parsed is not known to be wrong, since other servers than Prometheus have languages of their own.
There are no other findings about it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from promql_parser import Expr, MatchOp, VectorSelector

from adapter.diagnosis.report import Finding, Severity
from adapter.gotemplate import Template
from adapter.metrics.resource_metrics import resource_sources
from adapter.promql import Labels, PromqlError, can_be_nan, is_scalar, parse, result_labels, selectors
from adapter.rules import QueryRule, ResourceRules, Rule, ValuePolicy
from adapter.rules.model import on_one_line
from adapter.rules.query import QUERY_FIELDS, QueryError, custom_query, external_query
from kube.selectors import LabelSelector

_NAME = "x"
_SERIES = "series"
_PLAIN_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_EVERYTHING = LabelSelector()
_NAMESPACE_WORDS = frozenset({"namespace", "namespaces"})
# What Helm and most other templates look like.
_OTHER_DELIMITERS = re.compile(rf"\{{\{{-?\s*\.(?:{'|'.join(QUERY_FIELDS)})\b[^}}]*\}}\}}")

Tree = Expr | None


def check_selector(rule: Rule) -> Iterator[Finding]:
    """The findings about a rule's seriesQuery."""
    place = f"{rule.key}.seriesQuery"
    try:
        tree = parse(rule.series_query)
    except PromqlError as error:
        yield _not_promql(place, error)
        return
    if not isinstance(tree, VectorSelector):
        yield _error("bad-query", place, 'it is no selector: write it as name{label="value"}')


def check_custom(rule: Rule, *, series: str = "") -> Iterator[Finding]:
    """The findings about the metricsQuery of a rule of custom metrics; `series` is a name that it may find."""
    place = f"{rule.key}.metricsQuery"
    namespace_label, *others = _labels(rule)
    labels = [label for label in (*others, namespace_label) if label]
    yield from _check_template(place, rule.query, "{<<.LabelMatchers>>}", "namespaces and objects")
    render = functools.partial(
        custom_query,
        rule.query,
        series=_plain(series),
        names=[_NAME],
        metric_selector=_EVERYTHING,
    )
    trees: dict[str, Tree] = {}
    for label in labels:
        namespaced = bool(namespace_label) and label != namespace_label
        make = functools.partial(
            render,
            resource_label=label,
            namespace_label=namespace_label if namespaced else "",
            namespace=_NAME if namespaced else "",
        )
        findings, trees[label] = _parsed(place, rule.query, make)
        yield from findings
        if trees[label] is None:
            return
    yield from _check_results(place, rule, namespace_label, {label: tree for label, tree in trees.items() if tree})
    yield from _check_nan(place, rule.values, trees.values())


def check_external(rule: Rule, *, series: str = "") -> Iterator[Finding]:
    """The findings about the metricsQuery of a rule of external metrics."""
    place = f"{rule.key}.metricsQuery"
    yield from _check_template(place, rule.query, "{<<.LabelMatchers>>}", "namespaces")
    namespace_label = _labels(rule)[0] if rule.resources.namespaced else ""
    make = functools.partial(
        external_query,
        rule.query,
        series=_plain(series),
        namespace_label=namespace_label,
        namespace=_NAME if namespace_label else "",
        metric_selector=_EVERYTHING,
    )
    findings, tree = _parsed(place, rule.query, make)
    yield from findings
    yield from _check_nan(place, rule.values, [tree])


def check_short(rule: QueryRule) -> Iterator[Finding]:
    """The findings about the query of a short rule."""
    place = f"{rule.key}.query"
    findings, tree = _parsed(place, None, lambda: rule.query)
    yield from findings
    if tree is None:
        return
    labels = result_labels(tree)
    for label, what in ((rule.resource_label, "objects' names"), (rule.namespace_label, "objects' namespace")):
        if label and not labels.can_have(label):
            yield _error("no-object-label", place, f"{_lacks(tree, labels)} `{label}`, the label with the {what}")
            break
    yield from _check_nan(place, rule.values, [tree])


def check_resource_rules(rules: ResourceRules) -> Iterator[Finding]:
    """The findings about the queries of resourceRules."""
    for source in resource_sources(rules):
        rule = source.rule
        assert isinstance(rule, Rule), "resourceRules have no short form"
        if not source.resource_label:
            continue  # which is a finding of its own
        yield from _check_template(rule.key, rule.query, "<<.LabelMatchers>>", "namespaces and objects")
        make = functools.partial(
            custom_query,
            rule.query,
            series="",
            resource_label=source.resource_label,
            names=[_NAME],
            namespace_label=source.namespace_label,
            namespace=_NAME if source.namespace_label else "",
            metric_selector=_EVERYTHING,
            group_by=source.group_by,
        )
        findings, tree = _parsed(rule.key, rule.query, make)
        yield from findings
        if tree is not None and not result_labels(tree).can_have(source.resource_label):
            yield _no_object_label(rule.key, tree, source.resource_label)


def _check_template(place: str, query: Template, matchers: str, found: str) -> Iterator[Finding]:
    if "LabelMatchers" not in query.source and "LabelValuesByName" not in query.source:
        message = f"without <<.LabelMatchers>> it finds the series of all {found}; write {matchers} after its series"
        yield _warning("no-label-matchers", place, message)


def _parsed(place: str, query: Template | None, make: Callable[[], str]) -> tuple[list[Finding], Tree]:
    """What is wrong with the text of a query, and its syntax tree; None where it has none."""
    other = _OTHER_DELIMITERS.search(query.source) if query is not None else None
    if other is not None:
        message = f"{other[0]} is sent to Prometheus as it stands: the template's delimiters are << and >>"
        return [_error("wrong-delimiters", place, message)], None
    try:
        return [], parse(make())
    except PromqlError as error:
        return [_not_promql(place, error)], None
    except QueryError:
        return [], None  # with other data it may make one


def _check_results(place: str, rule: Rule, namespace_label: str, trees: dict[str, Expr]) -> Iterator[Finding]:
    """Whether the result has the label with the object's name, and what else tells its values apart."""
    had = {label: tree for label, tree in trees.items() if result_labels(tree).can_have(label)}
    if not had:
        for label, tree in list(trees.items())[:1]:
            yield _no_object_label(place, tree, label)
        return
    if list(had) == [namespace_label] and len(trees) > 1:
        label = next(iter(trees))
        message = f"the result never has the label `{label}`, so only metrics of namespaces have values"
        yield _warning("only-namespaces", place, f"{message}; aggregate with by (<<.GroupBy>>)")
        return
    for label, tree in list(had.items())[:1]:
        more = sorted(_telling_apart(tree, {label, namespace_label, *_overridden(rule)}, rule))
        if more:
            shown = ", ".join(f"`{one}`" for one in more)
            message = f"the result is also by {shown}, so an object may have several values: the first is taken"
            yield _warning("several-values", place, message)


def _telling_apart(tree: Expr, known: set[str], rule: Rule) -> set[str]:
    """The labels of a result beside those that name resources, where an aggregation leaves only some."""
    labels = result_labels(tree)
    if labels.others:
        return set()
    template = rule.resources.template
    fixed = [
        {one.name for one in selector.matchers.matchers if one.op == MatchOp.Equal} for selector in selectors(tree)
    ]
    same = set.intersection(*fixed) if fixed else set()
    return {label for label in labels.names - known - same if template is None or template.resource_in(label) is None}


def _check_nan(place: str, values: ValuePolicy, trees: Iterable[Tree]) -> Iterator[Finding]:
    if not values.nan_is_written and any(can_be_nan(tree) for tree in trees if tree is not None):
        yield _warning(
            "may-be-nan",
            place,
            "a division by zero or a quantile of nothing is NaN, which counts as zero, and so scales down to the"
            " minimum; say what is meant: `nan: missing`, `nan: error` or `nan: zero`",
        )


def _labels(rule: Rule) -> Sequence[str]:
    """The label of namespaces, "" if there is none, and those of other resources, by the rule's words."""
    template = rule.resources.template
    namespace = next((label for label, named in rule.resources.overrides if _is_namespace(named.resource)), "")
    others = [label for label, named in rule.resources.overrides if not _is_namespace(named.resource)]
    if template is not None:
        namespace = namespace or template.label_for(group="", singular="namespace")
        others += [label for label in _written(rule) if template.resource_in(label) and label != namespace]
        others.append(template.label_for(group="", singular="pod"))
    return (namespace, *dict.fromkeys(others))


def _written(rule: Rule) -> list[str]:
    """The labels that a query's own text groups by, as far as it is read without <<.GroupBy>>."""
    try:
        query = custom_query(
            rule.query, series=_SERIES, resource_label=_NAME, names=[_NAME], metric_selector=_EVERYTHING
        )
        return sorted(result_labels(parse(query)).names - {_NAME})
    except (PromqlError, QueryError):
        return []


def _plain(series: str) -> str:
    """A name of series as it stands in a query; another one for those that need quotes, which make no metrics."""
    return series if _PLAIN_NAME.fullmatch(series) else _SERIES


def _overridden(rule: Rule) -> Iterator[str]:
    return (label for label, _ in rule.resources.overrides)


def _is_namespace(word: str) -> bool:
    return word in _NAMESPACE_WORDS


def _no_object_label(place: str, tree: Expr, label: str) -> Finding:
    message = f"{_lacks(tree, result_labels(tree))} `{label}`, so it is never the value of an object"
    return _error("no-object-label", place, f"{message}; aggregate with by (<<.GroupBy>>)")


def _lacks(tree: Expr, labels: Labels) -> str:
    if is_scalar(tree):
        return "the result is a number without labels, and not a vector with"
    if labels == Labels():
        return "the result is aggregated without any label, and not by"
    return "the result never has the label"


def _not_promql(place: str, error: PromqlError) -> Finding:
    message = f"this is no PromQL, unless the server has a language of its own, such as MetricsQL: {error}"
    return _warning("not-promql", place, on_one_line(message))


def _error(code: str, where: str, message: str) -> Finding:
    return Finding(severity=Severity.ERROR, code=code, where=where, message=message)


def _warning(code: str, where: str, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, code=code, where=where, message=message)
