"""Which labels the result of a query can have, and whether its values can be NaN."""

from __future__ import annotations

from dataclasses import dataclass

from promql_parser import (
    AggModifierType,
    AggregateExpr,
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

from adapter.promql.tree import bare, children, is_scalar, operator

_SET_OPERATORS = frozenset({"and", "unless"})
_BUCKETS = "le"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that the series of a result can have.

    Attributes:
        names: the possible labels; with `others`, the impossible ones.
        others: all labels except `names` are possible.
    """

    names: frozenset[str] = frozenset()
    others: bool = False

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
    modifier = expr.modifier
    if modifier is None:
        labels = _NONE
    elif modifier.type == AggModifierType.By:
        labels = inner.only(frozenset(modifier.labels))
    else:
        labels = inner.without(frozenset(modifier.labels))
    if kind == "count_values" and isinstance(expr.param, StringLiteral):
        labels = labels.union(Labels(frozenset({expr.param.val})))
    return labels


def _of_operator(expr: BinaryExpr) -> Labels:
    left, right = result_labels(expr.lhs), result_labels(expr.rhs)
    kind = operator(expr)
    if is_scalar(expr.lhs):
        return right
    if is_scalar(expr.rhs) or kind in _SET_OPERATORS:
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
    name = expr.func.name
    vectors = [one for one in expr.args if isinstance(one, Expr) and not is_scalar(one)]
    if is_scalar(expr) or name == "vector" or not vectors:
        return _NONE
    labels = result_labels(vectors[0])
    texts = [one.val for one in expr.args if isinstance(one, StringLiteral)]
    match name:
        case "label_replace" | "label_join":
            return labels.union(Labels(frozenset(texts[:1])))
        case "histogram_quantile" | "histogram_fraction":
            return labels.without(frozenset({_BUCKETS}))
        case "absent" | "absent_over_time" | "info":
            return _ANY
    return labels


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
            least = bare(expr.args[1]) if expr.func.name in ("clamp_min", "clamp") and len(expr.args) > 1 else None
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
