"""What a template does with its data, beside writing it."""

from __future__ import annotations

from collections.abc import Iterable

from adapter.gotemplate.nodes import Call, Dot, Expression, Field, If, Let, Node, Print, Range, Variable, With

_DATA = Variable("$")


def only_writes(nodes: Iterable[Node], field: str) -> bool:
    """Tell whether a field of the data is written as it is or left alone: never compared, measured or handed on.

    So the template's text with another value of that field is the same text with the other value in its places.
    """
    return not any(_looks_at(node, field, dot_is_data=True) for node in nodes)


def _looks_at(node: Node, field: str, *, dot_is_data: bool) -> bool:
    expressions: list[Expression] = []
    inner: tuple[Node, ...] = ()
    otherwise: tuple[Node, ...] = ()
    inner_is_data = dot_is_data
    match node:
        case Print(expression):
            if isinstance(expression, Field) and _is_data(expression.of, dot_is_data):
                return False
            expressions = [expression]
        case Let():
            expressions = [node.expression]
        case If():
            expressions, inner, otherwise = [node.condition], node.body, node.otherwise
        case With():
            expressions, inner, otherwise, inner_is_data = [node.value], node.body, node.otherwise, False
        case Range():
            expressions, inner, otherwise, inner_is_data = [node.over], node.body, node.otherwise, False
    return (
        any(_reads(expression, field, dot_is_data) for expression in expressions)
        or any(_looks_at(one, field, dot_is_data=inner_is_data) for one in inner)
        or any(_looks_at(one, field, dot_is_data=dot_is_data) for one in otherwise)
    )


def _reads(expression: Expression, field: str, dot_is_data: bool) -> bool:
    """Whether the field, or all of the data, is part of an expression."""
    match expression:
        case Call():
            return any(_reads(argument, field, dot_is_data) for argument in expression.arguments)
        case Field():
            if _is_data(expression.of, dot_is_data):
                return expression.name == field
            return _reads(expression.of, field, dot_is_data)
    return _is_data(expression, dot_is_data)


def _is_data(expression: Expression, dot_is_data: bool) -> bool:
    return expression == _DATA or (dot_is_data and isinstance(expression, Dot))
