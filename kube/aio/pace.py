"""Yields to the event loop during long work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

_BUSY_SECONDS: Final = 0.005
"""Without a yield. A shorter time would wait too often for other work of a busy loop."""


class Pace:
    """Yields to the event loop once it has been held for 5 ms. Call `pause` after each piece of the work."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Yield, if it is time."""
        if time.monotonic() - self._since > _BUSY_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let the event loop do other work every few milliseconds, and after the last one."""
    pace = Pace()
    for item in items:
        yield item
        await pace.pause()
    await asyncio.sleep(0)
