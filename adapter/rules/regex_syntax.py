r"""Reading a regular expression as Go (RE2) reads it.

A pattern becomes an expression whose leaves are spelt for Python's `re`: flags are resolved at every atom, classes are
plain ranges of code points. What Go would refuse is refused, in Go's words where it has some; what is Go's and not
offered is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from adapter.rules.character_classes import (
    LAST,
    PERL_CLASSES,
    POSIX_CLASSES,
    Range,
    complement,
    spelt_class,
    unicode_class,
)
from adapter.rules.linear import Choice, Expression, Group, Leaf, Repeat, Sequence, largest_repeat

__all__ = ["GoRegexError", "ReadPattern", "read_pattern"]

_MAX_DEPTH = 100
_MAX_REPEAT = 1000
# Each can have hundreds of ranges.
_MAX_UNICODE_CLASSES = 20
_CONTROLS = {"a": 0x07, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_ANCHORS = {"A": r"\A", "z": r"\Z", "b": r"\b", "B": r"\B"}

_GROUP_NAME = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_GROUP_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_UNICODE_CLASS = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|([^{]))", re.DOTALL)

# What RE2 leaves out, by how it is spelt after an opening parenthesis.
_NOT_IN_GO = {
    "?=": "lookahead",
    "?!": "lookahead",
    "?<=": "lookbehind",
    "?<!": "lookbehind",
    "?>": "atomic groups",
    "?#": "comments",
    "?(": "conditions",
    "?P=": "back-references",
}


class GoRegexError(ValueError):
    """Go would not compile this pattern, or it uses what is not offered here."""


@dataclass(frozen=True, slots=True)
class ReadPattern:
    """What a pattern says, how many capturing groups it has, and the numbers of those with a name."""

    expression: Expression
    groups: int
    names: Mapping[str, int]


def read_pattern(pattern: str) -> ReadPattern:
    """Read a pattern.

    Raises:
        GoRegexError: with what is wrong.
    """
    reader = _Reader(pattern)
    expression = reader.read()
    return ReadPattern(expression, reader.groups, reader.names)


@dataclass(frozen=True, slots=True)
class _Flags:
    """What (?imsU) sets, resolved at every atom that it touches."""

    fold: bool = False
    multiline: bool = False
    dot_all: bool = False
    ungreedy: bool = False

    def changed(self, on: str, off: str) -> _Flags:
        def after(letter: str, before: bool) -> bool:
            return (before or letter in on) and letter not in off

        return _Flags(
            after("i", self.fold), after("m", self.multiline), after("s", self.dot_all), after("U", self.ungreedy)
        )


class _Reader:
    """One reading of one pattern, left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._unicode_classes = 0
        self.groups = 0
        self.names: dict[str, int] = {}

    def read(self) -> Expression:
        expression = self._alternatives(_Flags(), depth=0)
        if self._at < len(self._text):
            raise GoRegexError("unexpected ): there is no ( for it")
        return expression

    def _alternatives(self, flags: _Flags, *, depth: int) -> Expression:
        """Everything up to the end or to the parenthesis that closes this group."""
        if depth > _MAX_DEPTH:
            raise GoRegexError(f"groups nested more than {_MAX_DEPTH} deep")
        options: list[list[Expression]] = [[]]
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                options.append([])
            elif self._text.startswith(r"\Q", self._at):
                options[-1] += self._quoted(flags)
            elif (setting := self._flag_setting()) is not None:
                flags = flags.changed(*setting)
                self._refuse_repeat("missing argument to repetition operator")
            else:
                options[-1].append(self._repeated(self._atom(flags, depth), flags))
        sequences = tuple(Sequence(tuple(parts)) for parts in options)
        return sequences[0] if len(sequences) == 1 else Choice(sequences)

    def _repeated(self, atom: Expression, flags: _Flags) -> Expression:
        start = self._at
        counts = self._repeat_operator()
        if counts is None:
            return atom
        written = self._text[start : self._at]
        lazy = self._text.startswith("?", self._at)
        if lazy:
            self._at += 1
        self._refuse_repeat("invalid nested repetition operator")
        repeat = Repeat(atom, *counts, lazy=lazy != flags.ungreedy)
        if largest_repeat(repeat) > _MAX_REPEAT:
            raise GoRegexError(f"invalid repeat count: {written} (repeats in one another count as their product)")
        return repeat

    def _repeat_operator(self) -> tuple[int, int | None] | None:
        rest = self._text[self._at : self._at + 1]
        if rest and rest in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[rest]
        counted = _REPEAT.match(self._text, self._at)
        if counted is None:  # Go takes any other { for itself
            return None
        self._at = counted.end()
        low, high = counted[1], counted[3] if counted[2] else counted[1]
        if any(len(number) > 4 or int(number) > _MAX_REPEAT for number in (low, high) if number) or (
            high and int(high) < int(low)
        ):
            raise GoRegexError(f"invalid repeat count: {counted[0]}")
        return int(low), int(high) if high else None

    def _refuse_repeat(self, why: str) -> None:
        at = self._at
        if self._repeat_operator() is not None:
            raise GoRegexError(f"{why}: {self._text[at : self._at]}")

    def _flag_setting(self) -> tuple[str, str] | None:
        """`(?i)`: the flags that it sets and clears for the rest of the group."""
        found = _GROUP_FLAGS.match(self._text, self._at)
        if found is None or found[3] == ":":
            return None
        if not found[1] and not found[2]:
            raise GoRegexError("missing argument to repetition operator: ?")
        self._at = found.end()
        return found[1], found[2] or ""

    def _atom(self, flags: _Flags, depth: int) -> Expression:
        char = self._text[self._at]
        if char == "(":
            return self._group(flags, depth)
        if char == "[":
            return _class(self._bracket(), flags)
        if char == "\\":
            return self._escaped(flags)
        self._refuse_repeat("missing argument to repetition operator")
        self._at += 1
        if char == ".":
            return Leaf(r"(?s:.)" if flags.dot_all else r"[^\n]")
        if char == "^":
            return Leaf("(?m:^)" if flags.multiline else r"\A", consumes=False)
        if char == "$":
            return Leaf("(?m:$)" if flags.multiline else r"\Z", consumes=False)
        return _literal(char, flags)

    def _group(self, flags: _Flags, depth: int) -> Expression:
        flagged = _GROUP_FLAGS.match(self._text, self._at)
        named = _GROUP_NAME.match(self._text, self._at)
        if flagged is not None:
            self._at = flagged.end()
            inner, number = flags.changed(flagged[1], flagged[2] or ""), 0
        elif named is not None:
            self._at = named.end()
            self.groups += 1
            if named[1] in self.names:
                raise GoRegexError(f"duplicate capture group name: {named[1]}")
            self.names[named[1]] = self.groups
            inner, number = flags, self.groups
        else:
            rest = self._text[self._at + 1 : self._at + 4]
            for spelling, name in _NOT_IN_GO.items():
                if rest.startswith(spelling):
                    raise GoRegexError(f"({spelling} is not Go's syntax: Go's regular expressions have no {name}")
            if rest.startswith("?"):
                raise GoRegexError(f"invalid or unsupported Perl syntax: ({rest}")
            self._at += 1
            self.groups += 1
            inner, number = flags, self.groups
        body = self._alternatives(inner, depth=depth + 1)
        if self._at >= len(self._text):
            raise GoRegexError("missing closing )")
        self._at += 1
        return Group(body, number) if number else body

    def _quoted(self, flags: _Flags) -> list[Expression]:
        r"""`\Q...\E`: literally what is between them; a repeat binds to the last character."""
        end = self._text.find(r"\E", self._at)
        stop = len(self._text) if end < 0 else end
        chars = self._text[self._at + 2 : stop]
        self._at = stop + (2 if end >= 0 else 0)
        if not chars:
            return []
        return [
            *(_literal(char, flags) for char in chars[:-1]),
            self._repeated(_literal(chars[-1], flags), flags),
        ]

    def _escaped(self, flags: _Flags) -> Expression:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in _ANCHORS and letter:
            self._at += 2
            return Leaf(_ANCHORS[letter], consumes=False)
        ranges = self._escaped_class()
        if ranges is not None:
            return _class(ranges, flags)
        return _literal(chr(self._escaped_char()), flags)

    def _escaped_class(self) -> tuple[Range, ...] | None:
        r"""`\d`, `\pL` and their like; None for any other escape."""
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("p", "P"):
            return self._unicode_class(negated=letter == "P")
        ranges = PERL_CLASSES.get(letter.lower())
        if ranges is None:
            return None
        self._at += 2
        return ranges if letter.islower() else complement(ranges)

    def _unicode_class(self, *, negated: bool) -> tuple[Range, ...]:
        r"""`\pL`, `\p{Lu}`, `\P{Lu}` or `\p{^Lu}`."""
        found = _UNICODE_CLASS.match(self._text, self._at)
        if found is None:
            raise GoRegexError(f"invalid character class range: {self._text[self._at : self._at + 2]}")
        ranges = unicode_class(found[3] or found[2])
        if ranges is None:
            raise GoRegexError(
                f"{found[0]} is not supported here: of Unicode's classes there are categories, such as \\p{{Lu}};"
                " spell the characters out in a class"
            )
        self._unicode_classes += 1
        if self._unicode_classes > _MAX_UNICODE_CLASSES:
            raise GoRegexError(f"more than {_MAX_UNICODE_CLASSES} Unicode classes")
        self._at = found.end()
        return complement(ranges) if negated != bool(found[1]) else ranges

    def _escaped_char(self) -> int:
        """The code point of an escape that stands for one character, in a class or out of it."""
        start = self._at
        letter = self._text[start + 1 : start + 2]
        self._at += 2
        if not letter:
            raise GoRegexError("trailing backslash at end of expression")
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            found = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\}").match(self._text, self._at)
            if found is not None and int(found[1] or found[2], 16) <= LAST:
                self._at = found.end()
                return int(found[1] or found[2], 16)
        elif letter in "01234567":
            digits = re.compile(r"[0-7]{1,3}").match(self._text, start + 1)
            if digits is not None and (letter == "0" or len(digits[0]) > 1):
                self._at = digits.end()
                return int(digits[0], 8)
        elif letter.isascii() and not letter.isalnum():
            return ord(letter)
        if letter in "123456789":
            raise GoRegexError(
                f"invalid escape sequence: \\{letter} (Go's regular expressions have no back-references)"
            )
        if letter == "C":
            raise GoRegexError("\\C is not supported here; spell the characters out in a class")
        raise GoRegexError(f"invalid escape sequence: {self._text[start : start + 2]}")

    def _bracket(self) -> tuple[Range, ...]:
        """`[...]`, as the ranges of code points that it takes."""
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        if negated:
            self._at += 1
        ranges: list[Range] = []
        first = True
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise GoRegexError(f"missing closing ]: {self._text[start:]}")
            first = False
            ranges += self._bracket_item()
        self._at += 1
        return complement(ranges) if negated else tuple(ranges)

    def _bracket_item(self) -> tuple[Range, ...]:
        if self._text.startswith("[:", self._at) and (end := self._text.find(":]", self._at + 2)) > 0:
            name = self._text[self._at + 2 : end]
            ranges = POSIX_CLASSES.get(name.removeprefix("^"))
            if ranges is None:
                raise GoRegexError(f"invalid character class range: [:{name}:]")
            self._at = end + 2
            return complement(ranges) if name.startswith("^") else ranges
        if self._text.startswith("\\", self._at) and (ranges := self._escaped_class()) is not None:
            return ranges
        start = self._at
        low = high = self._bracket_char()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            high = self._bracket_char()
            if high < low:
                raise GoRegexError(f"invalid character class range: {self._text[start : self._at]}")
        return ((low, high),)

    def _bracket_char(self) -> int:
        if self._text.startswith("\\", self._at):
            return self._escaped_char()
        self._at += 1
        return ord(self._text[self._at - 1])


def _literal(char: str, flags: _Flags) -> Expression:
    escaped = re.escape(char)
    return Leaf(f"(?i:{escaped})" if flags.fold and char.isalpha() else escaped)


def _class(ranges: Iterable[Range], flags: _Flags) -> Expression:
    written = spelt_class(ranges)
    return Leaf(f"(?i:{written})" if flags.fold else written)
