r"""Go's regular expressions (RE2 syntax) on Python's `re`.

Rules files are written for prometheus-adapter, which is written in Go. The two dialects look alike and differ in
corners: what `$` and `\s` mean, POSIX classes, `{,3}`, flags in the middle, and everything that RE2 does not have
(lookaround, back-references, possessive repeats). So a pattern is not handed through but read as Go reads it and
written anew (adapter.rules.regex_syntax), and what Go would refuse is refused. The few things of Go that are not
offered (`\p{Greek}`, `\C`) are refused, too, by name.

RE2 works in linear time and `re` does not. Where `re` might have to try many ways through a pattern for a text, the
match is looked for in linear time here too (adapter.rules.linear).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.rules.linear import Expression, Program, spelt, ways
from adapter.rules.regex_syntax import GoRegexError, read_pattern

__all__ = ["MAX_TEXT", "GoMatch", "GoRegex", "GoRegexError"]

MAX_TEXT = 1024
"""Longer texts match nothing."""

# Steps of re that take some hundredths of a second.
_MAX_WAYS = 2_000_000
_EXPANSION = re.compile(r"\$(?:\$|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})", re.ASCII)


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
        read = read_pattern(pattern)
        expression = read.expression
        try:
            compiled = re.compile(spelt(expression), re.ASCII)
            program = Program(expression, groups=read.groups)
        except (ValueError, re.error, OverflowError, RecursionError) as error:
            raise GoRegexError(f"cannot be compiled: {error}") from error
        # The longest text for which re, from each of its places, has few enough ways to try.
        re_up_to = bisect_left(
            range(MAX_TEXT + 1), True, key=lambda length: (length + 1) * ways(expression, length) > _MAX_WAYS
        )
        return cls(pattern, read.groups, expression, read.names, compiled, program, re_up_to - 1)

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
