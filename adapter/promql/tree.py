"""The syntax tree of a query.

The parser is the library promql-parser, with Prometheus' grammar. A text that it cannot parse may be MetricsQL for
another server: callers report that and check nothing else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    Matcher,
    Matchers,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

from adapter.promql.literals import PromqlError, quote, tokenized, unquote

# The parser takes quadratic time over nested expressions, and overflows the stack at some ten thousand levels.
_MAX_SYNTAX = 4_000  # characters without the content of strings and comments
_MAX_OPERATORS = 400  # and opening parentheses; several thousand signs in a row take a second
# Functions that read a tree are recursive.
_MAX_DEPTH = 200
_SIGNS = ((MatchOp.Equal, "="), (MatchOp.NotEqual, "!="), (MatchOp.Re, "=~"), (MatchOp.NotRe, "!~"))
# The parser compiles regular expressions: `\w{100}` takes 20 ms, and a hundred `(\w{9}){9}` take two seconds.
_MAX_REGEX = 4_000  # characters of the expressions that it gets
_MAX_CLASSES = 30  # character classes, dots and escapes
_NAME = "__name__"
# The parser copies strings at each level, so it gets a mark and a number instead of those of matchers that are longer.
_LONG = 32
_MARK = "\x7f"
SHIFT_SECONDS = 2 * 10**11
"""Times before 1970 are later by this in the tree: reading an earlier one from it is a panic of the parser."""

_FURTHEST_SECONDS = 10**11
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
# In a text whose strings `quote` has written.
_TIMES = re.compile(
    rf""""(?:[^"\\]|\\.)*+"|@\s*+(?P<sign>-?)\s*+(?P<time>{_NUMBER})"""
    rf"|\boffset\b\s*+[-+]?\s*+(?P<offset>{_NUMBER}|inf|nan)|\[(?P<range>[^]]*+)",
    re.IGNORECASE,
)
# Durations without a unit are panics of the parser if they are too long.
_LENGTHS = re.compile(rf"(?<![.\w])(?:{_NUMBER}|inf|nan)(?![.\w])", re.IGNORECASE)


def parse(query: str) -> Expr:
    """Parse PromQL. Regular expressions that take long to compile are not checked. See SHIFT_SECONDS.

    Raises:
        PromqlError: it is invalid, or too long or too deeply nested.
    """
    text, values = _prepared(query)
    with parser_errors():
        tree = promql_parser.parse(text)
    if _is_deep(tree):
        raise PromqlError(f"it is nested more than {_MAX_DEPTH} deep")
    found = selectors(tree)
    if any(one.matchers.or_matchers for one in found):
        raise PromqlError("a selector has `or`, which only MetricsQL has")
    if values:
        for one in found:
            one.matchers = Matchers([_with_value(matcher, values) for matcher in one.matchers.matchers])
    return tree


@contextlib.contextmanager
def parser_errors() -> Iterator[None]:
    """Raise a PromqlError for errors of the parser; reading an attribute of its tree can raise them, too."""
    try:
        yield
    except PromqlError:
        raise
    except (ValueError, OverflowError) as error:
        raise PromqlError(" ".join(str(error).split())) from error
    except BaseException as error:
        # A panic of the parser, for a value that is not known to cause one; the exception's class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise PromqlError(f"a number cannot be used: {error}") from error


def _prepared(query: str) -> tuple[str, list[str]]:
    """Return a query for the parser, and the values of matchers that numbers replace there, for `_with_value`.

    The parser gets, and so checks, regular expressions that take little time to compile. It does not read all strings
    as Prometheus does, so all are written anew.
    """
    parts: list[str] = []
    values: list[str] = []
    syntax = operators = characters = classes = 0
    sign = ""  # of the matcher, before its value
    for kind, text in tokenized(query):
        match kind:
            case "string":
                value = unquote(text)
                if sign:
                    long = len(value) > _LONG
                    if sign != "=":
                        characters += len(value)
                        classes += sum(map(value.count, "\\[."))
                        long = characters > _MAX_REGEX or classes > _MAX_CLASSES or "{" in value
                    if long or value.startswith(_MARK):
                        values.append(value)
                        value = f"{_MARK}{len(values) - 1}"
                    syntax += 2 - len(quote(value))  # its quotes
                elif value.startswith(_MARK):  # a name
                    raise PromqlError("a string begins with a control character")
                text = quote(value)
                sign = ""
            case "operator":
                operators += 1
                sign = "=" if text == "=" else ""
            case "regex":
                operators += 4  # the parser copies compiled expressions at each level, which takes most of its time
                sign = text
            case _ if not text.isspace():
                sign = ""
        parts.append(text)
        syntax += len(text)
        if syntax > _MAX_SYNTAX:
            raise PromqlError(f"it is longer than {_MAX_SYNTAX} characters, without the values of its matchers")
        if operators > _MAX_OPERATORS:
            raise PromqlError(f"it has more than {_MAX_OPERATORS} operators and parentheses")
    return _TIMES.sub(_usable_time, "".join(parts)), values


def _usable_time(found: re.Match[str]) -> str:
    """Return a time or a duration as the parser can read it. Raises PromqlError."""
    for number in filter(None, (found["time"], found["offset"], *_LENGTHS.findall(found["range"] or ""))):
        if not float(number) < _FURTHEST_SECONDS:
            raise PromqlError(f"a number cannot be used: {number[:40]}")
    return f"@ {SHIFT_SECONDS - float(found['time']):.3f}" if found["sign"] else found[0]


def _with_value(matcher: Matcher, values: list[str]) -> Matcher:
    if matcher.value.startswith(_MARK):
        return Matcher(matcher.op, matcher.name, values[int(matcher.value.removeprefix(_MARK))])
    return matcher


def _is_deep(tree: Expr) -> bool:
    level = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for expr in level for child in children(expr)]
    return bool(level)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression."""
    match expr:
        case AggregateExpr():
            return (expr.param, expr.expr) if expr.param is not None else (expr.expr,)
        case BinaryExpr():
            return (expr.lhs, expr.rhs)
        case Call():
            return tuple(expr.args)
        case MatrixSelector():
            return (expr.vector_selector,)
        case ParenExpr() | UnaryExpr() | SubqueryExpr():
            return (expr.expr,)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all expressions in it."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def selectors(expr: Expr) -> list[VectorSelector]:
    """Return the selectors in an expression."""
    return [one for one in walk(expr) if isinstance(one, VectorSelector)]


def matchers(selector: VectorSelector) -> list[Matcher]:
    """Return a selector's label matchers, with that of the metric's name."""
    named = [Matcher(MatchOp.Equal, _NAME, selector.name)] if selector.name else []
    return [*named, *selector.matchers.matchers]


def matcher_sign(matcher: Matcher) -> str:
    """Return the sign of a label matcher, such as `=~`."""
    return next(sign for one, sign in _SIGNS if one == matcher.op)


def operator(expr: AggregateExpr | BinaryExpr) -> str:
    """Return the name of an aggregation, or the sign of a binary operator, in lower case."""
    return str(expr.op).lower()


def bare(expr: Expr) -> Expr:
    """Return an expression without the parentheses around it."""
    while isinstance(expr, ParenExpr):
        expr = expr.expr
    return expr


def as_vector(query: str) -> str:
    """Return a query whose result is a vector: a scalar as a sample without labels, any other query unchanged."""
    try:
        return f"vector({query}\n)" if is_scalar(parse(query)) else query  # the line break ends a comment
    except PromqlError:  # MetricsQL
        return query


def is_scalar(expr: Expr) -> bool:
    """Return whether the result is a scalar or a string."""
    match expr:
        case NumberLiteral() | StringLiteral():
            return True
        case ParenExpr() | UnaryExpr():
            return is_scalar(expr.expr)
        case BinaryExpr():
            return is_scalar(expr.lhs) and is_scalar(expr.rhs)
        case Call():
            return bool(expr.func.return_type == promql_parser.ValueType.Scalar)
        case _:
            return False
