"""Where in a rules file something stands, and errors that say so."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from adapter.rules.model import RulesError, shortened

_T = TypeVar("_T")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")


@dataclass(frozen=True, slots=True)
class Place:
    """A path such as rules[2].name in a file, and for people who do not count rules what the rule is about.

    Attributes:
        source: what messages call the file.
        path: the keys down to here; "" for the file itself.
        about: such as "seriesQuery: up".
    """

    source: str
    path: str = ""
    about: str = ""

    def at(self, key: str, *, about: str = "") -> Place:
        """The place of a key, or of an entry of a list ("[2]"), below this one."""
        separator = "" if key.startswith("[") or not self.path else "."
        return Place(self.source, f"{self.path}{separator}{key}", about or self.about)

    def of_rule(self, index: int, written: dict[str, object]) -> Place:
        """The place of a rule in a list of them."""
        about = ""
        for key in ("seriesQuery", "name"):
            text = written.get(key)
            if isinstance(text, str) and text:
                about = f"{key}: {shortened(text)}"
                break
        return self.at(f"[{index}]", about=about)

    def error(self, why: object) -> RulesError:
        """What is wrong here."""
        path = f"{self.path}: " if self.path else ""
        about = f" ({self.about})" if self.about else ""
        return RulesError(f"{self.source}: {path}{why}{about}")

    def read(self, reader: Callable[[str], _T], text: str) -> _T:
        """What a reader makes of the text here; its ValueError becomes one that says where."""
        try:
            return reader(text)
        except ValueError as error:
            raise self.error(error) from error

    def required(self, text: str) -> str:
        """The text here, which must not be empty."""
        if not text.strip():
            raise self.error("this key is required")
        return text

    def convert(self, tree: object, kind: type[_T]) -> _T:
        """The tree here as one of adapter.rules.written."""
        try:
            return msgspec.convert(tree, type=kind)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
            path = path.removesuffix("`").removeprefix(".")
            place = self.at(path) if path else self
            meant = "" if path else _meant(message, kind)
            raise place.error(_reworded(message) + meant) from error


def _meant(message: str, kind: type) -> str:
    """A key that may have been meant in place of one that is unknown."""
    unknown = _UNKNOWN.fullmatch(message)
    known = [one.encode_name for one in msgspec.structs.fields(kind)] if unknown else []
    close = difflib.get_close_matches(unknown[1], known, n=1) if unknown else []
    return f"; did you mean `{close[0]}`?" if close else ""


def _reworded(message: str) -> str:
    """A message of msgspec in the words of a YAML file."""
    message = message.replace("Object contains unknown field", "unknown key").replace(
        "Object missing required field", "missing key"
    )
    for internal, word in (("`array`", "a list"), ("`object`", "a mapping"), ("`str`", "text"), ("`null`", "null")):
        message = message.replace(internal, word)
    return message[:1].lower() + message[1:]
