"""Literals of PromQL: durations, strings with the tokens around them, and regular expressions of names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence

_MAX_LENGTH = 64_000
_MAX_ESCAPES = 8_000  # and bytes beyond ASCII; each takes a microsecond
# Possessive quantifiers: a string that does not end is found in linear time.
_TOKENS = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|`[^`]*+`)|(?P<unclosed>["'`])|(?P<comment>\#[^\r\n]*+)"""
    r"""|(?P<regex>[=!]~)|(?P<operator>[-+*/%^<>=!(]|\b(?:and|or|unless|atan2)\b)""",
    re.DOTALL | re.IGNORECASE,
)
_CONTROLS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\"}
_ESCAPES = re.compile(
    rb"""\\(?:(?P<one>[abfnrtv\\'"])|(?P<octal>[0-3][0-7]{2})|x(?P<byte>[0-9a-fA-F]{2})"""
    rb"""|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|)"""
)
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_METACHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")
# A group adds two parentheses, so it is used only if it saves more characters.
_GROUP_COST = 2
_UNSAFE = re.compile(r"[^ -!#-\[\]-~]")
_DURATION = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_MILLIS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)


class PromqlError(ValueError):
    """The text is no PromQL; the message says why."""


def tokenized(query: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a query without its comments: what they are, and their text.

    They are a "string" with its quotes, an "operator", the sign of a "regex" matcher, or "" for anything else.

    Raises:
        PromqlError: it is too long, a string does not end, or the text is not Unicode.
    """
    if len(query) > _MAX_LENGTH:
        raise PromqlError(f"it is longer than {_MAX_LENGTH} characters")
    try:
        escapes = query.count("\\") + len(query.encode()) - len(query)
    except UnicodeError as error:
        raise PromqlError("it is not Unicode") from error
    if escapes > _MAX_ESCAPES:
        raise PromqlError(f"it has more than {_MAX_ESCAPES} escape sequences, and bytes beyond ASCII")
    end = 0
    for token in _TOKENS.finditer(query):
        if token.start() > end:
            yield "", query[end : token.start()]
        end = token.end()
        match token.lastgroup:
            case "unclosed":
                raise PromqlError("a string does not end")
            case "comment":
                yield "", " "
            case kind:
                yield kind or "", token[0]
    yield "", query[end:]


def unquote(literal: str) -> str:
    """Return the value of a string literal, which includes its quotes, as Prometheus reads it.

    Raises:
        PromqlError: it has an unknown escape sequence or a line break, or its bytes are not UTF-8.
    """
    mark, text = literal[0], literal[1:-1]
    if mark == "`":
        return text
    if "\n" in text:
        raise PromqlError("a string has a line break; use `backquotes`")
    if "\\" not in text:
        return text

    def escaped(found: re.Match[bytes]) -> bytes:
        value = found[found.lastgroup] if found.lastgroup else b""
        match found.lastgroup:
            case "one" if value in _CONTROLS:
                return _CONTROLS[value]
            case "one" if value == mark.encode():
                return value
            case "octal":
                return bytes([int(value, 8)])
            case "byte":
                return bytes([int(value, 16)])
            case "short" | "long" if int(value, 16) <= sys.maxunicode:
                return chr(int(value, 16)).encode()
        raise PromqlError("a string has an unknown escape sequence")

    try:
        return _ESCAPES.sub(escaped, text.encode()).decode()
    except UnicodeError as error:
        raise PromqlError("a string is not UTF-8") from error


def quote(value: str) -> str:
    """Return a string literal with this value, in ASCII."""
    return '"' + _UNSAFE.sub(_escape, value) + '"'


def label_text(name: str) -> str:
    """Return a label's name as PromQL has it: in quotes if it needs them, which Prometheus reads since version 3."""
    return name if _LABEL.fullmatch(name) else quote(name)


def is_plain_name(metric: str) -> bool:
    """Return whether the name of a metric needs no quotes: names of other forms exist since Prometheus 3."""
    return _METRIC.fullmatch(metric) is not None


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def any_of(names: Sequence[str]) -> str:
    """Return a regular expression for the names, in their order."""
    # Most names need no escaping: one search over all of them is faster than one for each.
    escapes = _METACHARACTERS.search("\n".join(names)) is not None
    return "|".join(map(_escaped, names) if escapes else names)


def _escaped(name: str) -> str:
    """Escape a name for Go's regular expressions."""
    return _METACHARACTERS.sub(r"\\\g<0>", name)


def alternation(names: Iterable[str]) -> str:
    """Return one regular expression for the names, with common prefixes factored out."""
    return "|".join(_alternatives(sorted(set(names)), 0))


def _alternatives(names: Sequence[str], start: int) -> list[str]:
    """Return the alternatives for sorted names with a common prefix of `start` characters."""
    out: list[str] = []
    first = 0
    while first < len(names):
        last = first + 1
        while last < len(names) and names[last][start : start + 1] == names[first][start : start + 1]:
            last += 1
        out += _group(names[first:last], start)
        first = last
    return out


def _group(names: Sequence[str], start: int) -> list[str]:
    """Return the alternatives for names whose next character is the same."""
    if len(names) == 1:
        return [_escaped(names[0][start:])]
    # The common prefix of the first and the last of sorted texts, which differ, is common to all of them.
    first, last = names[0], names[-1]
    common = start
    while first[common : common + 1] == last[common : common + 1]:
        common += 1
    prefix = _escaped(first[start:common])
    inner = _alternatives(names, common)
    if len(prefix) * (len(inner) - 1) > _GROUP_COST:
        return [f"{prefix}({'|'.join(inner)})"]
    return [prefix + one for one in inner]


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `2w` or `1d12h`. Prometheus: model.ParseDuration.

    Raises:
        ValueError: it is invalid.
    """
    found = _DURATION.fullmatch("0s" if text == "0" else text)
    if found is None or not text or len(text) > 32:
        raise ValueError(f"not a duration: {text!r}; write it as 5m or 1h30m")
    parts = zip(found.groups(), _MILLIS, strict=True)
    return sum(int(count or 0) * millis for count, millis in parts) / 1000
