r"""Go's regular expressions, by RE2 itself.

Rules files are written for prometheus-adapter, whose patterns Go's regexp package reads. It and RE2 share their syntax,
and both match in linear time. RE2 words its errors a little differently, and lacks four of Go's Unicode classes
(docs/rules.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # they are raised
_EXPANSION = re.compile(r"\$(?:\$|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})", re.ASCII)
_DIGITS = 9


class GoRegexError(ValueError):
    """A pattern that Go would refuse."""


@dataclass(frozen=True, slots=True)
class GoMatch:
    """The text of the match, and of each group; None for a group that took no part."""

    groups: tuple[str | None, ...]

    def __getitem__(self, index: int) -> str | None:
        return self.groups[index]


@dataclass(frozen=True, slots=True)
class GoRegex:
    """A compiled pattern.

    Attributes:
        pattern: the source.
        groups: the number of capturing groups.
    """

    pattern: str
    groups: int
    _compiled: Any = field(compare=False, repr=False)

    @classmethod
    def compile(cls, pattern: str) -> GoRegex:
        """Compile a pattern. Upstream: regexp.Compile.

        Raises:
            GoRegexError: with RE2's words for what is wrong.
        """
        if r"\C" in pattern.replace(r"\\", ""):
            raise GoRegexError(r"invalid escape sequence: \C")  # a single byte: RE2 has it, Go does not
        try:
            compiled = re2.compile(pattern, _OPTIONS)
        except re2.error as error:
            raise GoRegexError(_message(error)) from error
        return cls(pattern, compiled.groups, compiled)

    def search(self, text: str) -> GoMatch | None:
        """The leftmost match anywhere in the text. Upstream: Regexp.FindStringSubmatch."""
        found = self._compiled.search(text)
        return GoMatch((found.group(0), *found.groups())) if found is not None else None

    def expand(self, template: str, match: GoMatch) -> str:
        """Fill `$1`, `${1}`, `$name` and `$$`. Upstream: Regexp.Expand.

        A name is as long as it can be, so `$1x` means the group named "1x"; a group that does not exist or took no
        part is empty; any other `$` stays.
        """

        def fill(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name is None:
                return "$"
            index = self._index(name)
            return (match[index] or "") if index is not None else ""

        return _EXPANSION.sub(fill, template)

    def unknown_groups(self, template: str) -> list[str]:
        """The groups that a template of `expand` names and the pattern does not have."""
        names = [found[1] or found[2] for found in _EXPANSION.finditer(template)]
        return [name for name in names if name is not None and self._index(name) is None]

    def _index(self, name: str) -> int | None:
        index = int(name[:_DIGITS]) if name.isdecimal() else self._compiled.groupindex.get(name)
        return index if index is not None and index <= self.groups else None


def _message(error: re2.error) -> str:
    message = error.args[0]
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
