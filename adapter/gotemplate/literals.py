r"""Constants of a template: strings, characters and numbers, read as Go's strconv reads them.

A Go string is a row of bytes, and an escape such as \xff can name one that is no UTF-8. Prometheus takes no query with
such bytes and no text here can have them, so each of them becomes U+FFFD, as where Go writes JSON.
"""

from __future__ import annotations

import re
from math import isinf

from adapter.gotemplate.nodes import TemplateError

_INTEGER = re.compile(r"([+-]?)(0[xXoObB][0-9A-Fa-f_]+|[0-9][0-9_]*)")
_OLD_OCTAL = re.compile(r"0(_?[0-7])+")
_MOST = 2**63 - 1

_ESCAPE = re.compile(
    r"\\(?:(?P<letter>[abfnrtv\\\"'])|(?P<octal>[0-3][0-7]{2})|x(?P<byte>[0-9a-fA-F]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|)"
)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unquoted(text: str) -> str:
    """The string that a literal in double quotes or back-quotes stands for, as strconv.Unquote says.

    Raises:
        TemplateError: it has an escape that Go does not know, or one that is no character.
    """
    inner = text[1:-1]
    if text.startswith("`"):
        return inner.replace("\r", "")  # Go leaves them out, so that the line ends of the file do not matter

    out = bytearray()
    at = 0
    for found in _ESCAPE.finditer(inner):
        out += _bytes(inner[at : found.start()])
        code = _code(found, text)
        out += bytes([code]) if found["octal"] or found["byte"] else chr(code).encode()
        at = found.end()
    out += _bytes(inner[at:])
    return out.decode(errors="replace")


def rune(text: str) -> int:
    """The code point of a character in single quotes.

    Raises:
        TemplateError: it is not one character, or has an escape that Go does not know.
    """
    inner = text[1:-1]
    found = _ESCAPE.match(inner)
    if found is not None and found.end() == len(inner):
        return _code(found, text)
    if len(inner) != 1:
        raise TemplateError(f"malformed character constant: {text}")
    return ord(inner)


def number(text: str) -> int | float:
    """The number that a literal stands for.

    Raises:
        TemplateError: it is none, or does not fit into 64 bits.
    """
    found = _INTEGER.fullmatch(text)
    try:
        if found is None:
            value: int | float = float(text)
        elif _OLD_OCTAL.fullmatch(found[2]):
            value = int(f"{found[1]}0o{found[2][1:]}", 0)
        else:
            value = int(text, 0)
    except ValueError as error:
        raise TemplateError(f"bad number syntax: {text}") from error
    if isinf(value) or (isinstance(value, int) and not -_MOST - 1 <= value <= _MOST):
        raise TemplateError(f"the number is too large: {text}")
    return value


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _code(escape: re.Match[str], text: str) -> int:
    r"""The code point, or with \x and octal digits the byte, of an escape in the literal `text`."""
    letter, quote = escape["letter"], text[0]
    if letter is not None and (letter == quote or letter not in "\"'"):
        return ord(_ESCAPED.get(letter, letter))
    if escape["octal"] is not None:
        return int(escape["octal"], 8)
    digits = escape["byte"] or escape["short"] or escape["long"]
    if digits is not None:
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise TemplateError(f"{text}: {escape[0]} is no character")
        return code
    # An unknown one is found as the backslash alone; it is shown with what follows.
    shown = letter or escape.string[escape.end() : escape.end() + 1]
    raise TemplateError(f"{text} has an unknown escape: \\{shown}")
