"""Parse a template's text into a function that renders it. An invalid template is refused.

Actions are nested by their keywords; each becomes a closure over those inside it. Variables have numbered slots, so
that nothing is looked up by name when a template is rendered. Every error shows the action that it is about.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Collection

from adapter.gotemplate import program
from adapter.gotemplate.lexer import Action, Token, split
from adapter.gotemplate.program import (
    FUNCTIONS,
    Expression,
    Program,
    Statement,
    TemplateError,
    check_format,
)

_CONSTANTS = {"true": True, "false": False}
_BLOCKS = ("if", "range", "with")


class Template(Program):
    """A template that has been parsed and checked.

    Attributes:
        source: its text.
    """

    __slots__ = ("_examined", "source")

    def __init__(self, source: str, *, fields: Collection[str]) -> None:
        """Parse a template whose data has exactly these fields.

        Raises:
            TemplateError: with the action that is wrong, and why.
        """
        self.source = source
        parser = _Parser(source, fields)
        try:
            statement = parser.template()
        except RecursionError as error:
            raise TemplateError("it is nested too deep") from error
        super().__init__(statement, parser.slots)
        self._examined = frozenset(parser.examined)  # not only inserted but compared, measured or passed to functions

    def __eq__(self, other: object) -> bool:
        """Compare the sources."""
        return isinstance(other, Template) and self.source == other.source

    def only_writes(self, field: str) -> bool:
        """Return True if a field is only inserted, so that nothing else in the text depends on it."""
        return field not in self._examined


class _Parser:
    """Reads the actions in order. Tracks the variables in scope, and whether the dot is still the data."""

    def __init__(self, source: str, fields: Collection[str]) -> None:
        self.slots = 0
        self.examined: list[str] = []
        self._items = split(source)
        self._fields = fields
        self._scope: dict[str, int] = {}
        self._dot_is_data = True

    def template(self) -> Statement:
        statement, last = self._body()
        if last is not None:
            raise last.error("no if, range or with is open")
        return statement

    def _body(self) -> tuple[Statement, Action | None]:
        """Parse up to an `else`, an `end` or the end of the template; return that action, too."""
        statements: list[Statement] = []
        for item in self._items:
            if isinstance(item, str):
                if item:
                    statements.append(program.text(item))
                continue
            first = item.peek()
            if first is None:
                raise item.error("there is nothing in it")
            if first.kind == "word" and first.text in ("else", "end"):
                return program.sequence(statements), item
            statements.append(self._statement(item, first))
        return program.sequence(statements), None

    def _statement(self, action: Action, first: Token) -> Statement:
        if first.kind == "word" and first.text in _BLOCKS:
            action.take()
            return self._block(first.text, action)
        sign = action.peek(1)
        if first.kind == "variable" and sign is not None and sign.text in (":=", "="):
            action.at += 2
            value = self._pipeline(action)
            action.end()
            slot = self._declare(first.text) if sign.text == ":=" else self._slot(action, first.text)
            return lambda frame: operator.setitem(frame.variables, slot, value(frame))
        examined = len(self.examined)
        expression = self._pipeline(action)
        action.end()
        tokens = [token.text if token.kind == "variable" else token.kind for token in action.tokens]
        if tokens == ["$", "field"] or (tokens == ["field"] and self._dot_is_data):
            del self.examined[examined:]
        return program.write(expression)

    def _declare(self, name: str) -> int:
        slot = self.slots
        self.slots += 1
        self._scope = {**self._scope, name: slot}
        return slot

    def _slot(self, action: Action, name: str) -> int:
        if name not in self._scope:
            raise action.error(f"undefined variable {name}")
        return self._scope[name]

    def _block(self, keyword: str, action: Action) -> Statement:
        outer, outer_dot_is_data = self._scope, self._dot_is_data
        names = self._declared(keyword, action)
        head = self._pipeline(action)
        action.end()
        slots = [self._declare(name) for name in names]
        self._dot_is_data = outer_dot_is_data and keyword == "if"
        # The variables of an if or with are in scope in its else, too.
        in_else = outer if keyword == "range" else self._scope
        body, last = self._body()
        self._scope, self._dot_is_data = in_else, outer_dot_is_data
        otherwise = self._otherwise(keyword, action, last)
        self._scope = outer
        if keyword == "range":
            return program.loop(slots, head, body, otherwise)
        return program.branch(slots, head, body, otherwise, sets_dot=keyword == "with")

    def _otherwise(self, keyword: str, opening: Action, last: Action | None) -> Statement:
        """Parse what follows the body of a block, up to its `end`."""
        if last is None:
            raise opening.error("there is no <<end>> for it")
        if last.skip("end"):
            last.end()
            return program.sequence([])
        last.take()
        following = last.peek()
        if following is not None:
            if following.text != keyword or keyword == "range":
                raise last.error(f"unexpected {following.text} after else")
            last.take()
            # An `else if` shares its end with the if before it.
            return self._block(keyword, last)
        statement, end = self._body()
        if end is None:
            raise opening.error("there is no <<end>> for it")
        if not end.skip("end"):
            raise end.error("a second else")
        end.end()
        return statement

    def _declared(self, keyword: str, action: Action) -> list[str]:
        """Parse the variables before `:=` at the start of a block."""
        start, names = action.at, list[str]()
        while (token := action.peek()) is not None and token.kind == "variable":
            names.append(action.take().text)
            if action.skip(":=") and (len(names) == 1 or (len(names) == 2 and keyword == "range")):
                return names
            if not action.skip(","):
                break
        if len(names) > 1:
            raise action.error("only range declares two variables, as in range $i, $v := .GroupBySlice")
        action.at = start
        return []

    def _pipeline(self, action: Action) -> Expression:
        expression = self._command(action, None)
        while action.skip("|"):
            expression = self._command(action, expression)
        return expression

    def _command(self, action: Action, piped: Expression | None) -> Expression:
        """Parse an operand, or a function with its arguments, of which the last may be piped in."""
        token = action.peek()
        if token is not None and token.kind == "word" and token.text not in _CONSTANTS:
            return self._call(action, action.take().text, piped)
        operand = self._operand(action)
        if _operand_follows(action) or piped is not None:
            raise action.error(f"{token.text if token else ''} is not a function")
        return operand

    def _call(self, action: Action, name: str, piped: Expression | None) -> Expression:
        if name not in FUNCTIONS and name not in ("and", "or"):
            raise action.error(f'function "{name}" is not supported; there are and, or, {", ".join(FUNCTIONS)}')
        first = action.peek()
        if name == "printf" and first is not None and first.kind == "string":
            try:
                check_format(_string(first.text))
            except TemplateError as error:
                raise action.error(str(error)) from error
        arguments: list[Expression] = []
        while _operand_follows(action):
            arguments.append(self._operand(action))
        if piped is not None:
            arguments.append(piped)
        fewest, most = (1, None) if name in ("and", "or") else (FUNCTIONS[name].fewest, FUNCTIONS[name].most)
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            wanted = f"{fewest}" if fewest == most else f"{fewest} or more" if most is None else f"{fewest} to {most}"
            raise action.error(f"{name} takes {wanted} arguments, not {len(arguments)}")
        if name in ("and", "or"):
            return program.logic(arguments, until=name == "or")
        return program.call(FUNCTIONS[name].call, arguments)

    def _operand(self, action: Action) -> Expression:
        token = action.take()
        is_data = token.text == "$" or (token.text == "." and self._dot_is_data)
        operand = self._term(action, token)
        while (following := action.peek()) is not None and following.kind == "field" and not following.spaced:
            if token.kind in ("string", "number", "word") or token.text == ".":
                raise action.error(f"unexpected {following.text}: what is before it has no fields")
            operand = self._field(action, operand, action.take().text[1:], of_data=is_data)
            is_data = False
        if is_data:
            self.examined += self._fields
        return operand

    def _term(self, action: Action, token: Token) -> Expression:
        match token.kind:
            case "string":
                return program.constant(_string(token.text))
            case "number":
                return program.constant(int(token.text))
            case "field":
                return self._field(action, operator.attrgetter("dot"), token.text[1:], of_data=self._dot_is_data)
            case "variable" if token.text == "$":
                return operator.attrgetter("data")
            case "variable":
                slot = self._slot(action, token.text)
                return lambda frame: frame.variables[slot]
            case "word" if token.text in _CONSTANTS:
                return program.constant(_CONSTANTS[token.text])
            case "word":
                # A function that is an argument has no arguments.
                return self._call(Action(action.source, []), token.text, None)
        if token.text == ".":
            return operator.attrgetter("dot")
        if token.text != "(":
            raise action.error(f"unexpected {token.text}")
        inner = self._pipeline(action)
        if not action.skip(")"):
            raise action.error("a ( is not closed")
        return inner

    def _field(self, action: Action, of: Expression, name: str, *, of_data: bool) -> Expression:
        if of_data:
            if name not in self._fields:
                known = ", ".join(f".{one}" for one in sorted(self._fields))
                raise action.error(f"there is no field .{name}; there are {known}")
            self.examined.append(name)
        return program.field_of(of, name)


def _operand_follows(action: Action) -> bool:
    """Return True if another operand of the same command follows. Go wants a space before it."""
    following = action.peek()
    if following is None or following.text in ("|", ")"):
        return False
    if not following.spaced:
        raise action.error(f"there is no space before {following.text}")
    return True


def _string(token: str) -> str:
    # Go removes carriage returns from raw strings, so that the file's line endings do not matter.
    text: str = token[1:-1].replace("\r", "") if token.startswith("`") else json.loads(token, strict=False)
    return text
