"""Plain text as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Flags, paths, placeholders in angle brackets, environment variables and names with underscores are code.
_CODE = re.compile(
    r"(?<![\w`/])(--?[a-z][a-z0-9-]*(?:\*|=[\w.:/-]*\w)?"
    r"|(?:~|\.{1,2})?/[a-z][\w./-]*\w"
    r"|\$[A-Z_]+|<[\w.<>-]+>|[a-z]+_[a-z_]*\w)"
)


def prose(text: str) -> str:
    """Return text for a paragraph or the cell of a table of docs/reference.

    Code gets backticks, the names of other pages become links, and the rest is escaped.
    """
    parts = _CODE.split(text)
    marked = [f"`{part}`" if index % 2 else re.sub(r"([|<*])", r"\\\1", part) for index, part in enumerate(parts)]
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](../\1)", "".join(marked))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with an empty line after it."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"
