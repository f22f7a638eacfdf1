"""Whether a query can be asked for its objects separately: in parts, or for more of them than are wanted.

`sum(rate(x{pod=~"a|b"}[1m])) by (pod)` says the same of pod a whether or not b is asked for. A quotient with
`scalar(sum(x))` does not. What is known to be harmless is accepted, and everything else refused: every selector has
the object's matcher, every aggregation keeps the object's label, no operator or function looks across labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["groups_alike", "is_separable"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    | (?P<number>[0-9][0-9A-Za-z_.]*|\.[0-9]+)
    | (?P<word>[A-Za-z_:][A-Za-z0-9_:]*)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "stddev", "stdvar", "group", "quantile"})
# What histogram_quantile makes one of, so that its result has no such label any more.
_BUCKETS = "le"
_WORDS = frozenset({"and", "or", "unless", "offset", "bool", "atan2", "inf", "nan"})
_FUNCTIONS = frozenset(
    {
        *("rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"),
        *("avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "quantile_over_time"),
        *("stddev_over_time", "stdvar_over_time", "last_over_time", "present_over_time"),
        *("abs", "ceil", "floor", "round", "clamp", "clamp_min", "clamp_max", "exp", "ln", "log2", "log10", "sqrt"),
        *("sgn", "histogram_quantile", "timestamp", "time"),
    }
)


def is_separable(query: str, *, label: str, name: str) -> bool:
    """Tell whether what a query says of an object depends on that object's series alone.

    Args:
        query: PromQL for one object, whose selectors have `label="name"`.
        label: the label with the objects' names.
        name: the object's name, of letters.
    """
    tokens = [found[0] for found in _TOKEN.finditer(query) if found.lastgroup != "space"]
    matcher = [label, "=", f'"{name}"']
    position = 0
    selectors = 0
    while position < len(tokens):
        token, following = tokens[position], tokens[position + 1 : position + 2]
        word = token.lower()
        if word == "{":
            end = _end(tokens, position, "{", "}")
            if not _contains(tokens[position:end], matcher):
                return False
            selectors += 1
            position = end
        elif word == "[":
            position = _end(tokens, position, "[", "]")
        elif not _is_word(token):
            position += 1
        elif word == "histogram_quantile" and label == _BUCKETS:
            return False
        elif word in _AGGREGATIONS and following in (["("], ["by"]):
            grouping = _grouping(tokens, position + 1)
            if grouping is None or label not in grouping:
                return False
            position += 1
        elif word == "by":
            position = _end(tokens, position + 1, "(", ")")
        elif following == ["{"] or word in _WORDS or (word in _FUNCTIONS and following == ["("]):
            position += 1
        else:
            return False
    return selectors > 0


def groups_alike(query: str, *, label: str) -> bool:
    """Tell whether a query says the same when each of its aggregations is also by another label, of the matchers.

    Operators match series that have all labels in common, so both sides must gain the label, or both have had it:
    either no selector is aggregated, or each by itself, and none by that label already.

    Args:
        query: PromQL, as it is without the label.
        label: the label.
    """
    tokens = [found[0] for found in _TOKEN.finditer(query) if found.lastgroup != "space"]
    open_now: list[_Inside | None] = []  # what is in each open parenthesis, if it is an aggregation's
    aggregations: list[_Inside] = []
    alone = position = selectors = 0
    begins = False
    while position < len(tokens):
        sign = tokens[position]
        innermost = next((inside for inside in reversed(open_now) if inside is not None), None)
        if sign.lower() in _AGGREGATIONS and tokens[position + 1 : position + 2] in (["("], ["by"]):
            begins = True
        elif sign.lower() == "by":
            end = _end(tokens, position + 1, "(", ")")
            if label in tokens[position + 1 : end]:
                return False
            position = end
            continue
        elif sign == "(":
            if begins:
                aggregations.append(_Inside())
                if innermost is not None:
                    innermost.aggregations += 1
            open_now.append(aggregations[-1] if begins else None)
            begins = False
        elif sign == ")" and open_now:
            open_now.pop()
        elif sign == "{":
            selectors += 1
            if innermost is None:
                alone += 1
            else:
                innermost.selectors += 1
            position = _end(tokens, position, "{", "}")
            continue
        position += 1
    by_itself = all(one.selectors <= (one.aggregations == 0) for one in aggregations)
    return selectors <= 1 or alone == selectors or (alone == 0 and by_itself)


@dataclass(slots=True)
class _Inside:
    """How many selectors and aggregations there are directly in an aggregation."""

    selectors: int = 0
    aggregations: int = 0


def _is_word(token: str) -> bool:
    return token[0].isalpha() or token[0] in "_:"


def _grouping(tokens: list[str], position: int) -> list[str] | None:
    """The labels of an aggregation's `by`, which stands before or after its parentheses."""
    if tokens[position] == "(":
        position = _end(tokens, position, "(", ")")
    if position >= len(tokens) or tokens[position].lower() != "by":
        return None
    return tokens[position + 1 : _end(tokens, position + 1, "(", ")")]


def _end(tokens: list[str], position: int, opening: str, closing: str) -> int:
    """The position after the bracket that closes the one here."""
    depth = 0
    while position < len(tokens):
        depth += (tokens[position] == opening) - (tokens[position] == closing)
        position += 1
        if depth <= 0:
            break
    return position


def _contains(tokens: list[str], wanted: list[str]) -> bool:
    return any(tokens[start : start + len(wanted)] == wanted for start in range(len(tokens)))
