"""What is plainly wrong with PromQL, seen without parsing it: brackets, quotes, and selectors that select everything.

Whatever else is wrong, Prometheus says.
"""

from __future__ import annotations

import re

__all__ = ["selector_problem", "unbalanced"]

_OPENING = {")": "(", "]": "[", "}": "{"}
# A string with its quotes, a comment, or one sign that matters.
_TOKEN = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)|#[^\n]*|([][(){}"'`])""")
_SELECTOR = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)?\s*(?:\{(.*)\})?\s*", re.DOTALL)
# One condition in braces; a name alone, in quotes, is the metric's.
_MATCHER = re.compile(
    r"""\s*(?:(?:[A-Za-z_]\w*|"(?:[^"\\]|\\.)+")\s*(=~|!~|!=|=)\s*)?"""
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*(?:,|$)""",
    re.DOTALL,
)
# Expressions that match the empty text, as people write them.
_ANYTHING = frozenset({"", ".*", "^.*$", "^.*", ".*$", "(.*)", ".?"})


def unbalanced(query: str) -> str | None:
    """The bracket or quote that has no counterpart, in words; None where all have."""
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(query):
        sign = token[2]
        if sign is None:
            continue
        if sign in "([{":
            open_brackets.append(sign)
        elif sign not in _OPENING:
            return f"the quote {sign} is not closed"
        elif not open_brackets or open_brackets.pop() != _OPENING[sign]:
            return f"there is no {_OPENING[sign]} for a {sign}"
    return f"a {open_brackets[-1]} is not closed" if open_brackets else None


def selector_problem(selector: str) -> str | None:
    """Why Prometheus would refuse a selector of series, in words; None where nothing speaks against it."""
    problem = unbalanced(selector)
    if problem is not None:
        return problem
    found = _SELECTOR.fullmatch(selector)
    if found is None:
        return 'it is no selector: write it as name{label="value"}'
    text, position, narrows = found[2] or "", 0, bool(found[1])
    while text[position:].strip():
        matcher = _MATCHER.match(text, position)
        if matcher is None:
            return f'there is no condition in {text[position:].strip()!r}; write it as label="value"'
        position = matcher.end()
        narrows = narrows or _narrows(matcher[1] or "=", matcher[2][1:-1])
    return None if narrows else "it selects every series there is, which Prometheus refuses; name the metric"


def _narrows(operator: str, value: str) -> bool:
    """Whether a series without the label would be left out."""
    matches_nothing = value in _ANYTHING if operator in ("=~", "!~") else value == ""
    return matches_nothing == (operator in ("!=", "!~"))
