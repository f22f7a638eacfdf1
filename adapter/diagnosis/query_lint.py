"""Findings about the queries of rules: each is rendered for an object called x, and parsed as PromQL.

A query that cannot be parsed is a warning and has no other findings, because servers other than Prometheus have their
own languages, such as MetricsQL.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from promql_parser import AggregateExpr, Expr, MatchOp, ParenExpr, VectorSelector

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource
from adapter.diagnosis.report import Finding, error, warning
from adapter.gotemplate import Template
from adapter.metrics.resource_metrics import resource_sources
from adapter.planning.metric_queries import QueryError, custom_query, external_query
from adapter.promql import Labels, PromqlError, can_be_nan, is_plain_name, is_scalar, parse, result_labels, selectors
from adapter.rules import AnyRule, QueryRule, ResourceRules, Rule
from adapter.rules.field_types import QUERY_FIELDS
from kube.api.mapping import GroupResource
from kube.values.printable import on_one_line

_NAME = "x"
_SERIES = "series"
_MAX_LABELS = 4
_SAME_KIND = frozenset({"sum", "avg", "min", "max", "topk", "bottomk", "quantile"})
_NAMESPACE_WORDS = frozenset({"namespace", "namespaces"})
# Errors of PromQL's parser about an open or a superfluous parenthesis, brace or quote, which no other language allows.
_UNBALANCED = re.compile(
    r"^unclosed|^unexpected right|does not end|inside (braces|brackets): '\)'|^unexpected end of input inside"
)
_NO_RANGE = re.compile(r"^expected type matrix in call to function '(\w+)'")
# The delimiters of Helm and most other templates.
_OTHER_DELIMITERS = re.compile(rf"\{{\{{-?\s*\.(?:{'|'.join(QUERY_FIELDS)})\b[^}}]*\}}\}}")


def lint_selector(rule: Rule) -> Iterator[Finding]:
    """Yield the findings about a rule's seriesQuery."""
    path = f"{rule.key}.seriesQuery"
    tree = yield from _parse(path, lambda: rule.series_query)
    if tree is not None and not isinstance(tree, VectorSelector):
        yield error("bad-query", path, 'it is no selector: write it as name{label="value"}')


def lint_custom_query(rule: Rule, *, series: str = "") -> Iterator[Finding]:
    """Yield the findings about the metricsQuery of a rule of custom metrics; `series` is a name that it may find."""
    path = f"{rule.key}.metricsQuery"
    namespace_label, *others = _labels(rule)
    yield from _lint_matchers(path, rule.query, "{<<.LabelMatchers>>}", "namespaces and objects")
    trees: dict[str, Expr] = {}
    for label in filter(None, (*others, namespace_label)):
        namespaced = bool(namespace_label) and label != namespace_label
        source = _source(rule, series, label, namespace_label if namespaced else "")
        namespace = _NAME if namespaced else ""
        render = functools.partial(custom_query, rule.query, source, names=[_NAME], namespace=namespace)
        tree = yield from _parse(path, render, rule.query)
        if tree is None:
            return
        trees[label] = tree
    yield from _lint_results(path, rule, namespace_label, trees)
    yield from _lint_nan(path, rule, trees.values())
    yield from _lint_counter(path, list(trees.values())[:1])


def lint_external_query(rule: Rule, *, series: str = "") -> Iterator[Finding]:
    """Yield the findings about the metricsQuery of a rule of external metrics; `series` is a name that it may find."""
    path = f"{rule.key}.metricsQuery"
    yield from _lint_matchers(path, rule.query, "{<<.LabelMatchers>>}", "namespaces")
    namespace_label = _labels(rule)[0] if rule.resources.namespaced else ""
    source = ExternalSource("", rule, _unquoted(series), namespace_label)
    render = functools.partial(external_query, rule.query, source, namespace=_NAME if namespace_label else "")
    tree = yield from _parse(path, render, rule.query)
    if tree is not None:
        yield from _lint_nan(path, rule, [tree])
        yield from _lint_counter(path, [tree])


def lint_short_query(rule: QueryRule) -> Iterator[Finding]:
    """Yield the findings about the query of a short rule."""
    path = f"{rule.key}.query"
    tree = yield from _parse(path, lambda: rule.query)
    if tree is None:
        return
    labels = result_labels(tree)
    for label, what in ((rule.resource_label, "objects' names"), (rule.namespace_label, "objects' namespace")):
        if label and not labels.can_have(label):
            wanted = ", ".join(filter(None, (rule.namespace_label, rule.resource_label)))
            lacks = f"{_lacks(tree, labels)} `{label}`, the label with the {what}"
            yield error("no-object-label", path, f"{lacks}; aggregate with by ({wanted})")
            break
    yield from _lint_nan(path, rule, [tree])
    yield from _lint_counter(path, [tree])


def lint_resource_queries(rules: ResourceRules) -> Iterator[Finding]:
    """Yield the findings about the queries of resourceRules."""
    for source in resource_sources(rules):
        rule = source.rule
        assert isinstance(rule, Rule), "resourceRules have no short form"
        if not source.resource_label:
            continue  # adapter.diagnosis.lint reports it
        yield from _lint_matchers(rule.key, rule.query, "<<.LabelMatchers>>", "namespaces and objects")
        namespace = _NAME if source.namespace_label else ""
        render = functools.partial(custom_query, rule.query, source, names=[_NAME], namespace=namespace)
        tree = yield from _parse(rule.key, render, rule.query)
        if tree is not None and not result_labels(tree).can_have(source.resource_label):
            yield _no_object_label(rule.key, tree, source.resource_label)


def _parse(
    path: str, render: Callable[[], str], template: Template | None = None
) -> Generator[Finding, None, Expr | None]:
    """Yield the findings about a query's syntax, and return its syntax tree; None if it cannot be parsed."""
    other = _OTHER_DELIMITERS.search(template.source) if template is not None else None
    if other is not None:
        message = f"{other[0]} is sent to Prometheus as it stands: the template's delimiters are << and >>"
        yield error("wrong-delimiters", path, message)
        return None
    try:
        return parse(render())
    except PromqlError as failure:
        if _UNBALANCED.search(str(failure)):
            yield error("unbalanced", path, on_one_line(f"this is no query: {failure}"))
            return None
        if no_range := _NO_RANGE.match(str(failure)):
            # MetricsQL chooses a range itself.
            failure = PromqlError(f"{failure}; write a range, such as {no_range[1]}(...[2m])")
        message = f"this is no PromQL, unless the server has a language of its own, such as MetricsQL: {failure}"
        yield warning("not-promql", path, on_one_line(message))
        return None
    except QueryError:
        return None  # it may render for other objects


def _lint_matchers(path: str, query: Template, matchers: str, found: str) -> Iterator[Finding]:
    if "LabelMatchers" not in query.source and "LabelValuesByName" not in query.source:
        message = f"without <<.LabelMatchers>> it finds the series of all {found}; write {matchers} after its series"
        yield warning("no-label-matchers", path, message)


def _lint_results(path: str, rule: Rule, namespace_label: str, trees: dict[str, Expr]) -> Iterator[Finding]:
    """Yield findings if the result lacks the label with the object's name, or has further labels."""
    if not trees:
        return
    first = next(iter(trees))
    having = [label for label, tree in trees.items() if result_labels(tree).can_have(label)]
    if not having:
        yield _no_object_label(path, trees[first], first)
    elif having == [namespace_label] and len(trees) > 1:
        message = f"the result never has the label `{first}`, so only metrics of namespaces have values"
        yield warning("only-namespaces", path, f"{message}; aggregate with by (<<.GroupBy>>)")
    elif extra := _extra_labels(rule, trees[having[0]], {having[0], namespace_label}):
        shown = ", ".join(f"`{one}`" for one in sorted(extra))
        message = f"the result is also by {shown}, so an object may have several values: the first is taken"
        yield warning("several-values", path, message)


def _extra_labels(rule: Rule, tree: Expr, known: set[str]) -> set[str]:
    """Return the labels of a result that map to no resource, if an aggregation leaves only some labels."""
    labels = result_labels(tree)
    if labels.others:
        return set()
    template = rule.resources.template
    extra = set(labels.names) - known - {label for label, _ in rule.resources.overrides}
    # A label that every selector compares with `=` has one value only.
    fixed = [
        {one.name for one in selector.matchers.matchers if one.op == MatchOp.Equal} for selector in selectors(tree)
    ]
    extra -= fixed[0].intersection(*fixed) if fixed else set()
    return {label for label in extra if template is None or template.resource_in(label) is None}


def _lint_nan(path: str, rule: AnyRule, trees: Iterable[Expr]) -> Iterator[Finding]:
    if rule.nan is None and any(map(can_be_nan, trees)):
        yield warning(
            "may-be-nan",
            path,
            "a division by zero or a quantile of nothing is NaN, which counts as zero, and so scales down to the"
            " minimum; set `nan: missing`, `nan: error` or `nan: zero`",
        )


def _lint_counter(path: str, trees: Iterable[Expr]) -> Iterator[Finding]:
    """Yield a finding if a result is a counter: on a value that only grows, an HPA scales up to the maximum."""
    for tree in trees:
        while isinstance(tree, ParenExpr) or (isinstance(tree, AggregateExpr) and str(tree.op) in _SAME_KIND):
            tree = tree.expr
        name = _name_of(tree) if isinstance(tree, VectorSelector) else ""
        if name.endswith("_total"):
            message = f"{name} is a counter, which only grows, and so do the replicas: take its rate"
            yield warning("counter", path, f"{message}, such as rate({name}[2m])")


def _name_of(selector: VectorSelector) -> str:
    named = [one.value for one in selector.matchers.matchers if one.name == "__name__" and one.op == MatchOp.Equal]
    return selector.name or next(iter(named), "")


def _labels(rule: Rule) -> Sequence[str]:
    """Return the label of namespaces, "" if there is none, and some of other resources, by the rule's text.

    Those that the query groups by come first. A query is parsed for each.
    """
    template = rule.resources.template
    namespace = next((label for label, named in rule.resources.overrides if named.resource in _NAMESPACE_WORDS), "")
    others = [label for label, named in rule.resources.overrides if named.resource not in _NAMESPACE_WORDS]
    grouped = _grouped_by(rule)
    if template is not None:
        namespace = namespace or template.label_for(group="", singular="namespace")
        others += [label for label in grouped if template.resource_in(label) and label != namespace]
        others.append(template.label_for(group="", singular="pod"))
    others.sort(key=lambda label: label not in grouped)
    return (namespace, *list(dict.fromkeys(others))[:_MAX_LABELS])


def _grouped_by(rule: Rule) -> list[str]:
    """Return the labels that a query's text groups by, in addition to <<.GroupBy>>."""
    try:
        query = custom_query(rule.query, _source(rule, _SERIES, _NAME), names=[_NAME], namespace="")
        return sorted(result_labels(parse(query)).names - {_NAME})
    except (PromqlError, QueryError):
        return []


def _source(rule: Rule, series: str, label: str, namespace_label: str = "") -> CustomSource:
    info = CustomMetricInfo(GroupResource("", _NAME), _NAME, bool(namespace_label))
    return CustomSource(info, rule, _unquoted(series), label, namespace_label)


def _unquoted(series: str) -> str:
    """Return a series' name, or a placeholder if it needs quotes in PromQL; such series make no metrics."""
    return series if is_plain_name(series) else _SERIES


def _no_object_label(path: str, tree: Expr, label: str) -> Finding:
    message = f"{_lacks(tree, result_labels(tree))} `{label}`, so it is never the value of an object"
    return error("no-object-label", path, f"{message}; aggregate with by (<<.GroupBy>>)")


def _lacks(tree: Expr, labels: Labels) -> str:
    if is_scalar(tree):
        return "the result is a number without labels, and not a vector with"
    if labels == Labels():
        return "the result is aggregated without any label, and not by"
    return "the result never has the label"
