"""Decode Kubernetes objects: names, times, interned texts, and the error that names a field.

An object that is too large or nested too deeply cannot be decoded; its name is read from the start of the response.
kube-apiserver writes the name and the namespace of an object of a Go type first, and the metadata of a list before its
items. Custom resources have another order, in which names are not found; but etcd stores their JSON, so that none is
longer than etcd's limit, and their schema bounds their depth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CACHED: Final = 4096
_LONGEST_CACHED: Final = 1024  # users choose names and messages, and must not fill the cache with megabytes

UNREADABLE: Final = "UNREADABLE"
"""The type of a watch event, of this client, for an object that was added or changed and cannot be read."""

_TEXTS: Final = rb'((?:\s*"\w+"\s*:\s*"[^"\\]*"\s*,)*)'
_OBJECT: Final = _TEXTS + rb'\s*"metadata"\s*:\s*\{' + _TEXTS
_ITEM: Final = re.compile(rb"\s*\{" + _OBJECT)
_EVENT: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([A-Z]+)"\s*,\s*"object"\s*:\s*\{' + _OBJECT)
_LIST: Final = re.compile(rb"\s*\{" + _TEXTS + rb'\s*"metadata"\s*:\s*(\{[^{}]*\})\s*,\s*"items"\s*:\s*\[')
_TEXT: Final = re.compile(rb'"(name|namespace|uid)"\s*:\s*"([^"]+)"')


class ParseError(ValueError):
    """A Kubernetes object does not have the schema of its API; the message names the object and the field."""


class TooLargeError(ParseError):
    """An object is too large to be stored."""


def intern(text: str) -> str:
    """Return one object for all equal texts; saves memory for texts that thousands of objects repeat."""
    return _interned(text) if len(text) <= _LONGEST_CACHED else text


@lru_cache(_CACHED)
def _interned(text: str) -> str:
    return text


def convert(raw: object, shape: type[_T], name: str) -> _T:
    """Convert `raw` to `shape`; `name` names the object in errors.

    Raises:
        ParseError: it does not match.
    """
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        raise ParseError(f"{name}: {error}") from None


def object_name(kind: str, raw: Mapping[str, Any]) -> str:
    """Return KIND NAMESPACE/NAME for errors, from unvalidated data."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(metadata, dict):
        return kind
    return f"{kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


def time_ms(text: str, field: str) -> int:
    """Return an RFC 3339 time in milliseconds since the Unix epoch; `field` names it in errors.

    Raises:
        ParseError: it is not a time, or has no offset.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ParseError(f"{field}: {text!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
    return (time - _EPOCH) // _MILLISECOND


def optional_time_ms(text: str | None, field: str) -> int | None:
    """Return `time_ms`, or None for None."""
    return None if text is None else time_ms(text, field)


def event_of(line: bytes | bytearray) -> dict[str, Any] | None:
    """Return an event with only the object's name and namespace from the start of a watch's line; None: not found.

    The type is DELETED for a deleted object, for all others UNREADABLE.
    """
    found = _EVENT.match(line)
    metadata = None if found is None else _named(found[3])
    if found is None or metadata is None:
        return None
    return {"type": "DELETED" if found[1] == b"DELETED" else UNREADABLE, "object": {"metadata": metadata}}


def item_of(text: bytes | bytearray | memoryview) -> dict[str, Any] | None:
    """Return an object with only its name and namespace from the start of its JSON; None: not found."""
    found = _ITEM.match(text)
    metadata = None if found is None else _named(found[2])
    return None if metadata is None else {"metadata": metadata}


def list_of(page: bytes) -> tuple[bytes, dict[str, Any]] | None:
    """Return the metadata of a list, as JSON, and its first object as `item_of`; None: not found."""
    found = _LIST.match(page)
    item = None if found is None else item_of(memoryview(page)[found.end() :])
    return None if found is None or item is None else (found[2], item)


def _named(texts: bytes) -> dict[str, Any] | None:
    values = {key.decode(): value.decode(errors="replace") for key, value in _TEXT.findall(texts)}
    # Without either, the namespace may follow later.
    return values if "name" in values and ("namespace" in values or "uid" in values) else None
