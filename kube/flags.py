"""Command-line flags that behave like those of Kubernetes' own programs, so that the same arguments do.

Go's flags differ from click's in three ways: a boolean may have a value (`--flag`, `--flag=false`), a list is one
flag with commas or several flags, and `-v=4` means what `--v=4` does. And a program may be given flags that concern a
machinery which it does not have; `ignored_options` accepts those and hides them from the help.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT_SETTINGS: dict[str, Any] = {"max_content_width": 120, "help_option_names": ["-h", "--help"]}

# As strconv.ParseBool.
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


class _Bool(click.ParamType[bool]):
    """A boolean, as Go reads it."""

    name = "bool"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Read the flag's text."""
        if isinstance(value, bool):
            return value
        if value not in _TRUE + _FALSE:
            self.fail(f"{value!r} is neither true nor false", param, ctx)
        return value in _TRUE


class _Verbosity(click.ParamType[int]):
    """A number of zero or more; the short flag brings its equals sign along."""

    name = "int"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the flag's text."""
        text = str(value).removeprefix("=")
        if not text.isascii() or not text.isdigit():
            self.fail(f"{text!r} is not a number of zero or more", param, ctx)
        return int(text)


class _Finite(click.ParamType[float]):
    """A number that is neither infinite nor "nan"; none below zero unless it is allowed."""

    name = "float"

    def __init__(self, *, negative_allowed: bool) -> None:
        self._negative_allowed = negative_allowed

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the text of the flag."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number < 0 and not self._negative_allowed:
            self.fail(f"{value} must not be negative", param, ctx)
        return number


BOOL = _Bool()
FINITE = _Finite(negative_allowed=False)
ANY_FINITE = _Finite(negative_allowed=True)


def bool_option(*names: str, default: bool = False, **attributes: Any) -> Callable[[F], F]:
    """A flag that is true when it has no value."""
    return click.option(*names, type=BOOL, is_flag=False, flag_value="true", default=default, **attributes)


def list_option(name: str, *, default: Sequence[str] = (), **attributes: Any) -> Callable[[F], F]:
    """A flag whose values, separated by commas or given one by one, become a tuple of str."""

    def split(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
        return tuple(part.strip() for value in values for part in value.split(",") if part.strip())

    return click.option(name, multiple=True, default=tuple(default), callback=split, **attributes)


def verbosity_option(function: F) -> F:
    """`-v`, `--v`: passed on as `verbosity`."""
    option = click.option(
        "-v", "--v", "verbosity", type=_Verbosity(), default=0, help="Log verbosity; 4 and more: debug."
    )
    return option(function)


class _Ignored(click.Option):
    """A flag that does nothing."""


class GoCommand(click.Command):
    """A command that takes the flags of `ignored_options` with any value.

    click takes a value that begins with a dash, as in `--client-qps=-1`, for another option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; see click."""
        ignored = {name for parameter in self.params if isinstance(parameter, _Ignored) for name in parameter.opts}
        return super().parse_args(ctx, [_without_value(argument, ignored) for argument in args])


def _without_value(argument: str, ignored: Collection[str]) -> str:
    name, equals, _ = argument.partition("=")
    return f"{name}=..." if equals and name in ignored else argument


def ignored_options(flags: Collection[str]) -> Callable[[F], F]:
    """Accept flags without effect on a GoCommand, hidden from its help; those given are passed on as `ignored`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **values: Any) -> Any:
            given = tuple(flag for flag in flags if values.pop(_parameter(flag)) is not None)
            return function(*arguments, ignored=given, **values)

        for flag in flags:
            option = click.option(
                flag, _parameter(flag), cls=_Ignored, is_flag=False, flag_value="", default=None, hidden=True
            )
            option(wrapper)
        return wrapper  # type: ignore[return-value]  # click looks at the parameters that the options declare, not here

    return decorate


def _parameter(flag: str) -> str:
    return "ignored_" + flag.strip("-").replace("-", "_")
