"""Kubernetes objects that cannot be read: errors, and names.

An object that is too large or nested too deeply cannot be decoded; its name is read from the start of the response.
kube-apiserver writes the name and the namespace of an object of a Go type first, and the metadata of a list before its
items. Custom resources have another order, in which names are not found; but etcd stores their JSON, so that none is
longer than etcd's limit, and their schema bounds their depth.
"""

from __future__ import annotations

import re
from typing import Any, Final

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
