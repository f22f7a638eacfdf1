"""Which names of series a seriesQuery can find, as far as its text says without asking Prometheus.

Prometheus matches `=~` from the first letter to the last. Whether an arbitrary pair of regular expressions has a match
in common is not worked out; what the two must begin and end with is compared, which is enough for slips of the pen.
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
_PLAIN_START = re.compile(r"[\w:]*", re.ASCII)
_PLAIN_END = re.compile(r"[\w:]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """What is known of the names.

    Attributes:
        names: all of them, where the text lists them; else None.
        begins: what every name begins with.
        ends: what every name ends with.
    """

    names: tuple[str, ...] | None = None
    begins: str = ""
    ends: str = ""
    _patterns: tuple[tuple[GoRegex, bool], ...] = ()

    @classmethod
    def of(cls, series_query: str) -> SeriesNames:
        """Read a selector. One that cannot be read says nothing; Prometheus says what is wrong with it."""
        try:
            tree = parse(series_query)
        except PromqlError:
            return cls()
        if not isinstance(tree, VectorSelector):
            return cls()
        return cls._of_terms([(matcher_sign(one), one.value) for one in matchers(tree) if one.name == "__name__"])

    @classmethod
    def _of_terms(cls, terms: list[tuple[str, str]]) -> SeriesNames:
        names: tuple[str, ...] | None = None
        begins = ends = ""
        patterns = []
        for operator, text in terms:
            if operator == "=":
                names = (text,)
                continue
            if operator == "=~":
                names = names if names is not None else _listed(text)
                begins, ends = max(begins, _begins(text), key=len), max(ends, _ends(text), key=len)
            pattern = re.escape(text) if operator == "!=" else text
            try:
                patterns.append((GoRegex(f"^(?:{pattern})$"), operator == "=~"))
            except GoRegexError:
                return cls()
        known = cls(None, begins, ends, tuple(patterns))
        return cls(None if names is None else tuple(filter(known.can_be, names)), begins, ends, tuple(patterns))

    def can_be(self, name: str) -> bool:
        """Tell whether a series of this name could be found."""
        if self.names is not None and name not in self.names:
            return False
        return all(pattern.matches(name) == wanted for pattern, wanted in self._patterns)

    def can_match(self, regex: GoRegex) -> bool:
        """Tell whether the expression could find something in one of the names."""
        if self.names is not None:
            return any(regex.matches(name) for name in self.names)
        starts = _begins(regex.pattern) if regex.pattern.startswith("^") else ""
        stops = _ends(regex.pattern) if regex.pattern.endswith("$") else ""
        return _agree(starts, self.begins) and _agree(stops[::-1], self.ends[::-1])


def _agree(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _listed(pattern: str) -> tuple[str, ...] | None:
    if _NAMES.fullmatch(pattern) and not ("|" in pattern and ("^" in pattern or "$" in pattern)):
        return tuple(pattern.strip("^$").split("|"))
    found = _FINITE.fullmatch(pattern)
    if found is None or found[2] is None:
        return None
    return tuple(f"{found[1]}{middle}{found[3]}" for middle in found[2].split("|"))


def _has_alternatives(pattern: str) -> bool:
    """Whether there is a `|` outside of parentheses."""
    depth = 0
    for sign in re.sub(r"\\.", "", pattern):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "|" and depth == 0:
            return True
    return False


def _begins(pattern: str) -> str:
    """The letters that every match begins with, of an anchored expression."""
    text = pattern.removeprefix("^")
    found = _PLAIN_START.match(text)
    if found is None or _has_alternatives(text) or _FLAGS.search(pattern):
        return ""
    repeated = text[found.end() : found.end() + 1] in ("*", "?", "{")
    return found[0][:-1] if repeated else found[0]


def _ends(pattern: str) -> str:
    """The letters that every match ends with, of an anchored expression."""
    text = pattern.removesuffix("$")
    found = _PLAIN_END.search(text)
    if found is None or _has_alternatives(text):
        return ""
    # What follows a backslash is no letter but a class, or part of a number.
    return "" if text[: found.start()].endswith("\\") or _FLAGS.search(pattern) else found[0]
