"""PromQL: the syntax tree of a query, what it does with labels, and the restriction to one label value.

literals   strings, the tokens around them, durations, and regular expressions of names
tree       parses a query
labels     the labels that a result can have, and by which a query can be coalesced
restrict   adds a label matcher to every selector of a query
"""

from __future__ import annotations

from adapter.promql.labels import Labels, can_be_nan, groups_alike, result_labels, separable_labels
from adapter.promql.literals import PromqlError, alternation, any_of, is_plain_name, label_text
from adapter.promql.restrict import duration_text, restrict_query, restrict_selector
from adapter.promql.tree import as_vector, bare, is_scalar, matcher_sign, matchers, parse, selectors, walk

__all__ = [
    "Labels",
    "PromqlError",
    "alternation",
    "any_of",
    "as_vector",
    "bare",
    "can_be_nan",
    "duration_text",
    "groups_alike",
    "is_plain_name",
    "is_scalar",
    "label_text",
    "matcher_sign",
    "matchers",
    "parse",
    "restrict_query",
    "restrict_selector",
    "result_labels",
    "selectors",
    "separable_labels",
    "walk",
]
