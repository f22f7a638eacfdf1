"""From a template's text to plain text and actions, and from an action to tokens, as Go's lexer cuts them.

An action is what stands between `<<` and `>>`. Which tokens may follow each other is the parser's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from adapter.gotemplate.nodes import TemplateError

_LEFT, _RIGHT = "<<", ">>"
_BLANKS = " \t\r\n"
_SHOWN = 60

_TOKEN = re.compile(
    r"""
      (?P<right>(?:[ \t\r\n]+-)?>>)
    | (?P<space>[ \t\r\n]+)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    | (?P<rune>'(?:[^'\\\n]|\\.)*')
    | (?P<number>[+-]?(?:[0-9]|\.[0-9])[0-9A-Za-z_.]*(?:(?<=[eE])[+-][0-9_]+)?)
    | (?P<field>\.[A-Za-z_][0-9A-Za-z_]*)
    | (?P<variable>\$[0-9A-Za-z_]*)
    | (?P<word>[A-Za-z_][0-9A-Za-z_]*)
    | (?P<sign>:=|[().|=,])
    """,
    re.VERBOSE,
)
_UNTERMINATED = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
}
_COMMENT = re.compile(r"[ \t\r\n]*/\*")
_COMMENT_END = re.compile(r"\*/([ \t\r\n]+-)?>>")


@dataclass(frozen=True, slots=True)
class Token:
    """The smallest part of an action; `spaced` tells whether there is white space before it."""

    kind: str
    text: str
    spaced: bool


@dataclass(slots=True)
class Action:
    """The tokens of one action, read from the left."""

    source: str
    tokens: list[Token]
    at: int = field(default=0)

    def peek(self, offset: int = 0) -> Token | None:
        """The token that comes next, or some after it; None behind the end."""
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else None

    def take(self) -> Token:
        """Step over the next token; raises TemplateError where there is none."""
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
        """Raise a TemplateError unless everything was read."""
        token = self.peek()
        if token is not None:
            raise self.error(f"unexpected {token.text}")

    def error(self, why: str) -> TemplateError:
        """What is wrong with this action, with its text."""
        source = " ".join(self.source.split())
        shown = source if len(source) <= _SHOWN else f"{source[:_SHOWN]}..."
        return TemplateError(f"{shown}: {why}")


def cut(source: str) -> Iterator[str | Action]:
    """The template as texts and actions, with white space trimmed where `<<- ` and ` ->>` say so.

    Raises:
        TemplateError: an action does not end, or has what is no part of the language.
    """
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
        yield Action(source[left:at], tokens)


def _skip_comment(source: str, left: int, inside: int) -> tuple[int, bool]:
    """Where the action with a comment ends, and whether it trims what follows."""
    end = source.find("*/", inside)
    closing = _COMMENT_END.match(source, end) if end >= 0 else None
    if closing is None:
        raise Action(source[left:], []).error("a comment ends with */>>")
    return closing.end(), closing[1] is not None


def _tokens(source: str, left: int, at: int) -> tuple[list[Token], int, bool]:
    """The tokens of the action at `left`, where it ends, and whether it trims what follows."""
    tokens: list[Token] = []
    spaced = False
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            if source[at] in _UNTERMINATED:
                raise Action(source[left:], []).error(_UNTERMINATED[source[at]])
            raise Action(source[left : at + 1], []).error(f"unexpected {source[at]!r}")
        at = found.end()
        if found.lastgroup == "right":
            return tokens, at, found[0] != _RIGHT
        if found.lastgroup != "space":
            tokens.append(Token(found.lastgroup or "", found[0], spaced))
        spaced = found.lastgroup == "space"
    raise Action(source[left:], []).error(f"there is no {_RIGHT} for it")
