"""Decode a part of a rules file or an object by its schema, with messages in the words of YAML."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from adapter.gotemplate import Template
from adapter.rules import field_types
from adapter.rules.goregex import GoRegex, GoRegexError
from adapter.rules.model import Merge, Policy
from adapter.rules.naming import LabelTemplate
from adapter.rules.strictyaml import RulesError
from adapter.upstream.access import Parameters, parameters

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file or an object, with its name for messages."""

    source: str
    """The file or object."""
    path: str = ""
    """The keys down to the part, such as "rules[2]"."""
    about: str = ""
    """Identifies the rule without its index, such as "seriesQuery: up"."""
    own_names: Mapping[str, str] = field(default_factory=dict)
    """This source's names of keys that have other ones in a rules file."""

    def error(self, why: object, *, key: str = "") -> RulesError:
        """Return an error about this part, or about a key in it."""
        first, dot, rest = key.removeprefix(".").partition(".")
        if first in self.own_names:
            key = f".{self.own_names[first]}{dot}{rest}"
        path = f"{self.path}{key}".removeprefix(".")
        about = f" ({self.about})" if self.about else ""
        return RulesError(f"{self.source}: {f'{path}: ' if path else ''}{' '.join(str(why).split())}{about}")

    def decode(self, tree: object, kind: type[_T]) -> _T:
        """Decode the tree of this part. Raises RulesError."""
        try:
            return msgspec.convert(_without_empty(tree), kind, strict=False, dec_hook=_dec_hook)
        except msgspec.ValidationError as error:
            found = _MESSAGE.fullmatch(str(error))
            assert found is not None, "it matches any text"
            why, key = _reworded(found[1], found[2] or "", kind)
            raise self.error(why, key=key) from error


# As in Go, these keys are unset if their text is empty.
_OPTIONAL_TEXTS = frozenset(
    [
        *("matches", "is", "isNot", "template", "nan", "inf", "empty", "maxAge", "merge", "timeout", "maxQueryBytes"),
        *("ramp", "for", "file"),
        *("tokenFile", "passwordFile", "caFile", "certFile", "keyFile", "clientSecretFile"),
    ]
)


def _without_empty(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_empty(entry) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    return {key: _without_empty(value) for key, value in tree.items() if value != "" or key not in _OPTIONAL_TEXTS}


def _query_template(text: str) -> Template:
    if not text.strip():
        raise ValueError("this key is required")
    return Template(text, fields=field_types.QUERY_FIELDS)


def _regex(text: str) -> GoRegex:
    try:
        return GoRegex(text)
    except GoRegexError as error:
        raise ValueError(f"{text!r} is not a regular expression: {str(error).removesuffix(f': {text}')}") from error


# Types that msgspec cannot decode: the type in YAML, and the parser. msgspec adds the path to its ValueError.
_PARSERS: Mapping[type, tuple[type, Callable[[Any], object]]] = {
    GoRegex: (str, _regex),
    LabelTemplate: (str, LabelTemplate),
    Path: (str, Path),
    Template: (str, _query_template),
    field_types.Boolean: (str, field_types.boolean),
    field_types.Duration: (str, field_types.duration),
    field_types.MilliValue: (str, field_types.milli_value),
    field_types.Window: (str, field_types.window),
    field_types.Forecasting: (dict, field_types.forecasting),
    field_types.Headers: (dict, field_types.headers),
    field_types.Overrides: (dict, field_types.overrides),
    field_types.ShortOverrides: (dict, field_types.short_overrides),
    Parameters: (dict, parameters),
}
_TYPES = {str: "text", list: "a list", dict: "a mapping", type(None): "null"}


def _dec_hook(kind: type, value: object) -> object:
    expected, parse = _PARSERS[kind]
    if not isinstance(value, expected):
        raise ValueError(f"expected {_TYPES[expected]}, got {_TYPES[type(value)]}")
    return parse(value)


_MESSAGE = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_ENUMS: Mapping[str, type[enum.Enum]] = {"nan": Policy, "inf": Policy, "empty": Policy, "merge": Merge}
_WORDS = {"`array`": "a list", "`object`": "a mapping", "`str`": "text", "`null`": "null", "`int`": "a whole number"}


def known_keys(kind: type) -> tuple[str, ...]:
    """Return the keys that a struct has in a file."""
    names = (one.encode_name for one in structs.fields(kind))
    return tuple(name for name in names if not name.startswith("<"))


def _reworded(why: str, key: str, kind: type) -> tuple[str, str]:
    """Return a message of msgspec in the words of YAML, and the key that it is about."""
    if missing := _MISSING.fullmatch(why):
        return "this key is required", f"{key}.{missing[1]}"
    if unknown := _UNKNOWN.fullmatch(why):
        close = difflib.get_close_matches(unknown[1], () if key else known_keys(kind), n=1)
        return f"unknown key `{unknown[1]}`" + (f"; did you mean `{close[0]}`?" if close else ""), key
    if "matching regex" in why:  # of RequiredText
        return "this key is required", key
    choices = _ENUMS.get(key.rpartition(".")[2])
    if choices is not None and "enum value" in why:
        *most, last = (str(one.value) for one in choices)
        return f"expected {', '.join(most)} or {last}, got {why.removeprefix('Invalid enum value ')}", key
    why = why.replace(" | null", "")
    for internal, word in _WORDS.items():
        why = why.replace(internal, word)
    return why[:1].lower() + why[1:], key
