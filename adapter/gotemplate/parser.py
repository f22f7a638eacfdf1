"""From a template's text to its tree, refusing at once whatever could never run.

The lexer cuts the text into plain text and actions (what stands between `<<` and `>>`); here the actions are nested by
their keywords, and what is in them is read. Every complaint shows the action that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adapter.gotemplate.functions import ARGUMENTS, check_format
from adapter.gotemplate.lexer import Action, Token, cut
from adapter.gotemplate.literals import number, rune, unquoted
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

_MAX_DEPTH = 50
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
_READ: Mapping[str, Callable[[str], Value]] = {"string": unquoted, "rune": rune, "number": number}
_BLOCKS = ("if", "range", "with")
_NOT_SUPPORTED = {
    "define": "nested templates are not supported",
    "template": "nested templates are not supported",
    "block": "nested templates are not supported",
    "html": "the function html is not supported: a query is no web page",
    "js": "the function js is not supported: a query is no script",
    "urlquery": "the function urlquery is not supported: queries are encoded when they are sent",
    "call": "the function call is not supported: no field is a function",
}


def parse(source: str, fields: frozenset[str]) -> tuple[Node, ...]:
    """Read a template whose data has these fields.

    Raises:
        TemplateError: with the action that is wrong, and why.
    """
    return _Nesting(list(cut(source)), fields).template()


class _Nesting:
    """Reads the actions in order, and knows which variables exist and whether the dot is still the data."""

    def __init__(self, items: list[str | Action], fields: frozenset[str]) -> None:
        self._items = iter(items)
        self._fields = fields
        self._variables = ["$"]
        self._dot_is_data = True
        self._ranges = 0
        self._depth = 0

    def template(self) -> tuple[Node, ...]:
        nodes, last = self._body()
        if last is not None:
            raise last.error("there is nothing open that it could belong to")
        return nodes

    def _body(self) -> tuple[tuple[Node, ...], Action | None]:
        """Everything up to an `else`, an `end` or the end of the template, and that action."""
        nodes: list[Node] = []
        for item in self._items:
            if isinstance(item, str):
                if item:
                    nodes.append(Text(item))
                continue
            first = item.peek()
            if first is None:
                raise item.error("there is nothing in it")
            if first.kind == "word" and first.text in ("else", "end"):
                return tuple(nodes), item
            nodes.append(self._node(item, first))
        return tuple(nodes), None

    def _node(self, action: Action, first: Token) -> Node:
        node: Node
        if first.kind == "word" and first.text in _BLOCKS:
            action.take()
            return self._block(first.text, action)
        if first.kind == "word" and first.text in ("break", "continue"):
            if not self._ranges:
                raise action.error(f"there is no range to {first.text}")
            action.take()
            node = Break() if first.text == "break" else Continue()
        else:
            sign = action.peek(1)
            if first.kind == "variable" and sign is not None and sign.text in (":=", "="):
                node = self._let(action, first.text, declares=sign.text == ":=")
            else:
                node = Print(self._pipeline(action))
        action.end()
        return node

    def _let(self, action: Action, name: str, *, declares: bool) -> Let:
        action.at += 2
        expression = self._pipeline(action)
        if declares:
            self._variables.append(name)
        elif name not in self._variables:
            raise action.error(f"undefined variable {name}")
        return Let(name, expression, declares)

    def _block(self, keyword: str, action: Action) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise action.error(f"nested more than {_MAX_DEPTH} deep")
        mark = len(self._variables)
        names = self._declared(keyword, action)
        head = self._pipeline(action)
        action.end()
        self._variables += names

        before = self._dot_is_data
        self._dot_is_data = before and keyword == "if"
        self._ranges += keyword == "range"
        body, last = self._body()
        self._ranges -= keyword == "range"
        self._dot_is_data = before
        # The head's variables live on in the else, the body's do not.
        del self._variables[mark + (0 if keyword == "range" else len(names)) :]

        otherwise = self._otherwise(keyword, action, last)
        del self._variables[mark:]
        self._depth -= 1
        let = names[0] if names else None
        if keyword == "if":
            return If(let, head, body, otherwise)
        if keyword == "with":
            return With(let, head, body, otherwise)
        key, element = (None, let) if len(names) < 2 else names
        return Range(key, element, head, body, otherwise)

    def _otherwise(self, keyword: str, opening: Action, last: Action | None) -> tuple[Node, ...]:
        """What follows the body of a block, up to its `end`."""
        if last is None:
            raise opening.error("there is no <<end>> for it")
        if last.sign("end"):
            last.end()
            return ()
        last.take()
        following = last.peek()
        if following is None:
            nodes, end = self._body()
            if end is None or not end.sign("end"):
                raise (end or opening).error("there is no <<end>> for it" if end is None else "a second else")
            end.end()
            return nodes
        if following.text != keyword or keyword == "range":
            raise last.error(f"unexpected {following.text} after else")
        last.take()
        # An `else if` shares its end with the if before it.
        return (self._block(keyword, last),)

    def _declared(self, keyword: str, action: Action) -> list[str]:
        """The variables before `:=` at the start of a block."""
        first, sign = action.peek(), action.peek(1)
        if first is None or first.kind != "variable" or sign is None:
            return []
        if sign.text == ":=":
            action.at += 2
            return [first.text]
        second, assign = action.peek(2), action.peek(3)
        if sign.text != ",":
            return []
        if keyword != "range" or second is None or second.kind != "variable" or not assign or assign.text != ":=":
            raise action.error("only range declares two variables, as in range $i, $v := .GroupBySlice")
        action.at += 4
        return [first.text, second.text]

    def _pipeline(self, action: Action) -> Expression:
        expression = self._command(action, None)
        while action.sign("|"):
            expression = self._command(action, expression)
        return expression

    def _command(self, action: Action, piped: Expression | None) -> Expression:
        """An operand alone, or a function with its arguments; what is piped in is its last one."""
        token = action.peek()
        if token is not None and token.kind == "word" and token.text not in _CONSTANTS:
            action.take()
            arguments: list[Expression] = []
            while _another(action):
                arguments.append(self._operand(action))
            if piped is not None:
                arguments.append(piped)
            return _call(action, token.text, tuple(arguments))
        operand = self._operand(action)
        if _another(action) or piped is not None:
            raise action.error(f"{token.text if token else ''} is not a function")
        if operand == Literal(None):
            raise action.error("nil is not a command")
        return operand

    def _operand(self, action: Action) -> Expression:
        operand = self._term(action)
        while (token := action.peek()) is not None and token.kind == "field" and not token.spaced:
            if isinstance(operand, (Literal, Dot)):
                raise action.error(f"unexpected {token.text}: what is before it has no fields")
            operand = Field(operand, action.take().text[1:])
            self._check_field(action, operand)
        return operand

    def _term(self, action: Action) -> Expression:
        token = action.take()
        match token.kind:
            case "string" | "rune" | "number":
                return _constant(action, token)
            case "field":
                found = Field(Dot(), token.text[1:])
                self._check_field(action, found)
                return found
            case "variable":
                if token.text not in self._variables:
                    raise action.error(f"undefined variable {token.text}")
                return Variable(token.text)
            case "word" if token.text in _CONSTANTS:
                return Literal(_CONSTANTS[token.text])
            case "word":
                return _call(action, token.text, ())
        if token.text == ".":
            return Dot()
        if token.text != "(":
            raise action.error(f"unexpected {token.text}")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise action.error(f"nested more than {_MAX_DEPTH} deep")
        inner = self._pipeline(action)
        if not action.sign(")"):
            raise action.error("a ( is not closed")
        self._depth -= 1
        return inner

    def _check_field(self, action: Action, field_: Field) -> None:
        of_data = field_.of == Variable("$") or (field_.of == Dot() and self._dot_is_data)
        if of_data and field_.name not in self._fields:
            known = ", ".join(f".{name}" for name in sorted(self._fields))
            raise action.error(f"there is no field .{field_.name}; there are {known}")


def _another(action: Action) -> bool:
    """Tell whether another operand of the same command follows. Go wants a space before it."""
    following = action.peek()
    if following is None or following.text in ("|", ")"):
        return False
    if not following.spaced:
        raise action.error(f"there is no space before {following.text}")
    return True


def _call(action: Action, function: str, arguments: tuple[Expression, ...]) -> Call:
    if function in _NOT_SUPPORTED:
        raise action.error(_NOT_SUPPORTED[function])
    if function not in ARGUMENTS:
        raise action.error(f'function "{function}" is not defined; there are {", ".join(ARGUMENTS)}')
    fewest, most = ARGUMENTS[function]
    if len(arguments) < fewest or (most is not None and len(arguments) > most):
        wanted = f"{fewest}" if fewest == most else f"{fewest} or more" if most is None else f"{fewest} to {most}"
        raise action.error(f"{function} takes {wanted} arguments, not {len(arguments)}")
    if function == "printf" and isinstance(arguments[0], Literal) and isinstance(arguments[0].value, str):
        try:
            check_format(arguments[0].value)
        except TemplateError as error:
            raise action.error(str(error)) from error
    return Call(function, arguments)


def _constant(action: Action, token: Token) -> Literal:
    try:
        return Literal(_READ[token.kind](token.text))
    except TemplateError as error:
        raise action.error(str(error)) from error
