"""Decode a JSON response with one very long list while it arrives, so its text is never in memory as a whole."""

from __future__ import annotations

import abc
import re
from typing import ClassVar, Generic, TypeVar

import msgspec

from adapter.prometheus.errors import PrometheusBadResponse

T = TypeVar("T")

_MAX_HEAD = 64 * 1024
_MAX_ENTRY = 256 * 1024
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding malformed JSON."""


def unreadable(why: object) -> PrometheusBadResponse:
    """Return the error for a response that cannot be decoded."""
    return PrometheusBadResponse(f"Prometheus' response cannot be read: {why}; is this the address of a Prometheus?")


class ListReader(abc.ABC, Generic[T]):
    """Decodes the entries of a list in pieces; subclasses reduce them to what is needed."""

    start: ClassVar[re.Pattern[bytes]]
    """Matches up to the bracket of the list."""
    next: ClassVar[re.Pattern[bytes]]
    """Matches the end of an entry and, in its group, the brace of the following one; never inside a string."""

    def __init__(self) -> None:
        self._head: bytes | None = None  # up to the bracket
        self._rest = b""

    def feed(self, piece: bytes) -> int:
        """Decode the next piece; return the bytes of memory that its entries take, about.

        Raises:
            PrometheusError: it is no part of such a list.
        """
        self._rest += piece
        if self._head is None:
            begin = self.start.search(self._rest, 0, _MAX_HEAD)
            if begin is None:
                if len(self._rest) > _MAX_HEAD:
                    raise unreadable("it begins with no result")
                return 0
            self._head, self._rest = self._rest[: begin.end()], self._rest[begin.end() :]
            self.check_head(self._head)
        position, end = 0, 0
        # Not finditer: in Python 3.11 its garbage keeps memory from being returned to the system.
        while (found := self.next.search(self._rest, position)) is not None:
            end, position = found.start() + 1, found.start(1)
        if not end:
            if len(self._rest) > _MAX_ENTRY:
                raise unreadable("an entry is too long")
            return 0
        block, self._rest = self._rest[:end], self._rest[position:]
        try:
            return self.take(b"[" + block + b"]")
        except UNREADABLE as error:
            raise unreadable(error) from error

    @property
    def rest(self) -> bytes:
        """The response without the entries that were decoded, as JSON; malformed if the response was."""
        return (self._head or b"") + self._rest

    def clear(self) -> None:
        """Drop all data, which the tracebacks of errors would otherwise keep alive."""
        self._rest = b""

    def check_head(self, head: bytes) -> None:
        """Raise PrometheusError if the list is of another kind."""

    @abc.abstractmethod
    def take(self, entries: bytes) -> int:
        """Decode a JSON list of entries; return the bytes of memory that they take, about."""

    @abc.abstractmethod
    def finish(self) -> T:
        """Return the result after the last piece. It can take long and releases the GIL: call it in a thread.

        Raises:
            PrometheusError: the response is malformed, or an error.
        """
