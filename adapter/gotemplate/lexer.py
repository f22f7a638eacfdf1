"""Split a template into plain text and actions, and actions into tokens. Upstream: text/template/parse.lex.

An action is the text between `<<` and `>>`. The parser decides which tokens may follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.gotemplate.program import TemplateError

_BLANKS = " \t\r\n"
_SHOWN = 60

_LEFT = re.compile(r"<<(-(?=[ \t\r\n]))?")
_COMMENT = re.compile(r"[ \t\r\n]*/\*(?:(?!\*/).)*\*/([ \t\r\n]+-)?>>", re.DOTALL)
_TOKEN = re.compile(
    r"""
      (?P<right>([ \t\r\n]+-)?>>)
    | (?P<space>[ \t\r\n]+)
    | (?P<string>"(?:[^"\\\n]|\\[nt"\\])*"|`[^`]*`)
    | (?P<number>-?(?:0|[1-9][0-9]{0,17})(?![0-9A-Za-z_.]))
    | (?P<field>\.[A-Za-z_][0-9A-Za-z_]*)
    | (?P<variable>\$[0-9A-Za-z_]*)
    | (?P<word>[A-Za-z_][0-9A-Za-z_]*)
    | (?P<sign>:=|[()|=,]|\.(?![0-9]))
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """The smallest part of an action; `spaced` if there is white space before it."""

    kind: str
    text: str
    spaced: bool


@dataclass(slots=True)
class Action:
    """The tokens of one action, read from the left."""

    source: str
    tokens: list[Token]
    at: int = 0

    def peek(self, offset: int = 0) -> Token | None:
        """Return the next token, or a later one; None after the end."""
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else None

    def take(self) -> Token:
        """Return the next token and step over it.

        Raises:
            TemplateError: the action has no further token.
        """
        token = self.peek()
        if token is None:
            raise self.error("something is missing at its end")
        self.at += 1
        return token

    def skip(self, *texts: str) -> bool:
        """Step over the next token if it is one of these signs or words."""
        token = self.peek()
        found = token is not None and token.kind in ("sign", "word") and token.text in texts
        self.at += found
        return found

    def end(self) -> None:
        """Raise TemplateError unless all tokens were taken."""
        token = self.peek()
        if token is not None:
            raise self.error(f"unexpected {token.text}")

    def error(self, why: str) -> TemplateError:
        """Return an error that shows this action."""
        source = " ".join(self.source.split())
        return TemplateError(f"{source if len(source) <= _SHOWN else f'{source[:_SHOWN]}...'}: {why}")


def split(source: str) -> Iterator[str | Action]:
    """Split a template into texts and actions, with white space trimmed at `<<- ` and ` ->>`.

    Raises:
        TemplateError: an action does not end, or has a part that is not supported.
    """
    at, trim = 0, False
    while left := _LEFT.search(source, at):
        text = source[at : left.start()]
        text = text.lstrip(_BLANKS) if trim else text
        yield text.rstrip(_BLANKS) if left[1] else text
        if comment := _COMMENT.match(source, left.end()):
            at, trim = comment.end(), bool(comment[1])
        else:
            tokens, at, trim = _tokens(source, left.start(), left.end())
            yield Action(source[left.start() : at], tokens)
    yield source[at:].lstrip(_BLANKS) if trim else source[at:]


def _tokens(source: str, left: int, at: int) -> tuple[list[Token], int, bool]:
    """Return the tokens of the action at `left`, its end, and whether it trims the text after it."""
    tokens: list[Token] = []
    spaced = False
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            end, another = source.find(">>", at), source.find("<<", at)
            if end < 0 or 0 <= another < end:
                raise Action(source[left : another if another >= 0 else None], []).error("there is no >> for it")
            why = f"there is no such string, number or sign as {source[at : at + _SHOWN].splitlines()[0]}"
            raise Action(source[left : end + 2], []).error(why)
        at = found.end()
        if found.lastgroup == "right":
            return tokens, at, found[0] != ">>"
        if found.lastgroup != "space":
            tokens.append(Token(found.lastgroup or "", found[0], spaced))
        spaced = found.lastgroup == "space"
    raise Action(source[left:], []).error("there is no >> for it")
