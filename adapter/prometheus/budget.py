"""Limit the memory that Prometheus' long responses take together while they are read and decoded.

Long responses are decoded while they arrive, and each counts the memory of its samples. When all together have half of
the limit, all but the largest one stop reading until memory is free again; TCP then stops the server. The largest one
is read to its end, so no response waits forever. A single response that needs more than the limit is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator

from adapter.prometheus.errors import PrometheusBadResponse

DEFAULT_BYTES = 128 * 1024 * 1024
_MIB = 1024 * 1024
# Python's free lists are spread over all used memory; only a full collection returns it to the system.
_COLLECTED_FROM = 8 * _MIB
_COLLECTED_AFTER_SECONDS = 2.0


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
