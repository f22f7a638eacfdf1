"""Texts of servers, files and clusters on a terminal, which obeys control characters in them."""


def printable(text: str, *, keep: str = "") -> str:
    """Return as many characters, with U+FFFD for each that a terminal could obey; those of `keep` stay."""
    return "".join(one if one.isprintable() or one in keep else "\N{REPLACEMENT CHARACTER}" for one in text)
