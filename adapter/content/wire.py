"""Protobuf's wire format, as far as it takes to write messages by hand."""

from __future__ import annotations

_VARINT, _BYTES = 0, 2
# Most fields have a number below 16 and a content below 128 bytes, so that both take a byte.
_LARGE, _LONG = 16, 128
_HEADS = tuple(tuple(bytes((field << 3 | _BYTES, size)) for size in range(_LONG)) for field in range(_LARGE))


def message(field: int, content: bytes) -> bytes:
    """A field that holds a message, or bytes."""
    size = len(content)
    if field < _LARGE:
        if size < _LONG:
            return _HEADS[field][size] + content
        if size < _LONG * _LONG:
            return bytes((field << 3 | _BYTES, size & 0x7F | 0x80, size >> 7)) + content
    return _varint(field << 3 | _BYTES) + _varint(size) + content


def string(field: int, text: str) -> bytes:
    """A field that holds a string."""
    return message(field, text.encode())


def integer(field: int, number: int) -> bytes:
    """A field that holds an integer (int32, int64)."""
    return _varint(field << 3 | _VARINT) + _varint(number)


def flag(field: int, *, is_set: bool) -> bytes:
    """A field that holds a bool."""
    return integer(field, int(is_set))


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number as the 64-bit one that it is in two's complement."""
    number &= (1 << 64) - 1
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
