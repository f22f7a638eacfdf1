"""A check of restricted queries that uses no parser."""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) \([^)]*\)")
_SELECTOR = re.compile(r"[\w:]*\{[^}]*\}")
_LONE_WORD = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?![\w:]| *\()")
_WORDS = {"and", "or", "unless", "atan2", "offset", "bool", "Inf", "NaN"}


def assert_restricted(query: str, *, matcher: str) -> None:
    """Check that each brace outside of strings is followed by a matcher, such as `a="b"`.

    A word without a brace is no selector, but a function, an operator, or a label in parentheses.
    """
    assert query.isascii()
    assert query.isprintable()
    syntax = _STRING.sub('""', query)
    braces = syntax.count("{")
    assert braces == syntax.count("{" + _STRING.sub('""', matcher)) == query.count("{" + matcher) == syntax.count("}")
    words = _LONE_WORD.findall(_SELECTOR.sub("0", _GROUPING.sub("", syntax)))
    assert set(words) <= _WORDS
