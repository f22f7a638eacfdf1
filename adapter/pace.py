"""Yields to the event loop during long work."""

from __future__ import annotations

import asyncio
import time

_BUSY_SECONDS = 0.005


class Pace:
    """Yields to the event loop once it has been held for 5 ms. Call `pause` after each piece of the work."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Yield, if it is time."""
        if time.monotonic() - self._since > _BUSY_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
