"""Texts of validation errors, as the API server of Kubernetes words them.

An error is one string, `PATH: REASON: DETAIL`, because that is all anybody does with it: it goes into a Status message,
a condition or an event.
"""

import msgspec

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def invalid(path: str, value: object, detail: str) -> str:
    """Say that a value is wrong. Texts are quoted, lists and None are shown as JSON."""
    return f"{path}: Invalid value: {_show(value)}: {detail}"


def required(path: str, detail: str = "") -> str:
    """Say that a value is missing."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def forbidden(path: str, detail: str) -> str:
    """Say that a value must not be there."""
    return f"{path}: Forbidden: {detail}"


def not_supported(path: str, value: str, supported: tuple[str, ...]) -> str:
    """Say that a value is none of those that are known."""
    return f"{path}: Unsupported value: {quote(value)}: supported values: {', '.join(map(quote, sorted(supported)))}"


def too_long(path: str, maximum: int) -> str:
    """Say that a value has more than `maximum` bytes."""
    return f"{path}: Too long: may not be more than {maximum} bytes"


def aggregate(errors: list[str]) -> str:
    """Join errors into one text; an error that came twice is named once."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def quote(text: str) -> str:
    """Quote a text as Go's %q does."""
    return '"' + "".join(map(_quote_character, text)) + '"'


def _quote_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _show(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    return msgspec.json.encode(value).decode()
