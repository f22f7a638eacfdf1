"""Describe the differences between a recorded result and ours."""

from collections.abc import Mapping, Sequence
from typing import Any

_MAX_LINES = 6


def difference(expected: Any, actual: Any) -> str | None:
    """Return the paths at which two JSON values differ, one per line, or None if they are equal.

    As in JSON, 1 and 1.0 are equal and true is not 1. Integers are compared exactly.
    """
    found = list(_differences(expected, actual, ""))
    if not found:
        return None
    more = len(found) - _MAX_LINES
    return "\n".join(found[:_MAX_LINES] + ([f"... and {more} more"] if more > 0 else []))


def _differences(expected: Any, actual: Any, path: str) -> Sequence[str]:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return [
            line
            for key in dict.fromkeys([*expected, *actual])
            for line in _member_differences(expected, actual, key, path)
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [
            line
            for index, (wanted, got) in enumerate(zip(expected, actual, strict=True))
            for line in _differences(wanted, got, f"{path}[{index}]")
        ]
    if isinstance(expected, bool) is isinstance(actual, bool) and expected == actual:
        return []
    return [f"{path or 'result'}: expected {expected!r}, got {actual!r}"]


def _member_differences(expected: Mapping[str, Any], actual: Mapping[str, Any], key: str, path: str) -> Sequence[str]:
    inner = f"{path}.{key}" if path else key
    if key not in actual:
        return [f"{inner}: expected {expected[key]!r}, got nothing"]
    if key not in expected:
        return [f"{inner}: expected nothing, got {actual[key]!r}"]
    return _differences(expected[key], actual[key], inner)
