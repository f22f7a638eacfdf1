"""Go's regular expressions, by RE2 itself.

Rules files are written for prometheus-adapter, which reads patterns with Go's regexp package. That and RE2 share their
syntax, and match in linear time. RE2 words its errors differently and lacks four of Go's Unicode classes
(docs/migrating.md).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # errors are raised, not logged
# A compiled pattern takes up to this many bytes. With RE2's default of 8 MiB, `\pL{200}` takes 0.1 s to compile.
_OPTIONS.max_mem = 1024 * 1024
_COMPILED = 32
_GROUP = re.compile(r"\$(?:\$|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})", re.ASCII)


class GoRegexError(ValueError):
    """A pattern that Go would refuse."""


class GoRegex:
    """A pattern. Of all patterns, the last ones used stay compiled, since rules of tenants can have thousands.

    Attributes:
        pattern: the source.
        groups: the number of capturing groups.
    """

    __slots__ = ("groups", "pattern")

    def __init__(self, pattern: str) -> None:
        """Check a pattern. Upstream: regexp.Compile.

        Raises:
            GoRegexError: with RE2's words for what is wrong.
        """
        if r"\C" in pattern.replace(r"\\", ""):
            raise GoRegexError(r"invalid escape sequence: \C")  # a single byte: RE2 has it, Go does not
        self.pattern = pattern
        try:
            self.groups: int = self._compiled.groups
        except re2.error as error:
            message = error.args[0]
            raise GoRegexError(message.decode(errors="replace") if isinstance(message, bytes) else message) from error

    @property
    def _compiled(self) -> Any:
        return _compile(self.pattern)

    def __eq__(self, other: object) -> bool:
        """Compare the patterns."""
        return isinstance(other, GoRegex) and self.pattern == other.pattern

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches anywhere in the text. Upstream: Regexp.MatchString."""
        return self._compiled.search(text) is not None

    def fullmatch(self, text: str) -> Mapping[str, str] | None:
        """Return the named groups if the pattern matches the whole text, else None."""
        match = self._compiled.fullmatch(text)
        return None if match is None else match.groupdict(default="")

    def expand(self, template: str, text: str) -> str | None:
        """Fill `$1`, `${1}`, `$name` and `$$` from the leftmost match; None without one. Upstream: Regexp.Expand.

        A name is as long as possible, so `$1x` means the group named "1x". A group that does not exist or did not match
        is empty. Any other `$` stays.
        """
        match = self._compiled.search(text)
        if match is None:
            return None

        def fill(found: re.Match[str]) -> str:
            if found[0] == "$$":
                return "$"
            index = self._index(found[1] or found[2])
            return (match.group(index) or "") if index is not None else ""

        return _GROUP.sub(fill, template)

    def unknown_groups(self, template: str) -> list[str]:
        """Return the groups that a template of `expand` names and the pattern does not have."""
        names = [found[1] or found[2] for found in _GROUP.finditer(template) if found[0] != "$$"]
        return [name for name in names if self._index(name) is None]

    def _index(self, name: str) -> int | None:
        if not name.isdecimal():
            index: int | None = self._compiled.groupindex.get(name)
            return index
        return int(name) if len(name) < 10 and int(name) <= self.groups else None


@functools.lru_cache(maxsize=_COMPILED)
def _compile(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    finally:
        re2.purge()  # its own cache, of 128
