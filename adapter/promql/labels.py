"""What a query does with labels: which its result can have, and by which it can be coalesced; and if it can be NaN.

`sum(rate(x{pod=~"a|b"}[1m])) by (pod)` has the same value for pod a whether or not b is selected; a quotient with
`scalar(sum(x))` does not. A query is separable by a label if every selector has a matcher of it, every aggregation
keeps it, and no operator or function combines series that differ in it. Anything else counts as not separable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    AtModifierType,
    BinaryExpr,
    Call,
    Expr,
    LabelModifierType,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorMatchCardinality,
    VectorSelector,
)

from adapter.promql.literals import PromqlError
from adapter.promql.tree import bare, children, is_scalar, operator, parse, selectors, walk

_SET_OPERATORS = frozenset({"and", "unless"})
_BUCKETS = frozenset({"le"})  # the results of functions of histograms do not have it
_SEPARABLE_AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "stddev", "stdvar", "group", "quantile"})
_SEPARABLE_FUNCTIONS = frozenset(
    {
        *("rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"),
        *("avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "quantile_over_time"),
        *("stddev_over_time", "stdvar_over_time", "last_over_time", "present_over_time"),
        *("abs", "ceil", "floor", "round", "clamp", "clamp_min", "clamp_max", "exp", "ln", "log2", "log10", "sqrt"),
        *("sgn", "histogram_quantile", "timestamp", "time"),
    }
)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that the series of a result can have."""

    names: frozenset[str] = frozenset()
    """The possible labels; with `others`, the impossible ones."""
    others: bool = False
    """All labels except `names` are possible."""

    def can_have(self, label: str) -> bool:
        """Return True if a series can have this label."""
        return (label in self.names) != self.others

    def union(self, other: Labels) -> Labels:
        """Return the labels of either."""
        if self.others and other.others:
            return Labels(self.names & other.names, others=True)
        if self.others or other.others:
            every, some = (self, other) if self.others else (other, self)
            return Labels(every.names - some.names, others=True)
        return Labels(self.names | other.names)

    def only(self, names: frozenset[str]) -> Labels:
        """Return those of these labels that are in `names`."""
        return Labels(frozenset(filter(self.can_have, names)))

    def without(self, names: frozenset[str]) -> Labels:
        """Return those of these labels that are not in `names`."""
        return Labels(self.names | names, others=True) if self.others else Labels(self.names - names)


_NONE = Labels()
_ANY = Labels(others=True)


def result_labels(expr: Expr) -> Labels:
    """Return the labels that the series of the result can have; a scalar has none."""
    match expr:
        case VectorSelector():
            empty = {one.name for one in expr.matchers.matchers if one.op == MatchOp.Equal and not one.value}
            return Labels(frozenset(empty), others=True)
        case AggregateExpr():
            return _of_aggregation(expr)
        case BinaryExpr():
            return _of_operator(expr)
        case Call():
            return _of_function(expr)
        case MatrixSelector() | ParenExpr() | UnaryExpr() | SubqueryExpr():
            return result_labels(children(expr)[0])
        case _:
            return _NONE


def _of_aggregation(expr: AggregateExpr) -> Labels:
    inner = result_labels(expr.expr)
    kind = operator(expr)
    if kind in ("topk", "bottomk", "limitk", "limit_ratio"):
        return inner
    if expr.modifier is None:
        labels = _NONE
    elif _is_by(expr):
        labels = inner.only(_grouping(expr))
    else:
        labels = inner.without(_grouping(expr))
    if expr.param is not None and isinstance(label := bare(expr.param), StringLiteral):  # of count_values
        labels = labels.union(Labels(frozenset({label.val})))
    return labels


def _of_operator(expr: BinaryExpr) -> Labels:
    left, right = result_labels(expr.lhs), result_labels(expr.rhs)
    kind = operator(expr)
    if is_scalar(expr.lhs):
        return right
    if kind in _SET_OPERATORS:
        return left
    if kind == "or":
        return left.union(right)
    modifier = expr.modifier
    if modifier is None:
        return left
    more = Labels(frozenset(modifier.group_labels or ()))
    if modifier.card == VectorMatchCardinality.ManyToOne:
        return left.union(more)
    if modifier.card == VectorMatchCardinality.OneToMany:
        return right.union(more)
    if modifier.matching is None:
        return left
    names = frozenset(modifier.matching.labels)
    return left.only(names) if modifier.matching.type == LabelModifierType.Include else left.without(names)


def _of_function(expr: Call) -> Labels:
    vectors = [one for one in expr.args if not is_scalar(one)]
    if is_scalar(expr) or not vectors:
        return _NONE
    labels = result_labels(vectors[0])
    texts = [one.val for one in map(bare, expr.args) if isinstance(one, StringLiteral)]
    match expr.func.name:
        case "label_replace" | "label_join":
            return labels.union(Labels(frozenset(texts[:1])))
        case "histogram_quantile" | "histogram_fraction":
            return labels.without(_BUCKETS)
        case "absent" | "absent_over_time" | "info":
            return _ANY
    return labels


def separable_labels(query: str, *, label: str, value: str) -> Labels:
    """Return the labels of the matchers by which a query is separable: none for MetricsQL.

    The query is for one object or namespace: the matchers in its selectors include `label="value"`, where `value` is of
    letters. They stand in all selectors or are missing in all, so one of them is enough to see where.
    """
    try:
        tree = parse(query)
    except PromqlError:
        return _NONE
    labels = _ANY if selectors(tree) else _NONE
    for expr in walk(tree):
        match expr:
            case AggregateExpr() if operator(expr) in _SEPARABLE_AGGREGATIONS and _is_by(expr):
                labels = labels.only(_grouping(expr))
            case Call() if expr.func.name == "histogram_quantile":
                labels = labels.without(_BUCKETS)
            case _ if not _keeps_apart(expr, label, value):
                return _NONE
    return labels


def _keeps_apart(expr: Expr, label: str, value: str) -> bool:
    """Return whether an expression combines no series that differ in a label if its operands do not."""
    match expr:
        case VectorSelector():
            found = ((one.name, one.op, one.value) for one in expr.matchers.matchers)
            return _has_fixed_time(expr) and (label, MatchOp.Equal, value) in found
        case SubqueryExpr():
            return _has_fixed_time(expr)
        case AggregateExpr():
            return False
        case BinaryExpr():
            modifier = expr.modifier
            return modifier is None or (
                modifier.matching is None and modifier.fill_values.lhs is None and modifier.fill_values.rhs is None
            )
        case Call():
            return expr.func.name in _SEPARABLE_FUNCTIONS
        case _:
            return True


def _has_fixed_time(expr: VectorSelector | SubqueryExpr) -> bool:
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
    return alone == total or (alone == 0 and by_itself)


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


def _is_by(expr: AggregateExpr) -> bool:
    return expr.modifier is not None and expr.modifier.type == AggModifierType.By


def _grouping(expr: AggregateExpr) -> frozenset[str]:
    return frozenset(expr.modifier.labels if expr.modifier is not None else ())


def can_be_nan(expr: Expr) -> bool:
    """Return whether the result can be NaN without NaN samples: by a division by zero, or a quantile of no values."""
    match expr:
        case BinaryExpr() if operator(expr) in ("==", ">", "<", ">=", "<=") and not _returns_bool(expr):
            return False  # comparisons with NaN are false
        case BinaryExpr() if operator(expr) in ("/", "%") and not _is_never_zero(expr.rhs):
            return True
        case Call() if expr.func.name in ("histogram_quantile", "histogram_fraction", "histogram_avg"):
            return True
        case AggregateExpr() if operator(expr) == "quantile":
            return True
        case AggregateExpr() if operator(expr) in ("count", "group"):
            return False
        case Call() if expr.func.name in ("count_over_time", "present_over_time", "absent", "absent_over_time"):
            return False
    return any(map(can_be_nan, children(expr)))


def _returns_bool(expr: BinaryExpr) -> bool:
    return expr.modifier is not None and expr.modifier.return_bool


def _is_never_zero(expr: Expr) -> bool:
    """Return whether a divisor is known not to be zero."""
    expr = bare(expr)
    match expr:
        case NumberLiteral():
            return expr.val != 0
        case AggregateExpr():
            return operator(expr) in ("count", "group")
        case Call():
            least = bare(expr.args[1]) if expr.func.name in ("clamp_min", "clamp") else None
            positive = isinstance(least, NumberLiteral) and least.val > 0
            return positive or expr.func.name in ("count_over_time", "time")
        case BinaryExpr():
            limit = bare(expr.rhs)
            if not isinstance(limit, NumberLiteral):
                return False
            return not _returns_bool(expr) and (
                (operator(expr) in (">", "!=") and limit.val == 0) or (operator(expr) in (">", ">=") and limit.val > 0)
            )
    return False
