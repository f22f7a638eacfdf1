"""Filling in a template that has been parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from adapter.gotemplate.functions import call, is_true, kind, to_text
from adapter.gotemplate.nodes import (
    Break,
    Call,
    Continue,
    Dot,
    Expression,
    Field,
    If,
    Let,
    Literal,
    Node,
    Print,
    Range,
    TemplateError,
    Text,
    Value,
    Variable,
    With,
)

_MAX_CHARACTERS = 8 * 1024 * 1024


def render(nodes: Iterable[Node], data: Mapping[str, Value]) -> str:
    """The text of a parsed template with this data.

    Raises:
        TemplateError: the template does not fit the data, or its text would be absurdly long.
    """
    renderer = _Renderer(data)
    renderer.run(nodes, data)
    return "".join(renderer.out)


class _Break(Exception):
    """Leave the innermost range."""


class _Continue(Exception):
    """Go on with the next element of the innermost range."""


class _Renderer:
    def __init__(self, data: Mapping[str, Value]) -> None:
        self.out: list[str] = []
        self._size = 0
        # The variables in sight, innermost last; a control structure cuts it back when it ends.
        self._variables: list[tuple[str, Value]] = [("$", data)]

    def run(self, nodes: Iterable[Node], dot: Value) -> None:
        for node in nodes:
            self._step(node, dot)

    def _step(self, node: Node, dot: Value) -> None:
        match node:
            case Text(text):
                self._write(text)
            case Print(expression):
                self._write(to_text(self._value(expression, dot)))
            case Let(name, expression, declares):
                self._let(name, self._value(expression, dot), declares=declares)
            case If(let, condition, body, otherwise):
                value = self._value(condition, dot)
                self._scoped(let, value, body if is_true(value) else otherwise, dot)
            case With(let, expression, body, otherwise):
                value = self._value(expression, dot)
                self._scoped(let, value, *((body, value) if is_true(value) else (otherwise, dot)))
            case Range():
                self._range(node, dot)
            case Break():
                raise _Break
            case Continue():
                raise _Continue

    def _write(self, text: str) -> None:
        self._size += len(text)
        if self._size > _MAX_CHARACTERS:
            raise TemplateError(f"the text is longer than {_MAX_CHARACTERS} characters")
        self.out.append(text)

    def _scoped(self, let: str | None, value: Value, nodes: Iterable[Node], dot: Value) -> None:
        mark = len(self._variables)
        try:
            if let is not None:
                self._variables.append((let, value))
            self.run(nodes, dot)
        finally:
            del self._variables[mark:]

    def _range(self, node: Range, dot: Value) -> None:
        over = self._value(node.over, dot)
        elements = _elements(over)
        if not elements:
            self._scoped(None, None, node.otherwise, dot)
        for key, element in elements:
            mark = len(self._variables)
            if node.key is not None:
                self._variables.append((node.key, key))
            if node.element is not None:
                self._variables.append((node.element, element))
            try:
                self.run(node.body, element)
            except _Continue:
                continue
            except _Break:
                break
            finally:
                del self._variables[mark:]

    def _let(self, name: str, value: Value, *, declares: bool) -> None:
        if declares:
            self._variables.append((name, value))
            return
        at = max(at for at, (known, _) in enumerate(self._variables) if known == name)
        self._variables[at] = (name, value)

    def _value(self, expression: Expression, dot: Value) -> Value:
        match expression:
            case Literal(value):
                return value
            case Dot():
                return dot
            case Variable(name):
                return next(value for known, value in reversed(self._variables) if known == name)
            case Field(of, name):
                owner = self._value(of, dot)
                if not isinstance(owner, Mapping):
                    raise TemplateError(f"cannot evaluate field {name} in {kind(owner)}")
                return owner.get(name)
            case Call("and" | "or" as function, arguments):
                last: Value = None
                for argument in arguments:
                    last = self._value(argument, dot)
                    if is_true(last) != (function == "and"):
                        break
                return last
            case Call(function, arguments):
                return call(function, [self._value(argument, dot) for argument in arguments])


def _elements(over: Value) -> list[tuple[Value, Value]]:
    """What range goes over: a list with its indices, a map by its sorted keys, and nothing at all."""
    if over is None:
        return []
    if isinstance(over, Mapping):
        return [(key, over[key]) for key in sorted(over)]
    if isinstance(over, Sequence) and not isinstance(over, str):
        return list(enumerate(over))
    raise TemplateError(f"range cannot iterate over {kind(over)}")
