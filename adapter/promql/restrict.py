"""Restrict a query to the series with one label value, such as those of one namespace.

A matcher is added to every selector of the syntax tree, and the query is written anew from the tree. So the result has
no text of the original: strings are quoted anew, numbers and durations are formatted anew, names are checked, comments
are gone. Whatever this module does not know how to write is refused. At last the result is parsed again, and the
matchers of its selectors are checked.

Only a selector reads series, and a selector is written in one way: `name{matchers}`, with the added matcher as the
first. So a server that reads the text otherwise than Prometheus (another version, or MetricsQL) may refuse it, but
finds no selector without the matcher.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    AtModifier,
    AtModifierType,
    BinaryExpr,
    BinModifier,
    Call,
    Expr,
    LabelModifierType,
    Matcher,
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

from adapter.promql.literals import PromqlError, is_plain_name, label_text, quote
from adapter.promql.tree import SHIFT_SECONDS, matcher_sign, matchers, operator, parse, parser_errors, selectors

_NAME = "__name__"
_RESERVED = "__"
# Labels that series can have. Other names with two underscores are instructions: Mimir and Cortex execute the query
# that is the value of `__queries__`, whatever the other matchers are, and VictoriaMetrics has `__graphite__`.
_SERIES_LABELS = frozenset({_NAME, "__type__", "__unit__"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AGGREGATIONS = _words(
    "avg bottomk count count_values group limit_ratio limitk max min quantile stddev stdvar sum topk"
)
_OPERATORS = _words("+ - * / % ^ == != > < >= <= and or unless atan2")
# Not `info`, which reads series that no selector of the query selects.
_FUNCTIONS = _words(
    """
    abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max clamp_min
    cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv
    double_exponential_smoothing exp first_over_time floor histogram_avg histogram_count histogram_fraction
    histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar histogram_sum hour idelta increase irate
    label_join label_replace last_over_time ln log10 log2 mad_over_time max_over_time min_over_time minute month pi
    predict_linear present_over_time quantile_over_time rad rate resets round scalar sgn sin sinh sort sort_by_label
    sort_by_label_desc sort_desc sqrt stddev_over_time stdvar_over_time sum_over_time tan tanh time timestamp
    ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time vector year
    """
)
# A metric with such a name is written as {__name__="sum"}, since some version reads the word otherwise.
_KEYWORDS = _words(
    """
    anchored bool by default end fill fill_left fill_right group_left group_right if ifnot ignoring inf
    keep_metric_names limit max_of min_of nan offset on range smoothed start step with without
    """
)
_NO_NAMES = _KEYWORDS | _AGGREGATIONS | _OPERATORS
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def restrict_query(query: str, *, label: str, value: str) -> str:
    """Return a query that reads the same series, if they have the label value, and no others.

    `absent(x)` is the only function whose result has the label in addition.

    Raises:
        PromqlError: the query is no PromQL, or uses something that cannot be restricted.
    """
    return _restricted(parse(query), Matcher(MatchOp.Equal, label, value))


def restrict_selector(selector: str, *, label: str, value: str) -> str:
    """Return a selector, as in `match[]`, that finds the same series if they have the label value, and no others.

    Raises:
        PromqlError: it is no selector, or uses something that cannot be restricted.
    """
    tree = parse(selector)
    if not isinstance(tree, VectorSelector) or tree.offset is not None or tree.at is not None:
        raise PromqlError("it is not a selector of series")
    return _restricted(tree, Matcher(MatchOp.Equal, label, value))


def _restricted(tree: Expr, matcher: Matcher) -> str:
    if not matcher.value:
        raise PromqlError("there is no label value to select by")
    with parser_errors():
        text = _Writer(matcher).write(tree)
        written = parse(text)
        if not all(any(_same(one, matcher) for one in each.matchers.matchers) for each in selectors(written)):
            raise PromqlError("a selector could not be restricted")
        if _Writer(matcher).write(written) != text:
            raise PromqlError("it could not be written so that it has the same meaning")
    return text


def _same(one: Matcher, other: Matcher) -> bool:
    return (one.op, one.name, one.value) == (other.op, other.name, other.value)


class _Writer:
    """Writes expressions, with a matcher in each selector. Raises PromqlError for what it does not know."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def write(self, expr: object) -> str:
        """Return an expression as text. The tree comes from a text, so it has the parentheses that it needs."""
        match expr:
            case NumberLiteral():
                return _number(expr.val)
            case StringLiteral():
                return quote(expr.val)
            case ParenExpr():
                return f"({self.write(expr.expr)})"
            case UnaryExpr():
                return f"-{self.write(expr.expr)}"
            case BinaryExpr():
                sign = _known(operator(expr), _OPERATORS)
                return f"{self.write(expr.lhs)} {sign}{_matching(expr.modifier)} {self.write(expr.rhs)}"
            case Call():
                return f"{_known(expr.func.name, _FUNCTIONS)}({', '.join(map(self.write, expr.args))})"
            case AggregateExpr():
                return self._aggregation(expr)
            case VectorSelector():
                return self._selector(expr) + _time(expr)
            case MatrixSelector():
                selector = expr.vector_selector
                return f"{self._selector(selector)}[{duration_text(expr.range)}]{_time(selector)}"
            case SubqueryExpr():
                step = duration_text(expr.step) if expr.step is not None else ""
                return f"{self.write(expr.expr)}[{duration_text(expr.range)}:{step}]{_time(expr)}"
        raise PromqlError(f"{type(expr).__name__} is not supported")

    def _aggregation(self, expr: AggregateExpr) -> str:
        grouping = ""
        if expr.modifier is not None:
            word = "by" if expr.modifier.type == AggModifierType.By else "without"
            grouping = f" {word} {_labels(expr.modifier.labels)} "
        operands = [expr.expr] if expr.param is None else [expr.param, expr.expr]
        return f"{_known(operator(expr), _AGGREGATIONS)}{grouping}({', '.join(map(self.write, operands))})"

    def _selector(self, selector: VectorSelector) -> str:
        name = selector.name or ""
        named = is_plain_name(name) and name.lower() not in _NO_NAMES
        rest = selector.matchers.matchers if named else matchers(selector)
        written = [_matcher(self._matcher), *(_matcher(one) for one in rest if not _same(one, self._matcher))]
        if name.startswith(_RESERVED):
            raise PromqlError(f"metric names that begin with {_RESERVED} are reserved")
        return f"{name if named else ''}{{{','.join(written)}}}"


def _matcher(matcher: Matcher) -> str:
    name, value = matcher.name, matcher.value
    if name.startswith(_RESERVED) and name not in _SERIES_LABELS:
        raise PromqlError(f"labels that begin with {_RESERVED} are reserved")
    if name == _NAME and value.startswith(_RESERVED):
        raise PromqlError(f"metric names that begin with {_RESERVED} are reserved")
    if not name or name.lower() == "or":
        raise PromqlError(f"a label cannot have the name {name!r}")  # MetricsQL has `or` in selectors
    return f"{label_text(name)}{matcher_sign(matcher)}{quote(value)}"


def _labels(names: Iterable[str]) -> str:
    return f"({', '.join(map(label_text, names))})"


def _matching(modifier: BinModifier | None) -> str:
    """Return the modifiers of a binary operator."""
    return "".join(f" {part}" for part in _modifiers(modifier)) if modifier is not None else ""


def _modifiers(modifier: BinModifier) -> Iterator[str]:
    if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
        raise PromqlError("fill is not supported")
    if modifier.return_bool:
        yield "bool"
    if modifier.matching is not None:
        word = "on" if modifier.matching.type == LabelModifierType.Include else "ignoring"
        yield f"{word} {_labels(modifier.matching.labels)}"
    if modifier.card in (VectorMatchCardinality.ManyToOne, VectorMatchCardinality.OneToMany):
        word = "group_left" if modifier.card == VectorMatchCardinality.ManyToOne else "group_right"
        yield f"{word} {_labels(modifier.group_labels or ())}"


def _time(expr: VectorSelector | SubqueryExpr) -> str:
    """Return the modifiers `@` and `offset`."""
    at = f" @ {_at(expr.at)}" if expr.at is not None else ""
    if expr.offset is None:
        return at
    sign = "-" if expr.offset < timedelta(0) else ""
    return f"{at} offset {sign}{duration_text(abs(expr.offset))}"


def _at(modifier: AtModifier) -> str:
    if modifier.type != AtModifierType.At:
        return "start()" if modifier.type == AtModifierType.Start else "end()"
    if modifier.at is None:
        raise PromqlError("@ has no time")
    milliseconds = round((modifier.at - _EPOCH) / timedelta(milliseconds=1))
    sign = ""
    if milliseconds > SHIFT_SECONDS * 500:
        sign, milliseconds = "-", SHIFT_SECONDS * 1000 - milliseconds
    return f"{sign}{milliseconds // 1000}.{milliseconds % 1000:03}"


def duration_text(duration: timedelta | None) -> str:
    """Return a duration as PromQL has it in a range. Raises PromqlError if that is no number of milliseconds."""
    milliseconds, rest = divmod(duration or timedelta(0), timedelta(milliseconds=1))
    if milliseconds <= 0 or rest:
        raise PromqlError("a duration is not a number of milliseconds")
    return next(f"{milliseconds // size}{unit}" for unit, size in _UNITS if milliseconds % size == 0)


def _number(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Inf" if number > 0 else "-Inf"
    return repr(number).removesuffix(".0")


def _known(word: str, words: frozenset[str]) -> str:
    if word not in words:
        raise PromqlError(f"{word} is not allowed, since it may read other series")
    return word
