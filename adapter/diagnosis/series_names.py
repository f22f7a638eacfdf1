"""The names of series that a seriesQuery can find, as far as its text shows.

Prometheus anchors `=~` at both ends. Whether two regular expressions have a match in common is not decided in general:
the prefixes and suffixes that they require are compared, which is enough to find typing errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from promql_parser import VectorSelector

from adapter.promql import PromqlError, matcher_sign, matchers, parse
from adapter.rules.goregex import GoRegex, GoRegexError

# A list of names in one group, or none: ^(a|b)_total$
_FINITE = re.compile(r"\^?([\w:]*)(?:\((?:\?:)?([\w:|]*)\)([\w:]*))?\$?", re.ASCII)
_NAMES = re.compile(r"\^?[\w:]+(?:\|[\w:]+)*\$?", re.ASCII)
_FLAGS = re.compile(r"\(\?[a-zA-Z-]")
_LITERAL_START = re.compile(r"[\w:]*", re.ASCII)
_LITERAL_END = re.compile(r"[\w:]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """The known names of series.

    Attributes:
        names: all of them, if the text lists them; else None.
        prefix: what every name begins with.
        suffix: what every name ends with.
    """

    names: tuple[str, ...] | None = None
    prefix: str = ""
    suffix: str = ""
    _patterns: tuple[tuple[GoRegex, bool], ...] = ()

    @classmethod
    def of(cls, series_query: str) -> SeriesNames:
        """Parse a selector. Nothing is known of the names of one that cannot be parsed."""
        try:
            tree = parse(series_query)
        except PromqlError:
            return cls()
        if not isinstance(tree, VectorSelector):
            return cls()
        names: tuple[str, ...] | None = None
        prefix = suffix = ""
        patterns = []
        for matcher in matchers(tree):
            sign, text = matcher_sign(matcher), matcher.value
            if matcher.name != "__name__":
                continue
            if sign == "=":
                names = (text,)
                continue
            if sign == "=~":
                names = names if names is not None else _listed(text)
                prefix, suffix = max(prefix, _prefix(text), key=len), max(suffix, _suffix(text), key=len)
            pattern = re.escape(text) if sign == "!=" else text
            try:
                patterns.append((GoRegex(f"^(?:{pattern})$"), sign == "=~"))
            except GoRegexError:
                return cls()
        conditions = cls(None, prefix, suffix, tuple(patterns))
        possible = None if names is None else tuple(filter(conditions.can_be, names))
        return cls(possible, prefix, suffix, tuple(patterns))

    def can_be(self, name: str) -> bool:
        """Return whether the selector can find a series of this name."""
        if self.names is not None and name not in self.names:
            return False
        return all(pattern.matches(name) == wanted for pattern, wanted in self._patterns)

    def can_match(self, regex: GoRegex) -> bool:
        """Return whether the expression can match one of the names; True if that is not known."""
        if self.names is not None:
            return any(regex.matches(name) for name in self.names)
        prefix = _prefix(regex.pattern) if regex.pattern.startswith("^") else ""
        suffix = _suffix(regex.pattern) if regex.pattern.endswith("$") else ""
        return _agree(prefix, self.prefix) and _agree(suffix[::-1], self.suffix[::-1])


def _agree(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _listed(pattern: str) -> tuple[str, ...] | None:
    """Return the names that a pattern lists, if it is no more than a list."""
    if _NAMES.fullmatch(pattern) and not ("|" in pattern and ("^" in pattern or "$" in pattern)):
        return tuple(pattern.strip("^$").split("|"))
    found = _FINITE.fullmatch(pattern)
    if found is None or found[2] is None:
        return None
    return tuple(f"{found[1]}{middle}{found[3]}" for middle in found[2].split("|"))


def _has_alternatives(pattern: str) -> bool:
    """Return whether there is a `|` outside of parentheses."""
    depth = 0
    for character in re.sub(r"\\.", "", pattern):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and depth == 0:
            return True
    return False


def _prefix(pattern: str) -> str:
    """Return the literal text that every match of an anchored pattern begins with."""
    text = pattern.removeprefix("^")
    found = _LITERAL_START.match(text)
    if found is None or _has_alternatives(text) or _FLAGS.search(pattern):
        return ""
    repeated = text[found.end() : found.end() + 1] in ("*", "?", "{")
    return found[0][:-1] if repeated else found[0]


def _suffix(pattern: str) -> str:
    """Return the literal text that every match of an anchored pattern ends with."""
    text = pattern.removesuffix("$")
    found = _LITERAL_END.search(text)
    if found is None or _has_alternatives(text) or _FLAGS.search(pattern):
        return ""
    # What follows a backslash is a class or a part of a number, and not literal.
    return "" if text[: found.start()].endswith("\\") else found[0]
