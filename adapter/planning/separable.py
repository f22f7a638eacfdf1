"""Check whether one query can return the values of all objects or namespaces of a metric.

`sum(rate(x{pod=~"a|b"}[1m])) by (pod)` has the same value for pod a whether or not b is selected; a quotient with
`scalar(sum(x))` does not. A query is separable if every selector has the object's matcher, every aggregation keeps the
object's label, and no operator or function combines series of different objects. Anything else counts as not separable.
"""

from __future__ import annotations

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

from adapter.promql import PromqlError, children, operator, parse, selectors, walk

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

    The query is for one object, so its selectors have `label="name"`, where `name` is of letters.
    """
    try:
        tree = parse(query)
    except PromqlError:
        return False
    return bool(selectors(tree)) and all(_keeps_apart(expr, label, name) for expr in walk(tree))


def _keeps_apart(expr: Expr, label: str, name: str) -> bool:
    """Return whether an expression is separable if its operands are."""
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
    """Return whether there is no `@ start()` or `@ end()`, which instant queries do not have."""
    return expr.at is None or expr.at.type == AtModifierType.At


def groups_alike(query: str, *, label: str) -> bool:
    """Return whether a query's values stay the same if all aggregations also group by another label of the matchers.

    Operators match series on all labels, so either both sides gain the label or both have it already: no selector is
    aggregated, or each one is aggregated separately, and none by that label.
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
    """Yield an expression's outermost aggregations, and the selectors outside of aggregations."""
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
