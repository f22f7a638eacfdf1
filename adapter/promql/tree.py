"""The syntax tree of a query.

The parser is the library promql-parser, with Prometheus' grammar. A text that it cannot parse may be MetricsQL for
another server: callers report that and check nothing else.
"""

from __future__ import annotations

import contextlib
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


def parse(query: str) -> Expr:
    """Parse PromQL. Regular expressions that take long to compile are not checked.

    Raises:
        PromqlError: it is invalid, or too long or too deeply nested.
    """
    text, regexes = _prepared(query)
    with parser_errors():
        tree = promql_parser.parse(text)
    if _is_deep(tree):
        raise PromqlError(f"it is nested more than {_MAX_DEPTH} deep")
    found = selectors(tree)
    if any(one.matchers.or_matchers for one in found):
        raise PromqlError("a selector has `or`, which only MetricsQL has")
    if regexes:
        for one in found:
            one.matchers = Matchers([_with_regex(matcher, regexes) for matcher in one.matchers.matchers])
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
        # The parser panics for values such as `offset Inf` and `@ -1`; the exception's class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise PromqlError(f"a number cannot be used: {error}") from error


def _prepared(query: str) -> tuple[str, list[str]]:
    """Return a query for the parser, and regular expressions that are replaced by their numbers, for `_with_regex`.

    The parser gets, and so checks, those that take little time to compile. It does not read all strings as Prometheus
    does, so all are written anew.
    """
    parts: list[str] = []
    regexes: list[str] = []
    syntax = operators = characters = classes = 0
    after_regex_sign = False
    for kind, text in tokenized(query):
        match kind:
            case "string":
                value = unquote(text)
                if after_regex_sign:
                    characters += len(value)
                    classes += sum(map(value.count, "\\[."))
                    cheap = characters <= _MAX_REGEX and classes <= _MAX_CLASSES and "{" not in value
                    if not cheap or _is_number(value):
                        regexes.append(value)
                        value = str(len(regexes) - 1)
                text = quote(value)
                syntax += 2 - len(text)  # its quotes
                after_regex_sign = False
            case "operator":
                operators += 1
            case "regex":
                operators += 4  # the parser copies compiled expressions at each level, which takes most of its time
                after_regex_sign = True
        parts.append(text)
        syntax += len(text)
        if syntax > _MAX_SYNTAX:
            raise PromqlError(f"it is longer than {_MAX_SYNTAX} characters, without its strings")
        if operators > _MAX_OPERATORS:
            raise PromqlError(f"it has more than {_MAX_OPERATORS} operators and parentheses")
    return "".join(parts), regexes


def _with_regex(matcher: Matcher, regexes: list[str]) -> Matcher:
    if matcher.op in (MatchOp.Re, MatchOp.NotRe) and _is_number(matcher.value):
        return Matcher(matcher.op, matcher.name, regexes[int(matcher.value)])
    return matcher


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_deep(tree: Expr) -> bool:
    level = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for expr in level for child in children(expr)]
    return bool(level)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression."""
    match expr:
        case AggregateExpr():
            return (expr.param, expr.expr) if isinstance(expr.param, Expr) else (expr.expr,)
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
