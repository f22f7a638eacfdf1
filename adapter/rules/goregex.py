r"""Go's regular expressions (RE2 syntax) on Python's `re`.

Rules files are written for prometheus-adapter, which is written in Go. The two dialects look alike and differ in
corners: what `$` and `\s` mean, POSIX classes, `{,3}`, flags in the middle, and everything that RE2 does not have
(lookaround, back-references, possessive repeats). So a pattern is not handed through but read as Go reads it and
written anew: flags are resolved at every atom, classes become plain ranges of code points, and what Go would refuse is
refused here. The few things of Go that are not offered (`\p{Greek}`, `\C`) are refused too, by name.

RE2 works in linear time and `re` does not. Where `re` might have to try many ways through a pattern for a text, the
match is looked for in linear time here too (adapter.rules.linear).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from adapter.rules.character_classes import LAST, PERL_CLASSES, POSIX_CLASSES, Range, complement, spelt_class
from adapter.rules.linear import Choice, Expression, Group, Leaf, Program, Repeat, Sequence, largest_repeat, spelt, ways

__all__ = ["MAX_TEXT", "GoMatch", "GoRegex", "GoRegexError"]

MAX_TEXT = 1024
"""Longer texts match nothing."""

_MAX_DEPTH = 100
_MAX_REPEAT = 1000
# Steps of re that take some hundredths of a second.
_MAX_WAYS = 2_000_000
_CONTROLS = {"a": 0x07, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_ANCHORS = {"A": r"\A", "z": r"\Z", "b": r"\b", "B": r"\B"}

_GROUP_NAME = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_GROUP_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_EXPANSION = re.compile(r"\$(?:\$|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})", re.ASCII)

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
class GoMatch:
    """What was found: the whole, and each group, which is None if it took no part."""

    groups: tuple[str | None, ...]

    def __getitem__(self, index: int) -> str | None:
        return self.groups[index]


@dataclass(frozen=True, slots=True)
class GoRegex:
    """A compiled pattern.

    Attributes:
        pattern: as it was written.
        groups: how many capturing groups it has.
        expression: what it says.
    """

    pattern: str
    groups: int
    expression: Expression
    _names: Mapping[str, int]
    _compiled: re.Pattern[str]
    _program: Program = field(compare=False)
    _re_up_to: int

    @classmethod
    def compile(cls, pattern: str) -> GoRegex:
        """Read a pattern as Go's regexp.Compile does.

        Raises:
            GoRegexError: with what is wrong, in Go's words where Go has some.
        """
        translator = _Translator(pattern)
        expression = translator.translate()
        try:
            compiled = re.compile(spelt(expression), re.ASCII)
            program = Program(expression, groups=translator.groups)
        except (ValueError, re.error, OverflowError, RecursionError) as error:
            raise GoRegexError(f"cannot be compiled: {error}") from error
        # The longest text for which re, from each of its places, has few enough ways to try.
        re_up_to = bisect_left(
            range(MAX_TEXT + 1), True, key=lambda length: (length + 1) * ways(expression, length) > _MAX_WAYS
        )
        return cls(pattern, translator.groups, expression, translator.names, compiled, program, re_up_to - 1)

    def search(self, text: str) -> GoMatch | None:
        """The leftmost match anywhere in the text, as Go's MatchString looks for it."""
        length = len(text)
        if length > MAX_TEXT:
            return None
        if length > self._re_up_to:
            groups = self._program.search(text)
            return GoMatch(groups) if groups is not None else None
        found = self._compiled.search(text)
        return GoMatch((found[0], *found.groups())) if found is not None else None

    def expand(self, template: str, match: GoMatch) -> str:
        """Fill `$1`, `${1}`, `$name` and `$$`, as Go's Regexp.Expand does.

        A name is as long as it can be, so `$1x` means the group named "1x"; a group that does not exist or took no
        part is empty; any other `$` stays.
        """

        def fill(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name is None:
                return "$"
            index = int(name[:9]) if name.isdecimal() else self._names.get(name)
            return (match[index] or "") if index is not None and index <= self.groups else ""

        return _EXPANSION.sub(fill, template)

    def unknown_groups(self, template: str) -> list[str]:
        """The groups that a template of `expand` names and the pattern does not have."""
        names = [found[1] or found[2] for found in _EXPANSION.finditer(template)]
        return [
            name
            for name in names
            if name is not None and not (int(name[:9]) <= self.groups if name.isdecimal() else name in self._names)
        ]


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


class _Translator:
    """One reading of one pattern, left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self.groups = 0
        self.names: dict[str, int] = {}

    def translate(self) -> Expression:
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
        ranges = self._perl_class()
        if ranges is not None:
            return _class(ranges, flags)
        return _literal(chr(self._escaped_char()), flags)

    def _perl_class(self) -> tuple[Range, ...] | None:
        letter = self._text[self._at + 1 : self._at + 2]
        ranges = PERL_CLASSES.get(letter.lower())
        if ranges is None:
            return None
        self._at += 2
        return ranges if letter.islower() else complement(ranges)

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
        if letter in "pPC":
            raise GoRegexError(f"\\{letter} is not supported here; spell the characters out in a class")
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
        if self._text.startswith("\\", self._at) and (ranges := self._perl_class()) is not None:
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
