"""What runs when a template is rendered: values, functions, and closures that take a frame; the parser nests these.

An expression returns a value, a statement writes text. `and` and `or` do not evaluate all their arguments, so they are
no functions.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube.values.fields import quote

# What one rendering may read and write, in characters. Without a limit, a template of a few lines could double a text
# until memory ends, or nest loops that take hours. Lists of ten thousand names have less than a million.
_MAX_CHARACTERS = 32 * 1024 * 1024
# What an iteration of a loop counts.
_ITERATION = 50_000


Value = str | bool | int | None | Sequence[str] | Mapping[str, "Value"]


class TemplateError(ValueError):
    """A template is wrong, or does not fit its data."""


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A function and the number of arguments that it takes; `most` is None for any number."""

    call: Callable[..., Value]
    fewest: int
    most: int | None


def to_text(value: Value) -> str:
    """Return a value as Go's %v writes it."""
    match value:
        case str():
            return value
        case None:
            return "<no value>"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return f"map[{' '.join(f'{key}:{to_text(value[key])}' for key in sorted(value))}]"
        case Sequence():
            return f"[{' '.join(value)}]"
        case _:
            return str(value)


def kind(value: Value) -> str:
    """Return the type of a value, for messages."""
    match value:
        case str():
            return "a string"
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case Mapping():
            return "a map"
        case _:
            return "a list"


def field(value: Value, name: str) -> Value:
    """Return `.Name` of a value.

    Raises:
        TemplateError: it is not a map.
    """
    if not isinstance(value, (dict, Mapping)):  # dict first: it is checked much faster
        raise TemplateError(f"cannot evaluate field {name} in {kind(value)}")
    return value.get(name)


def elements(value: Value) -> list[tuple[Value, Value]]:
    """Return the pairs that `range` iterates over: index and element of a list, sorted key and value of a map.

    Raises:
        TemplateError: it is neither.
    """
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(enumerate(value))
    if value is None:
        return []
    raise TemplateError(f"range cannot iterate over {kind(value)}")


def _eq(first: Value, *others: Value) -> bool:
    for other in others:
        basic = all(isinstance(value, (str, int, type(None))) for value in (first, other))
        if not basic or (kind(first) != kind(other) and first is not None and other is not None):
            raise TemplateError(f"cannot compare {kind(first)} with {kind(other)}")
    return first in others


def _ordered(compare: Callable[[Any, Any], bool]) -> Function:
    def ordered(left: Value, right: Value) -> bool:
        if kind(left) != kind(right) or kind(left) not in ("a string", "an integer"):
            raise TemplateError(f"cannot order {kind(left)} and {kind(right)}")
        return compare(left, right)

    return Function(ordered, 2, 2)


def _index(item: Value, *indices: Value) -> Value:
    for index in indices:
        if isinstance(item, Mapping):
            if not isinstance(index, str):
                raise TemplateError(f"cannot index a map with {kind(index)}")
            item = item.get(index, "")
        elif isinstance(item, Sequence):
            at = _integer(index)
            parts: Sequence[Value] = item.encode() if isinstance(item, str) else item
            if not 0 <= at < len(parts):
                raise TemplateError(f"index {at} is out of range: there are {len(parts)}")
            item = parts[at]
        else:
            raise TemplateError(f"cannot index {kind(item)}")
    return item


def _integer(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TemplateError(f"expected an integer, got {kind(value)}")
    return value


def _len(item: Value) -> int:
    if isinstance(item, (Mapping, Sequence)):
        return len(item.encode() if isinstance(item, str) else item)
    raise TemplateError(f"{kind(item)} has no length")


_VERB = re.compile(r"%([^a-zA-Z%]*[a-zA-Z%]?)")


def check_format(text: str) -> None:
    """Raise TemplateError for a printf format with a verb that is not supported."""
    for found in _VERB.finditer(text):
        if found[1] not in ("s", "v", "d", "q"):
            raise TemplateError(f"{found[0]} in printf is not supported; there are %s, %v, %d and %q")


def _printf(text: Value, *values: Value) -> str:
    if not isinstance(text, str):
        raise TemplateError(f"printf needs a format, not {kind(text)}")
    check_format(text)
    if len(_VERB.findall(text)) != len(values):
        raise TemplateError(f"printf {quote(text)}: {len(values)} arguments do not fit")
    left = iter(values)
    forms = {"d": lambda value: str(_integer(value)), "q": lambda value: quote(to_text(value))}
    return _VERB.sub(lambda found: forms.get(found[1], to_text)(next(left)), text)


FUNCTIONS: Mapping[str, Function] = {
    "not": Function(operator.not_, 1, 1),
    "eq": Function(_eq, 2, None),
    "ne": Function(lambda left, right: not _eq(left, right), 2, 2),
    "lt": _ordered(operator.lt),
    "le": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "ge": _ordered(operator.ge),
    "index": Function(_index, 1, None),
    "len": Function(_len, 1, 1),
    "printf": Function(_printf, 1, None),
}


@dataclasses.dataclass(slots=True)
class Frame:
    """The state of one rendering: the data, the dot, the variables by slot, the text so far, and the rest to use."""

    data: Value
    dot: Value
    variables: list[Value]
    out: list[str] = dataclasses.field(default_factory=list)
    left: int = _MAX_CHARACTERS

    def use(self, characters: int) -> None:
        """Count characters that are read or written.

        Raises:
            TemplateError: they are too many.
        """
        self.left -= characters
        if self.left < 0:
            raise TemplateError("it makes too long a text, or repeats too often")


Expression = Callable[[Frame], Value]
Statement = Callable[[Frame], None]


class Program:
    """A statement for the whole text, and the number of its variables."""

    __slots__ = ("_slots", "_statement")

    def __init__(self, statement: Statement, slots: int) -> None:
        self._statement = statement
        self._slots = slots

    def render(self, data: Mapping[str, Value]) -> str:
        """Return the text for this data.

        Raises:
            TemplateError: an error that depends on the data, such as an index out of range.
        """
        frame = Frame(data, data, [None] * self._slots)
        self._statement(frame)
        frame.use(sum(map(len, frame.out)))
        return "".join(frame.out)


def constant(value: Value) -> Expression:
    """Return an expression for a value of the template itself."""
    return lambda _: value


def field_of(of: Expression, name: str) -> Expression:
    """Return an expression for `.Name` of another one."""
    return lambda frame: field(of(frame), name)


def text(written: str) -> Statement:
    """Return a statement that writes a text of the template itself."""
    return lambda frame: frame.out.append(written)


def write(expression: Expression) -> Statement:
    """Return a statement that writes the value of an expression."""
    return lambda frame: frame.out.append(to_text(expression(frame)))


def call(function: Callable[..., Value], arguments: Sequence[Expression]) -> Expression:
    """Return an expression that calls a function."""

    def evaluate(frame: Frame) -> Value:
        values = [argument(frame) for argument in arguments]
        frame.use(sum(len(value) for value in values if isinstance(value, str)))
        return function(*values)

    return evaluate


def logic(arguments: Sequence[Expression], *, until: bool) -> Expression:
    """Return an expression for `or` and `and`: the first argument that is `until`, otherwise the last."""

    def evaluate(frame: Frame) -> Value:
        value: Value = None
        for argument in arguments:
            value = argument(frame)
            if bool(value) == until:
                break
        return value

    return evaluate


def sequence(statements: Sequence[Statement]) -> Statement:
    """Return a statement that runs others in order."""

    def run(frame: Frame) -> None:
        for statement in statements:
            statement(frame)

    return run


def branch(
    slots: Sequence[int], condition: Expression, body: Statement, otherwise: Statement, *, sets_dot: bool
) -> Statement:
    """Return a statement for `if`, or with `sets_dot` for `with`; the variables get the value of the condition."""

    def run(frame: Frame) -> None:
        value, outer = condition(frame), frame.dot
        for slot in slots:
            frame.variables[slot] = value
        if value:
            frame.dot = value if sets_dot else outer
            body(frame)
            frame.dot = outer
        else:
            otherwise(frame)

    return run


def loop(slots: Sequence[int], over: Expression, body: Statement, otherwise: Statement) -> Statement:
    """Return a statement for `range`; the variables are the element, or its key and the element."""

    def run(frame: Frame) -> None:
        pairs, outer = elements(over(frame)), frame.dot
        for pair in pairs:
            frame.use(_ITERATION)
            for slot, value in zip(slots, pair[2 - len(slots) :], strict=True):
                frame.variables[slot] = value
            frame.dot = pair[1]
            body(frame)
        frame.dot = outer
        if not pairs:
            otherwise(frame)

    return run
