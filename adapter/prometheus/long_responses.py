"""Decode long responses while they arrive, within the memory that all of them may take together.

A JSON response has one very long list, whose text is never in memory as a whole: it is decoded in pieces, one piece of
all responses at a time, and each response counts the memory of its entries. When all together have half of the limit,
all but the largest one stop reading until memory is free again; TCP then stops the server. The largest one is read to
its end, so no response waits forever. A single response that needs more than the limit is an error.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import gc
import re
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

import aiohttp
import msgspec

from adapter.prometheus.errors import PrometheusBadResponse

DEFAULT_BYTES = 128 * 1024 * 1024
_MIB = 1024 * 1024
# Python's free lists are spread over all used memory; only a full collection returns it to the system.
_COLLECTED_FROM = 8 * _MIB
_COLLECTED_AFTER_SECONDS = 2.0

T = TypeVar("T")

_PIECE = 64 * 1024  # decoded in at most a millisecond and a half
_MAX_HEAD = 64 * 1024
_MAX_ENTRY = 256 * 1024
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding malformed JSON."""


class MemoryBudget:
    """The memory of all responses that are being read; `decoding` lets one piece be decoded at a time."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        """`limit` is in bytes, for a single response; all responses together may take 1.5 times that."""
        self.limit = limit
        self.used = 0
        self.decoding = asyncio.Lock()
        self._shares: set[Share] = set()
        self._first: Share | None = None  # the largest response, which does not wait
        self._released = asyncio.Event()
        self._collecting: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def share(self) -> Iterator[Share]:
        """Count the memory of one response, and release it at the end."""
        share = Share(self)
        self._shares.add(share)
        try:
            yield share
        except BaseException:
            if share.used >= _COLLECTED_FROM:
                self._collect_later()
            raise
        finally:
            self._shares.remove(share)
            if self._first is share:
                self._first = None
            self.used -= share.used
            self._released.set()
            self._released = asyncio.Event()

    async def wait_for_memory(self, share: Share) -> None:
        """Wait until a response may be read further."""
        while self.used > self.limit // 2:
            if self._first is None:
                self._first = max(self._shares, key=lambda other: other.used)
            if self._first is share:
                return
            await self._released.wait()

    def _collect_later(self) -> None:
        """Collect the garbage of a failed response, once its error has been reported."""
        if self._collecting is None:
            self._collecting = asyncio.get_running_loop().call_later(_COLLECTED_AFTER_SECONDS, self._collect)

    def _collect(self) -> None:
        self._collecting = None
        gc.collect()


class Share:
    """The memory of one response."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.used = 0
        self._budget = budget

    async def take(self, size: int) -> None:
        """Count further bytes of this response, and wait while all responses together exceed the limit.

        Raises:
            PrometheusBadResponse: this response alone exceeds the limit.
        """
        self.used += size
        self._budget.used += size
        if self.used > self._budget.limit:
            raise PrometheusBadResponse(
                f"Prometheus' response takes more than {self._budget.limit // _MIB} MiB of memory"
                " (--prometheus-response-memory-mb)"
            )
        await self._budget.wait_for_memory(self)


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


async def read_list(
    reader: ListReader[T], response: aiohttp.ClientResponse, first: bytes, budget: MemoryBudget, *, limit: int
) -> T:
    """Read a response of at most `limit` bytes, of which `first` has been read, in pieces.

    Raises:
        PrometheusBadResponse: it is longer, takes too much memory, or cannot be decoded.
    """
    size = len(first)
    waiting = bytearray(first)
    ended = False
    with budget.share() as share:
        try:
            while not ended:
                if size > limit:
                    raise PrometheusBadResponse(f"Prometheus' response is longer than {limit} bytes")
                ended = response.content.at_eof()
                while len(waiting) >= _PIECE or (ended and waiting):
                    async with budget.decoding:
                        taken = reader.feed(bytes(waiting[:_PIECE]))
                        await asyncio.sleep(0)  # lets other tasks run between the pieces
                    del waiting[:_PIECE]
                    await share.take(taken)
                if not ended:
                    chunk = await response.content.read(_PIECE)
                    waiting += chunk
                    size += len(chunk)
            return await asyncio.to_thread(reader.finish)
        finally:
            reader.clear()
