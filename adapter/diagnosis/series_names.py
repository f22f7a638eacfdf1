"""The names of series that a seriesQuery can find, as far as its text lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from promql_parser import VectorSelector

from adapter.promql import PromqlError, matcher_sign, matchers, parse
from adapter.rules.goregex import GoRegex, GoRegexError

# A list of names, or names with a list in one group: ^(a|b)_total$
_LIST = re.compile(r"[\w:]+(?:\|[\w:]+)*|\^[\w:]+|[\w:]+\$|\^[\w:]+\$", re.ASCII)
_GROUP = re.compile(r"\^?([\w:]*)\((?:\?:)?([\w:|]*)\)([\w:]*)\$?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """The names of series that a seriesQuery can find: all of them, or None if the text does not list them."""

    names: tuple[str, ...] | None = None
    _patterns: tuple[tuple[GoRegex, bool], ...] = ()

    @classmethod
    def of(cls, series_query: str) -> SeriesNames:
        """Parse a selector. If it cannot be parsed, the names are unknown."""
        try:
            tree = parse(series_query)
            if not isinstance(tree, VectorSelector):
                return cls()
            names: tuple[str, ...] | None = None
            patterns = []
            for sign, text in [(matcher_sign(one), one.value) for one in matchers(tree) if one.name == "__name__"]:
                if sign == "=":
                    names = (text,)
                elif sign == "=~":
                    names = _listed(text) if names is None else names
                pattern = text if sign in ("=~", "!~") else re.escape(text)
                patterns.append((GoRegex(f"^(?:{pattern})$"), sign in ("=", "=~")))
        except (PromqlError, GoRegexError):
            return cls()
        known = cls(None, tuple(patterns))
        return known if names is None else cls(tuple(filter(known.can_be, names)), known._patterns)

    def can_be(self, name: str) -> bool:
        """Return whether the selector can find a series of this name."""
        if self.names is not None and name not in self.names:
            return False
        return all(pattern.matches(name) == wanted for pattern, wanted in self._patterns)


def _listed(pattern: str) -> tuple[str, ...] | None:
    """Return the names that a pattern lists; None if it is more than a list."""
    if _LIST.fullmatch(pattern):
        return tuple(pattern.strip("^$").split("|"))
    found = _GROUP.fullmatch(pattern)
    return tuple(f"{found[1]}{middle}{found[3]}" for middle in found[2].split("|")) if found is not None else None
