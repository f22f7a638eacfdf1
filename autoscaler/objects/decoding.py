"""Decode parts of Kubernetes objects: names, times and interned texts, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from kube.api.objects import ParseError

_T = TypeVar("_T")

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CACHED: Final = 4096
_LONGEST_CACHED: Final = 1024  # users choose names and messages, and must not fill the cache with megabytes


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
