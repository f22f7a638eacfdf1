"""From a template's text to its tree, refusing at once whatever could never run.

The text is cut into plain text and actions (what stands between `<<` and `>>`); an action is cut into tokens; then the
actions are nested by their keywords. Every complaint shows the action that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from adapter.gotemplate.functions import ARGUMENTS, check_format
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
    Variable,
    With,
)

__all__ = ["parse"]

_LEFT, _RIGHT = "<<", ">>"
_BLANKS = " \t\r\n"
_MAX_DEPTH = 50
_SHOWN = 60

_TOKEN = re.compile(
    r"""
      (?P<right>(?:[ \t\r\n]+-)?>>)
    | (?P<space>[ \t\r\n]+)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    | (?P<number>[+-]?(?:[0-9]|\.[0-9])[0-9A-Za-z_.]*(?:(?<=[eE])[+-][0-9]+)?)
    | (?P<field>\.[A-Za-z_][0-9A-Za-z_]*)
    | (?P<variable>\$[0-9A-Za-z_]*)
    | (?P<word>[A-Za-z_][0-9A-Za-z_]*)
    | (?P<sign>:=|[().|=,])
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(r"[ \t\r\n]*/\*")
_COMMENT_END = re.compile(r"\*/([ \t\r\n]+-)?>>")
_INTEGER = re.compile(r"[+-]?(0[xXoObB][0-9A-Fa-f_]+|[0-9_]+)")
_ESCAPE = re.compile(r"""\\(?:([abfnrtv\\"'])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)""")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
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
    return _Nesting(list(_cut(source)), fields).template()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    spaced: bool


@dataclass(slots=True)
class _Action:
    """The tokens of one action, read from the left."""

    source: str
    tokens: list[_Token]
    at: int = field(default=0)

    def peek(self, offset: int = 0) -> _Token | None:
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else None

    def take(self) -> _Token:
        token = self.peek()
        if token is None:
            raise self.error("something is missing at its end")
        self.at += 1
        return token

    def sign(self, text: str) -> bool:
        """Step over this sign or word if it is what comes next."""
        token = self.peek()
        if token is None or token.kind not in ("sign", "word") or token.text != text:
            return False
        self.at += 1
        return True

    def end(self) -> None:
        token = self.peek()
        if token is not None:
            raise self.error(f"unexpected {token.text}")

    def error(self, why: str) -> TemplateError:
        source = " ".join(self.source.split())
        shown = source if len(source) <= _SHOWN else f"{source[:_SHOWN]}..."
        return TemplateError(f"{shown}: {why}")


def _cut(source: str) -> Iterator[str | _Action]:
    """The template as texts and actions, with white space trimmed where `<<- ` and ` ->>` say so."""
    at, trim = 0, False
    while True:
        left = source.find(_LEFT, at)
        text = source[at:] if left < 0 else source[at:left]
        if trim:
            text = text.lstrip(_BLANKS)
        if left < 0:
            yield text
            return
        inside = left + len(_LEFT)
        if source.startswith("-", inside) and source[inside + 1 : inside + 2] in tuple(_BLANKS):
            text = text.rstrip(_BLANKS)
            inside += 1
        yield text
        if comment := _COMMENT.match(source, inside):
            at, trim = _skip_comment(source, left, comment.end())
            continue
        tokens, at, trim = _tokens(source, left, inside)
        yield _Action(source[left:at], tokens)


def _skip_comment(source: str, left: int, inside: int) -> tuple[int, bool]:
    """Where the action with a comment ends, and whether it trims what follows."""
    end = source.find("*/", inside)
    closing = _COMMENT_END.match(source, end) if end >= 0 else None
    if closing is None:
        raise _Action(source[left:], []).error("a comment ends with */>>")
    return closing.end(), closing[1] is not None


def _tokens(source: str, left: int, at: int) -> tuple[list[_Token], int, bool]:
    """The tokens of the action at `left`, where it ends, and whether it trims what follows."""
    tokens: list[_Token] = []
    spaced = False
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise _Action(source[left : at + 1], []).error(f"unexpected {source[at]!r}")
        at = found.end()
        if found.lastgroup == "right":
            return tokens, at, found[0] != _RIGHT
        if found.lastgroup != "space":
            tokens.append(_Token(found.lastgroup or "", found[0], spaced))
        spaced = found.lastgroup == "space"
    raise _Action(source[left:], []).error(f"there is no {_RIGHT} for it")


class _Nesting:
    """Reads the actions in order, and knows which variables exist and whether the dot is still the data."""

    def __init__(self, items: list[str | _Action], fields: frozenset[str]) -> None:
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

    def _body(self) -> tuple[tuple[Node, ...], _Action | None]:
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

    def _node(self, action: _Action, first: _Token) -> Node:
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

    def _let(self, action: _Action, name: str, *, declares: bool) -> Let:
        action.at += 2
        expression = self._pipeline(action)
        if declares:
            self._variables.append(name)
        elif name not in self._variables:
            raise action.error(f"undefined variable {name}")
        return Let(name, expression, declares)

    def _block(self, keyword: str, action: _Action) -> Node:
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

    def _otherwise(self, keyword: str, opening: _Action, last: _Action | None) -> tuple[Node, ...]:
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

    def _declared(self, keyword: str, action: _Action) -> list[str]:
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

    def _pipeline(self, action: _Action) -> Expression:
        expression = self._command(action, None)
        while action.sign("|"):
            expression = self._command(action, expression)
        return expression

    def _command(self, action: _Action, piped: Expression | None) -> Expression:
        """An operand alone, or a function with its arguments; what is piped in is its last one."""
        token = action.peek()
        if token is not None and token.kind == "word" and token.text not in _CONSTANTS:
            action.take()
            arguments: list[Expression] = []
            while (following := action.peek()) is not None and following.text not in ("|", ")"):
                arguments.append(self._operand(action))
            if piped is not None:
                arguments.append(piped)
            return _call(action, token.text, tuple(arguments))
        operand = self._operand(action)
        following = action.peek()
        if piped is not None or (following is not None and following.text not in ("|", ")")):
            raise action.error(f"{token.text if token else ''} is not a function")
        if operand == Literal(None):
            raise action.error("nil is not a command")
        return operand

    def _operand(self, action: _Action) -> Expression:
        operand = self._term(action)
        while (token := action.peek()) is not None and token.kind == "field" and not token.spaced:
            operand = Field(operand, action.take().text[1:])
            self._check_field(action, operand)
        return operand

    def _term(self, action: _Action) -> Expression:
        token = action.take()
        match token.kind:
            case "string":
                return Literal(_unquoted(action, token.text))
            case "number":
                return Literal(_number(action, token.text))
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

    def _check_field(self, action: _Action, field_: Field) -> None:
        of_data = field_.of == Variable("$") or (field_.of == Dot() and self._dot_is_data)
        if of_data and field_.name not in self._fields:
            known = ", ".join(f".{name}" for name in sorted(self._fields))
            raise action.error(f"there is no field .{field_.name}; there are {known}")


def _call(action: _Action, function: str, arguments: tuple[Expression, ...]) -> Call:
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


def _number(action: _Action, text: str) -> int | float:
    try:
        return int(text, 0) if _INTEGER.fullmatch(text) else float(text)
    except ValueError as error:
        raise action.error(f"bad number syntax: {text}") from error


def _unquoted(action: _Action, text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]

    def replace(found: re.Match[str]) -> str:
        letter, octal, *hexadecimal = found.groups()
        if letter is not None:
            return _ESCAPED.get(letter, letter)
        code = int(octal, 8) if octal is not None else next((int(h, 16) for h in hexadecimal if h is not None), -1)
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise action.error(f"{text} has an unknown escape")
        return chr(code)

    return _ESCAPE.sub(replace, text[1:-1])
