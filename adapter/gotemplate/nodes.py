"""The tree of a template. Pipelines are gone from it: `a | f b` is the call `f b a`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Value = str | bool | int | float | None | Sequence[str] | Mapping[str, "Value"]


class TemplateError(ValueError):
    """A template is wrong, or does not fit its data."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value


@dataclass(frozen=True, slots=True)
class Dot:
    """`.`: the data, or what the innermost range or with has put in its place."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name`; `$` alone is the data."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """`.Name` of something."""

    of: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in function with its arguments."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Literal | Dot | Variable | Field | Call


@dataclass(frozen=True, slots=True)
class Text:
    """What stands between actions."""

    text: str


@dataclass(frozen=True, slots=True)
class Print:
    """An expression whose value is written."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class Let:
    """`$name := expression`, or `=` when it `declares` nothing new."""

    name: str
    expression: Expression
    declares: bool


@dataclass(frozen=True, slots=True)
class If:
    """`if`; an `else if` is an If alone in `otherwise`. `let` names the condition, when it has a name."""

    let: str | None
    condition: Expression
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class With:
    """`with`: like if, and the value is the dot of the body."""

    let: str | None
    value: Expression
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """`range`: the body for every element; `key` and `element` are the names of the variables, when there are any."""

    key: str | None
    element: str | None
    over: Expression
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """`break` out of the innermost range."""


@dataclass(frozen=True, slots=True)
class Continue:
    """`continue` with the next element of the innermost range."""


Node = Text | Print | Let | If | With | Range | Break | Continue
