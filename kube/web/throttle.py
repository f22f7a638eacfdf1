"""Throttle the work for pages: one caller at a time, for at most a quarter of the time.

A change may concern all open pages at once. Each needs some milliseconds, in which the process does no other work, so a
hundred of them at once would delay it by most of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_PAUSE: Final = 3.0  # x the duration of the slot before
_MAX_PAUSE_SECONDS: Final = 1.0


class Throttle:
    """Lets one caller at a time compute, in the order of their requests, for at most a quarter of the time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for the slot, and hold it as long as the context. Do not wait for clients or other servers in it."""
        await self._lock.acquire()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            yield
        finally:
            pause = min((loop.time() - started) * _PAUSE, _MAX_PAUSE_SECONDS)
            loop.call_later(pause, self._lock.release)
