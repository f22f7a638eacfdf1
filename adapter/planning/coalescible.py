"""Find the one query that returns the values for all objects or namespaces of a metric, if there is one.

`sum(rate(x{pod=~"a|b"}[1m])) by (pod)` has the same value for pod a whether or not b is selected; a quotient with
`scalar(sum(x))` does not. A query is separable if every selector has the object's matcher, every aggregation keeps the
object's label, and no operator or function looks across labels. What is not known to be separable is not.

The rule's template is examined with the matchers of one object. The query that is sent is the one that was examined: a
template may only write the matchers, so the text for all objects differs from it in the matchers alone. `merge: always`
takes the user's word for both.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    AtModifierType,
    BinaryExpr,
    Call,
    Expr,
    MatchOp,
    SubqueryExpr,
    VectorSelector,
)

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.promql import PromqlError, children, operator, parse, selectors, walk
from adapter.rules import Merge, Rule
from adapter.rules.query import QueryError, SelectorNotSupported, custom_query, external_query
from kube.selectors import LabelSelector, Operator, Requirement

_NAME = "x"
_ANY = ".+"
_NOT_LOCAL = (Operator.GREATER_THAN, Operator.LESS_THAN)
_LISTS = (Operator.IN, Operator.NOT_IN)
_AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "stddev", "stdvar", "group", "quantile"})
# The result of histogram_quantile does not have this label.
_BUCKETS = "le"
_FUNCTIONS = frozenset(
    {
        *("rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"),
        *("avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "quantile_over_time"),
        *("stddev_over_time", "stdvar_over_time", "last_over_time", "present_over_time"),
        *("abs", "ceil", "floor", "round", "clamp", "clamp_min", "clamp_max", "exp", "ln", "log2", "log10", "sqrt"),
        *("sgn", "histogram_quantile", "timestamp", "time"),
    }
)


def is_separable(query: str, *, label: str, name: str) -> bool:
    """Return whether a query's value for an object depends on that object's series alone; False for MetricsQL.

    Args:
        query: PromQL for one object, whose selectors have `label="name"`.
        label: the label with the objects' names.
        name: the object's name, of letters.
    """
    try:
        tree = parse(query)
    except PromqlError:
        return False
    return bool(selectors(tree)) and all(_keeps_apart(expr, label, name) for expr in walk(tree))


def _keeps_apart(expr: Expr, label: str, name: str) -> bool:
    """Return whether an expression keeps the objects apart if its operands do."""
    match expr:
        case VectorSelector():
            return _is_fixed(expr) and any(
                (one.name, one.op, one.value) == (label, MatchOp.Equal, name) for one in expr.matchers.matchers
            )
        case SubqueryExpr():
            return _is_fixed(expr)
        case AggregateExpr():
            by = expr.modifier is not None and expr.modifier.type == AggModifierType.By
            return operator(expr) in _AGGREGATIONS and by and label in _grouping(expr)
        case BinaryExpr():
            modifier = expr.modifier
            return modifier is None or (
                modifier.matching is None and modifier.fill_values.lhs is None and modifier.fill_values.rhs is None
            )
        case Call():
            function = expr.func.name
            return function in _FUNCTIONS and not (function == "histogram_quantile" and label == _BUCKETS)
        case _:
            return True


def _is_fixed(expr: VectorSelector | SubqueryExpr) -> bool:
    """Return whether its time is not the start() or end() of a range, which an instant query does not have."""
    return expr.at is None or expr.at.type == AtModifierType.At


def groups_alike(query: str, *, label: str) -> bool:
    """Return whether a query has the same values when each aggregation is also by another label of the matchers.

    Operators match series that have all labels in common, so both sides must gain the label, or both have had it:
    either no selector is aggregated, or each by itself, and none by that label already.

    Args:
        query: PromQL, without the label.
        label: the label.
    """
    try:
        tree = parse(query)
    except PromqlError:
        return False
    aggregations = [one for one in walk(tree) if isinstance(one, AggregateExpr)]
    if any(label in _grouping(one) for one in aggregations):
        return False
    total = len(selectors(tree))
    alone = sum(isinstance(one, VectorSelector) for one in _outermost(tree))
    by_itself = all(len(list(_outermost(one.expr))) <= 1 or not _selects(one.expr) for one in aggregations)
    return total <= 1 or alone == total or (alone == 0 and by_itself)


def _outermost(expr: Expr) -> Iterator[Expr]:
    """Yield the selectors and aggregations of an expression that are in no other aggregation of it."""
    if isinstance(expr, AggregateExpr | VectorSelector):
        yield expr
        return
    for child in children(expr):
        yield from _outermost(child)


def _selects(expr: Expr) -> bool:
    """Return whether an expression has a selector outside its aggregations."""
    return any(isinstance(one, VectorSelector) for one in _outermost(expr))


def _grouping(expr: AggregateExpr) -> list[str]:
    return expr.modifier.labels if expr.modifier is not None else []


def can_coalesce(source: CustomSource | ExternalSource) -> bool:
    """Return whether the requests for different objects of a metric can be coalesced."""
    if isinstance(source.rule, Rule) and source.rule.merge is Merge.NEVER:
        return False
    if isinstance(source, ExternalSource):
        return bool(coalesced_external_query(source, LabelSelector()))
    return bool(coalesced_custom_query(source, source.info.namespaced, LabelSelector()))


def coalesced_custom_query(source: CustomSource, namespaced: bool, metric_selector: LabelSelector) -> str:
    """Return the query for all objects; "" where there is none.

    Args:
        source: where the metric comes from.
        namespaced: for the objects of all namespaces; otherwise for cluster-scoped objects.
        metric_selector: selects the metric's series, in all requests that are coalesced.
    """
    rule = source.rule
    if not isinstance(rule, Rule) or "LabelValuesByName" in rule.query.source:
        return ""
    namespace_label = source.namespace_label if namespaced else ""
    if namespaced and (not namespace_label or namespace_label == source.resource_label):
        return ""
    more = (namespace_label,) if namespaced else ()
    query = functools.partial(
        custom_query,
        rule.query,
        series=source.series,
        resource_label=source.resource_label,
        namespace_label=namespace_label,
        metric_selector=metric_selector,
    )
    try:
        sample = query(names=[_NAME], namespace=_NAME if namespaced else "", group_by=(*source.group_by, *more))
        plain = query(names=[_NAME], namespace=_NAME if namespaced else "", group_by=source.group_by)
        labels = [source.resource_label, namespace_label] if namespaced else [source.resource_label]
        safe = rule.query.only_writes("LabelMatchers")
        safe = safe and all(is_separable(sample, label=label, name=_NAME) for label in labels)
        if namespaced and "GroupBy" in rule.query.source:
            safe = safe and rule.query.only_writes("GroupBy") and rule.query.only_writes("GroupBySlice")
            safe = safe and groups_alike(plain, label=namespace_label)
        if not safe and rule.merge is not Merge.ALWAYS:
            return ""
        return query(
            names=[],
            pattern=_ANY,
            namespace=_ANY if namespaced else "",
            namespace_pattern=namespaced,
            group_by=(*source.group_by, *more),
        )
    except (QueryError, SelectorNotSupported):
        return ""  # the request itself reports it


def coalesced_external_query(source: ExternalSource, metric_selector: LabelSelector) -> str:
    """Return the query for all namespaces and all values of the selector's labels; "" where there is none.

    It is the same query for every selector; the caller selects from its result.
    """
    rule = source.rule
    if not isinstance(rule, Rule) or "LabelValuesByName" in rule.query.source:
        return ""
    namespaced = rule.resources.namespaced
    if namespaced and not source.namespace_label:
        return ""
    label = source.namespace_label if namespaced else ""
    query = functools.partial(external_query, rule.query, series=source.series, namespace_label=label)
    one, every = (_NAME, _ANY) if namespaced else ("", "")
    try:
        if not all(map(_is_local, metric_selector.requirements)):
            return ""
        for key in {requirement.key for requirement in metric_selector.requirements}:
            only = LabelSelector((Requirement(key, Operator.EQUALS, (_NAME,)),))
            if not is_separable(query(namespace=one, metric_selector=only), label=key, name=_NAME):
                return ""
        safe = rule.query.only_writes("LabelMatchers")
        if namespaced:
            safe = safe and is_separable(query(namespace=one, metric_selector=LabelSelector()), label=label, name=_NAME)
        if not safe and rule.merge is not Merge.ALWAYS:
            return ""
        return query(namespace=every, metric_selector=LabelSelector(), namespace_pattern=bool(namespaced))
    except (QueryError, SelectorNotSupported):
        return ""


def _is_local(requirement: Requirement) -> bool:
    """Return whether Prometheus' matcher and Kubernetes' requirement match the same values."""
    if requirement.operator in _NOT_LOCAL or "" in requirement.values:
        return False
    # A list becomes a regular expression, where a dot matches any character.
    return requirement.operator not in _LISTS or not any("." in value for value in requirement.values)
