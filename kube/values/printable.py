"""Texts of servers, files and clusters on a terminal, which obeys control characters in them."""


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with U+FFFD for each control character, except those in `keep`."""
    return "".join(one if one.isprintable() or one in keep else "\N{REPLACEMENT CHARACTER}" for one in text)


def on_one_line(query: str) -> str:
    """Return a query without line breaks, indentation, and comments that have a line to themselves."""
    if "\n" not in query:
        return query
    lines = (line.strip() for line in query.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("#"))
