"""What a process says about its own configuration under /debug/config, without secrets.

As on Prometheus' pages, a value that may be a secret is `<secret>`: values of headers and of parameters of URLs, and
the user in a URL. Files with secrets are not read; flags have only their names.

Strings inside of an expression, such as a matcher of PromQL, keep the parameters of their URLs: these are values of
labels, and without them the expression would be another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import click
import msgspec

from kube.process.flags import ARGUMENTS

CONFIG_PATH: Final = "/debug/config"

SECRET: Final = "<secret>"  # noqa: S105  # stands for one

_NAMED_VALUES: Final = re.compile(r"headers?|(query|endpoint)-?param(eter)?s?", re.IGNORECASE)
"""Keys of mappings from names to values, any of which may be a secret; and the ends of flags with NAME=VALUE."""
_WHOLE_URL: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_URL: Final = re.compile(
    r"""(?P<quote>["'`])?[a-z][a-z0-9+.-]{0,30}://(?(quote)(?:(?!(?P=quote)).)*|\S*)""", re.IGNORECASE | re.DOTALL
)
"""A URL in a text; one that a quotation mark precedes ends before the next such mark."""
_USER: Final = re.compile(r"(?<=://)[^/?#]*@")


Flags: TypeAlias = Mapping[str, str | list[str]]
"""Flags by name without dashes; a list for one that can be repeated."""


class ConfigPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page."""

    version: int = 1
    """The version of this form."""
    flags: Flags
    """Those that are given."""
    rules: Any = None
    """The rules file; null where there is none, or it is invalid."""


def given_flags(context: click.Context, *, parse: Mapping[str, Callable[[str], object]] | None = None) -> Flags:
    """Return the flags on the command line of a GoCommand, without secrets.

    Args:
        context: the command's.
        parse: {flag: function that returns its value as a tree}, for flags whose value is a document.
    """
    given, _, order = context.command.make_parser(context).parse_args(list(context.meta[ARGUMENTS]))
    found: dict[str, str | list[str]] = {}
    for parameter in dict.fromkeys(order):
        name = max(parameter.opts, key=len).lstrip("-")
        if isinstance(parameter, click.Option) and name != "help" and parameter.name is not None:
            value = given[parameter.name]
            texts = [
                # A flag without a value, such as --metric-rules, has the parser's mark here.
                _shown(name, each if isinstance(each, str) else str(parameter.flag_value), (parse or {}).get(name))
                for each in (value if isinstance(value, list) else [value])
            ]
            found[name] = texts if isinstance(value, list) else texts[0]
    return found


def _shown(flag: str, text: str, parse: Callable[[str], object] | None) -> str:
    if parse is not None:
        return msgspec.json.encode(without_secrets(parse(text))).decode()
    if _NAMED_VALUES.fullmatch(flag.partition("-")[2]):  # such as prometheus-header
        name, equals, _ = text.partition("=")
        return f"{name}={SECRET}" if equals else SECRET
    return str(without_secrets(text))


def without_secrets(tree: object) -> Any:
    """Return a tree of mappings, lists and scalars, as YAML has them, without values that may be secrets."""
    if isinstance(tree, Mapping):
        return {
            key: _secrets(value) if _NAMED_VALUES.fullmatch(str(key)) else without_secrets(value)
            for key, value in tree.items()
        }
    if isinstance(tree, list | tuple):
        return [without_secrets(each) for each in tree]
    if not isinstance(tree, str):
        return tree
    return _without_secrets_of_url(tree) if _WHOLE_URL.match(tree) else _URL.sub(_shown_url, tree)


def _secrets(value: object) -> object:
    return dict.fromkeys(value, SECRET) if isinstance(value, Mapping) else SECRET


def _shown_url(found: re.Match[str]) -> str:
    return _without_secrets_of_url(found[0]) if found["quote"] is None else _USER.sub(f"{SECRET}@", found[0])


def _without_secrets_of_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError if it is not a number
        # A slash in a password ends the host, and leaves the @ in the path.
        unclear = "@" in f"{parts.path}{parts.query}{parts.fragment}"
    except ValueError:
        unclear = True
    if unclear:
        return f"{url.partition('://')[0]}://{SECRET}"
    _, user, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"{SECRET}@{host}" if user else host,
        query=SECRET if parts.query else "",
        fragment=SECRET if parts.fragment else "",
    ).geturl()
