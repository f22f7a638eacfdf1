"""The edge where dicts end: single fields of Kubernetes JSON, and what is said of one that is wrong.

Shapes are declared as msgspec structs (`autoscaler.objects.wire`), so a wrong type is an error that names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from kube.quantity import Quantity, QuantityError

_T = TypeVar("_T")

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)
_KEPT: Final = 4096


class ParseError(ValueError):
    """A Kubernetes object is not of the shape that its API promises; the text names the object and the field."""


@lru_cache(_KEPT)
def once(text: str) -> str:
    """The same text, as the one object that all equal ones are: for words that thousands of objects repeat."""
    return text


def milli_value(text: str, what: str) -> int:
    """The quantity `text` in thousandths, rounded away from zero; `what` names it in errors.

    Raises:
        ParseError: it is not a quantity.
    """
    try:
        return plain_milli_value(text)
    except QuantityError as error:
        raise ParseError(f"{what}: {text!r}: {error}") from None


def time_ms(text: str, what: str) -> int:
    """The RFC 3339 time `text` in milliseconds since the Unix epoch; `what` names it in errors.

    Raises:
        ParseError: it is not a time, or has no offset.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ParseError(f"{what}: {text!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
    return (time - _EPOCH) // _MILLISECOND


def convert(raw: object, shape: type[_T], what: str) -> _T:
    """`raw` as `shape`; `what` names it in errors.

    Raises:
        ParseError: it is something else.
    """
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        raise ParseError(f"{what}: {error}") from None


def what_is(kind: str, raw: Mapping[str, Any]) -> str:
    """The object's name for errors, from data that may be anything."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(metadata, dict):
        return kind
    return f"{kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


def quantity(text: str | float, what: str) -> Quantity:
    """The quantity `text`; `what` names it in errors.

    Raises:
        ParseError: it is not a quantity.
    """
    try:
        return Quantity.parse(str(text))
    except QuantityError as error:
        raise ParseError(f"{what}: {text!r}: {error}") from None


def optional_milli(text: str | float | None, what: str) -> int | None:
    """As `milli_value`; None stays None."""
    return None if text is None else milli_value(str(text), what)


def optional_time_ms(text: str | None, what: str) -> int | None:
    """As `time_ms`; None stays None."""
    return None if text is None else time_ms(text, what)


@lru_cache(_KEPT)
def plain_milli_value(text: str) -> int:
    """The quantity `text` in thousandths, rounded away from zero.

    Raises:
        QuantityError: in the API server's words.
    """
    return Quantity.parse(text).milli_value()
