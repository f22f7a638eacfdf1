"""The built-in functions of Go's templates, on the few kinds of values that rules have.

`and` and `or` are not here: they do not evaluate all their arguments, so `render` knows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adapter.gotemplate.nodes import TemplateError, Value
from kube.fields import quote

ARGUMENTS: Mapping[str, tuple[int, int | None]] = {
    "and": (1, None),
    "or": (1, None),
    "not": (1, 1),
    "eq": (2, None),
    "ne": (2, 2),
    "lt": (2, 2),
    "le": (2, 2),
    "gt": (2, 2),
    "ge": (2, 2),
    "index": (1, None),
    "slice": (1, 3),
    "len": (1, 1),
    "print": (0, None),
    "println": (0, None),
    "printf": (1, None),
}
"""Every function: the fewest and the most arguments that it takes, None for any number."""

_VERB = re.compile(r"%([-+# 0]*)(\d*)(?:\.(\d*))?(.?)", re.DOTALL)
_MAX_WIDTH = 1000


def call(function: str, arguments: Sequence[Value]) -> Value:
    """Apply a function of ARGUMENTS, other than `and` and `or`, to values.

    Raises:
        TemplateError: Go would refuse these arguments.
    """
    return _FUNCTIONS[function](*arguments)


def is_true(value: Value) -> bool:
    """Tell whether `if` takes a value for true: everything but false, zero, nothing and what is empty."""
    return bool(value)


def to_text(value: Value) -> str:
    """How a value is written, as Go's %v does."""
    match value:
        case str():
            return value
        case None:
            return "<no value>"
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case Mapping():
            return f"map[{' '.join(f'{key}:{to_text(value[key])}' for key in sorted(value))}]"
        case Sequence():
            return f"[{' '.join(value)}]"
        case _:
            return str(value)


def kind(value: Value) -> str:
    """What a value is, for messages."""
    match value:
        case str():
            return "a string"
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a floating-point number"
        case Mapping():
            return "a map"
        case _:
            return "a list"


def check_format(text: str) -> None:
    """Refuse a printf format with a verb that is not known here."""
    for found in _VERB.finditer(text):
        if found[4] not in _VERBS and found[4] != "%":
            raise TemplateError(f"printf knows the verbs {', '.join(f'%{verb}' for verb in _VERBS)}, not {found[0]}")
        if any(len(number or "") > 4 or int(number or 0) > _MAX_WIDTH for number in (found[2], found[3])):
            raise TemplateError(f"{found[0]}: no wider than {_MAX_WIDTH} characters")


def _float_text(value: float) -> str:
    """Go's %v of a float64: the shortest decimal, with an exponent below 1e-4 and from 1e21."""
    shortest = repr(value)
    mantissa, _, exponent = shortest.partition("e")
    if exponent and -4 <= int(exponent) < 21:
        return f"{value:f}".rstrip("0").rstrip(".") if int(exponent) < 0 else f"{value:.0f}"
    return f"{mantissa}e{exponent}" if exponent else mantissa.removesuffix(".0")


def _not(value: Value) -> Value:
    return not is_true(value)


def _same_kind(left: Value, right: Value) -> bool:
    return kind(left) == kind(right)


def _eq(first: Value, *others: Value) -> Value:
    for other in others:
        if isinstance(first, (Mapping, list, tuple)) or isinstance(other, (Mapping, list, tuple)):
            raise TemplateError(f"cannot compare {kind(first)} with {kind(other)}")
        if not _same_kind(first, other) and first is not None and other is not None:
            raise TemplateError(f"cannot compare {kind(first)} with {kind(other)}")
    return first in others


def _ne(left: Value, right: Value) -> Value:
    return not _eq(left, right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], Value]:
    def ordered(left: Value, right: Value) -> Value:
        if not _same_kind(left, right) or isinstance(left, bool) or not isinstance(left, (str, int, float)):
            raise TemplateError(f"cannot order {kind(left)} and {kind(right)}")
        return compare(left, right)

    return ordered


def _index(item: Value, *indices: Value) -> Value:
    for index in indices:
        if isinstance(item, Mapping):
            if not isinstance(index, str):
                raise TemplateError(f"cannot index a map with {kind(index)}")
            item = item.get(index, "")
        elif isinstance(item, Sequence):
            at = _whole_number(index)
            elements: Sequence[Value] = item.encode() if isinstance(item, str) else item
            if not 0 <= at < len(elements):
                raise TemplateError(f"index {at} is out of range: there are {len(elements)}")
            item = elements[at]
        else:
            raise TemplateError(f"cannot index {kind(item)}")
    return item


def _slice(item: Value, *bounds: Value) -> Value:
    if not isinstance(item, Sequence):
        raise TemplateError(f"cannot slice {kind(item)}")
    elements: bytes | Sequence[str] = item.encode() if isinstance(item, str) else item
    numbers = [_whole_number(bound) for bound in bounds]
    low, high = (*numbers, *(0, len(elements))[len(numbers) :])
    if not 0 <= low <= high <= len(elements):
        raise TemplateError(f"slice {low}:{high} is out of range: there are {len(elements)}")
    part = elements[low:high]
    return part.decode(errors="replace") if isinstance(part, bytes) else part


def _whole_number(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TemplateError(f"an index is an integer, not {kind(value)}")
    return value


def _len(item: Value) -> Value:
    if isinstance(item, str):
        return len(item.encode())
    if isinstance(item, (Mapping, Sequence)):
        return len(item)
    raise TemplateError(f"{kind(item)} has no length")


def _print(*values: Value) -> Value:
    out = ""
    for before, value in zip((None, *values), values, strict=False):
        # Go puts a space between two operands when neither is a string.
        spaced = out and not isinstance(value, str) and not isinstance(before, str)
        out += f" {to_text(value)}" if spaced else to_text(value)
    return out


def _println(*values: Value) -> Value:
    return " ".join(map(to_text, values)) + "\n"


def _printf(text: Value, *values: Value) -> Value:
    if not isinstance(text, str):
        raise TemplateError(f"printf needs a format, not {kind(text)}")
    check_format(text)
    left = list(values)

    def fill(found: re.Match[str]) -> str:
        flags, width, precision, verb = found.groups()
        if verb == "%":
            return "%"
        if not left:
            raise TemplateError(f"printf {quote(text)}: nothing is left for {found[0]}")
        plain = _VERBS[verb](left.pop(0), flags, precision)
        if not width:
            return plain
        if "-" in flags:
            return plain.ljust(int(width))
        return plain.zfill(int(width)) if "0" in flags else plain.rjust(int(width))

    filled = _VERB.sub(fill, text)
    if left:
        raise TemplateError(f"printf {quote(text)}: more arguments than verbs")
    return filled


def _any_verb(value: Value, _flags: str, _precision: str | None) -> str:
    return to_text(value)


def _string_verb(value: Value, _flags: str, precision: str | None) -> str:
    text = to_text(value)
    return text if precision is None else text[: int(precision or 0)]


def _quote_verb(value: Value, _flags: str, _precision: str | None) -> str:
    if not isinstance(value, str):
        raise TemplateError(f"%q needs a string, not {kind(value)}")
    return quote(value)


def _integer_verb(value: Value, flags: str, _precision: str | None) -> str:
    return f"{_whole_number(value):{'+' if '+' in flags else ''}d}"


def _float_verb(verb: str) -> Callable[[Value, str, str | None], str]:
    def write(value: Value, flags: str, precision: str | None) -> str:
        if not isinstance(value, float):
            raise TemplateError(f"%{verb} needs a floating-point number, not {kind(value)}")
        if verb == "g" and precision is None:
            return _float_text(value)
        return f"{value:{'+' if '+' in flags else ''}.{6 if precision is None else int(precision or 0)}{verb}}"

    return write


def _boolean_verb(value: Value, _flags: str, _precision: str | None) -> str:
    if not isinstance(value, bool):
        raise TemplateError(f"%t needs a boolean, not {kind(value)}")
    return to_text(value)


_VERBS: Mapping[str, Callable[[Value, str, str | None], str]] = {
    "v": _any_verb,
    "s": _string_verb,
    "q": _quote_verb,
    "d": _integer_verb,
    "f": _float_verb("f"),
    "g": _float_verb("g"),
    "t": _boolean_verb,
}
_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "not": _not,
    "eq": _eq,
    "ne": _ne,
    "lt": _ordered(lambda left, right: left < right),
    "le": _ordered(lambda left, right: left <= right),
    "gt": _ordered(lambda left, right: left > right),
    "ge": _ordered(lambda left, right: left >= right),
    "index": _index,
    "slice": _slice,
    "len": _len,
    "print": _print,
    "println": _println,
    "printf": _printf,
}
