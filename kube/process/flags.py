"""Command-line flags that behave like those of Kubernetes' programs.

Go's flags differ from click's in three ways: a boolean may have a value (`--flag`, `--flag=false`), a list is one flag
with commas or several flags, and `-v=4` is `--v=4`. `flag_section` groups flags in --help, as in kube-apiserver's.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from kube.values.durations import parse_duration
from kube.values.printable import printable

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

CONTEXT_SETTINGS: dict[str, Any] = {
    "max_content_width": 120,
    "help_option_names": ["-h", "--help"],
    "show_default": True,
}

ARGUMENTS = "kube.process.flags.arguments"
"""The key of a GoCommand's arguments in its context's `meta`."""

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
"""The type of a flag for an existing file."""


class LazyGroup(click.Group):
    """A group of commands. Those of `lazy` are imported, with their libraries, only when they are used.

    Args:
        lazy: MODULE:NAME by command.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._lazy[cmd_name].partition(":")
        return cast("click.Command", getattr(importlib.import_module(module), name))


class Parsed(click.ParamType[T]):
    """The type of a flag whose text is read by `parse`, which raises ValueError with a message for the user."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Parse the flag's text; a default may be a parsed value."""
        if not isinstance(value, str):
            return cast("T", value)
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


# As strconv.ParseBool.
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def parse_bool(text: str) -> bool:
    """Parse a boolean in Go's syntax. Raises ValueError."""
    if text not in _TRUE + _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text in _TRUE


def _duration(text: str, *, zero_allowed: bool) -> float:
    seconds = parse_duration(text)
    if seconds < 0 or (seconds == 0 and not zero_allowed):
        raise ValueError(f"{text} must {'not be negative' if zero_allowed else 'be longer than 0s'}")
    return seconds


_BOOL = Parsed("bool", parse_bool)
DURATION = Parsed("duration", functools.partial(_duration, zero_allowed=True))
"""A duration, converted to seconds."""
MILLISECONDS = Parsed("duration", lambda text: round(_duration(text, zero_allowed=True) * 1000))
POSITIVE_DURATION = Parsed("duration", functools.partial(_duration, zero_allowed=False))


def bool_option(*names: str, default: bool = False, **attributes: Any) -> Callable[[F], F]:
    """Add a boolean flag; without a value it is true."""
    return click.option(*names, type=_BOOL, is_flag=False, flag_value="true", default=default, **attributes)


def list_option(*names: str, default: Sequence[str] = (), **attributes: Any) -> Callable[[F], F]:
    """Add a flag with several values, comma-separated or repeated; passed on as a tuple of str."""

    def split(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
        return tuple(part.strip() for value in values for part in value.split(",") if part.strip())

    return click.option(*names, multiple=True, default=tuple(default), callback=split, **attributes)


def option_group(
    argument: str, build: Callable[..., object], *options: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[F], F]:
    """Return a decorator that adds `options` to a command, and passes `build` of their values on as `argument`.

    The parameters of `build` have the names that the options give to their values; those without an option have
    defaults, and `**others` are further values of `options`. Its ValueErrors are usage errors.
    """
    parameters = inspect.signature(build).parameters.values()
    names = {each.name for each in parameters}
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        group = functools.reduce(lambda command, option: option(command), options, lambda: None)
        names.update(each.name for each in click.command()(group).params if each.name is not None)

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **values: Any) -> Any:
            try:
                built = build(**{name: values.pop(name) for name in names if name in values})
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            return command(*arguments, **values, **{argument: built})

        for option in reversed(options):  # --help lists the option that is applied last first
            option(wrapper)
        return wrapper  # type: ignore[return-value]  # has the parameters of the options

    return decorate


def kubeconfig_options(function: F) -> F:
    """Add `--kubeconfig` and `--context` of commands that run on a user's machine; "" is the default, as in kubectl."""
    path = click.option(
        "--kubeconfig",
        type=Parsed("path", lambda text: Path(text) if text else None),
        show_default="$KUBECONFIG, ~/.kube/config, or the pod's service account",
        help="Path to a kubeconfig file.",
    )
    context = click.option(
        "--context",
        type=Parsed("text", lambda text: text or None),
        show_default="the current one",
        help="Name of the kubeconfig context to use.",
    )
    return path(context(function))


def _verbosity(text: str) -> int:
    number = text.removeprefix("=")  # click passes `-v=4` as "=4"
    if not number.isascii() or not number.isdigit():
        raise ValueError(f"{number!r} is not a number of zero or more")
    return int(number)


def verbosity_option(function: F) -> F:
    """Add `-v`, `--v`; passed on as `verbosity`."""
    help_text = "Number for the log level verbosity; 4 or more logs debug messages."
    return click.option("-v", "--v", "verbosity", type=Parsed("int", _verbosity), default=0, help=help_text)(function)


class FlagSection(click.Option):
    """A heading in --help. Command lines cannot contain it."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add nothing."""


class GoCommand(click.Command):
    """A command with flags of `flag_section`, whose arguments are in the context's `meta`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags by section; see click."""
        sections: dict[str, list[tuple[str, str]]] = {}
        title = "Options"
        for parameter in self.get_params(ctx):
            if isinstance(parameter, FlagSection):
                title = parameter.help or title
            elif record := parameter.get_help_record(ctx):
                sections.setdefault(title, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; see click. Errors quote servers, whose texts must not control the terminal."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = printable(error.message, keep="\n")  # type: ignore[misc]  # click declares it final
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; see click."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


def flag_section(title: str) -> Callable[[F], F]:
    """Put the flags below this decorator under a heading in the --help of a GoCommand."""
    name = f"--section-{title.lower().replace(' ', '-')}"
    return click.option(name, cls=FlagSection, help=title, hidden=True, expose_value=False)
