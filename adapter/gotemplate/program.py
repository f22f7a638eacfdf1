"""Compiled templates: closures that take a frame. An expression returns a value, a statement writes text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from adapter.gotemplate import functions
from adapter.gotemplate.functions import TemplateError, Value

# What one rendering may read and write, in characters. Without a limit, a template of a few lines could double a text
# until memory ends, or nest loops that take hours. Lists of ten thousand names have less than a million.
_MAX_CHARACTERS = 32 * 1024 * 1024
# What an iteration of a loop counts.
_ITERATION = 50_000


@dataclass(slots=True)
class Frame:
    """The state of one rendering: the data, the dot, the variables by slot, the text so far, and the rest to use."""

    data: Value
    dot: Value
    variables: list[Value]
    out: list[str] = field(default_factory=list)
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


@dataclass(frozen=True, slots=True)
class Program:
    """A parsed template.

    Attributes:
        examined: the fields that are not only inserted but compared, measured or passed to functions.
    """

    statement: Statement
    slots: int
    examined: frozenset[str]

    def render(self, data: Mapping[str, Value]) -> str:
        """Return the text for this data.

        Raises:
            TemplateError: the template does not fit the data.
        """
        frame = Frame(data, data, [None] * self.slots)
        self.statement(frame)
        frame.use(sum(map(len, frame.out)))
        return "".join(frame.out)


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
        elements, outer = functions.elements(over(frame)), frame.dot
        for pair in elements:
            frame.use(_ITERATION)
            for slot, value in zip(slots, pair[2 - len(slots) :], strict=True):
                frame.variables[slot] = value
            frame.dot = pair[1]
            body(frame)
        frame.dot = outer
        if not elements:
            otherwise(frame)

    return run
