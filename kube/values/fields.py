"""Messages of validation errors, `PATH: REASON: DETAIL`, in the API server's words. Upstream: field.Error."""

import msgspec

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def invalid(path: str, value: object, detail: str) -> str:
    """Return the error of an invalid value. Strings are quoted, other values shown as JSON."""
    return f"{path}: Invalid value: {_show(value)}: {detail}"


def required(path: str, detail: str = "") -> str:
    """Return the error of a missing value."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def forbidden(path: str, detail: str) -> str:
    """Return the error of a value that must not be set."""
    return f"{path}: Forbidden: {detail}"


def not_supported(path: str, value: str, supported: tuple[str, ...]) -> str:
    """Return the error of a value that is not one of those supported."""
    return f"{path}: Unsupported value: {quote(value)}: supported values: {', '.join(map(quote, sorted(supported)))}"


def too_long(path: str, maximum: int) -> str:
    """Return the error of a value of more than `maximum` bytes."""
    return f"{path}: Too long: may not be more than {maximum} bytes"


def aggregate(errors: list[str]) -> str:
    """Join distinct errors. Upstream: errors.NewAggregate."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def quote(text: str) -> str:
    """Quote a string like Go's %q."""
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
