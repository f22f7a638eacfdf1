"""How late an event loop is: what holds it up holds up every request and every watch of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_INTERVAL_SECONDS = 0.02


async def watch_loop(observe: Callable[[float], None], *, interval: float = _INTERVAL_SECONDS) -> None:
    """Look every `interval` seconds, until cancelled; `observe` is told by how many seconds the loop was late."""
    loop = asyncio.get_running_loop()
    while True:
        wanted = loop.time() + interval
        await asyncio.sleep(interval)
        observe(max(loop.time() - wanted, 0.0))
