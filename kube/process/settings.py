"""Settings of a process: a tree of frozen dataclasses, of which `--setting GROUP.NAME=VALUE` replaces single numbers.

What operators choose has a flag. Settings are limits, timeouts and periods whose defaults suit nearly every cluster.
The name of a setting ends with its unit: `_seconds` takes durations (1m30s), `_bytes` quantities (64Mi), all others
plain numbers; all are greater than zero. Its docstring has the reason for its default, and `make reference` makes the
page of docs/reference from it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import click

from kube.values.durations import parse_duration
from kube.values.quantity import Quantity

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def settings_of(tree: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield (GROUP.NAME, value) of each setting."""
    for each in fields(cast("Any", tree)):
        value = getattr(tree, each.name)
        if is_dataclass(value):
            yield from settings_of(value, f"{path}{each.name}.")
        else:
            yield path + each.name, value


def with_setting(tree: T, text: str) -> T:
    """Return the tree with another value of one setting, given as GROUP.NAME=VALUE.

    Raises:
        ValueError: there is no such setting, or it cannot have this value; the message is one sentence.
    """
    path, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not a setting; write GROUP.NAME=VALUE")
    known = dict(settings_of(tree))
    if path not in known:
        close = difflib.get_close_matches(path, known, n=1)
        raise ValueError(f"unknown setting {path!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    try:
        parsed = _parsed(path, value, known[path])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not 0 < parsed < math.inf:
        raise ValueError(f"{path}: {value} must be greater than zero")
    return _replaced(tree, path, parsed)


def setting_option(defaults: object) -> Callable[[F], F]:
    """Add `--setting`; the tree of settings with the given values is passed on as `settings`."""

    def parse(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> object:
        tree = defaults
        for text in texts:
            try:
                tree = with_setting(tree, text)
            except ValueError as error:
                raise click.BadParameter(str(error), context, parameter) from error
        return tree

    return click.option(
        "--setting",
        "settings",
        metavar="GROUP.NAME=VALUE",
        multiple=True,
        callback=parse,
        help="A limit, timeout or period that has no flag of its own: docs/reference has the list. Can be repeated.",
    )


def _parsed(path: str, text: str, default: float) -> float:
    if path.endswith("_seconds"):
        return parse_duration(text)
    if path.endswith("_bytes"):
        return Quantity.parse(text).value()
    try:
        return type(default)(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {'whole ' if isinstance(default, int) else ''}number") from None


def _replaced(tree: T, path: str, value: float) -> T:
    name, _, rest = path.partition(".")
    changed = _replaced(getattr(tree, name), rest, value) if rest else value
    return cast("T", replace(cast("Any", tree), **{name: changed}))
