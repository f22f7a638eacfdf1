"""Texts of servers, files and clusters on a terminal, which obeys control characters in them."""

import re
from typing import Final

_UNESCAPED: Final = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")
"""Control characters that encoders of JSON do not escape."""


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with U+FFFD for each control character, except those in `keep`."""
    return "".join(one if one.isprintable() or one in keep else "\N{REPLACEMENT CHARACTER}" for one in text)


def printable_json(encoded: bytes) -> str:
    """Return the same JSON, with escapes for the control characters in its strings."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


def on_one_line(query: str) -> str:
    """Return a query without line breaks, indentation, and comments that have a line to themselves."""
    if "\n" not in query:
        return query
    lines = (line.strip() for line in query.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("#"))
