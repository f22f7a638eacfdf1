"""Deadlines of requests, on the event loop's clock."""

from __future__ import annotations

import asyncio


def after(seconds: float) -> float:
    """Return the deadline some seconds from now."""
    return asyncio.get_running_loop().time() + seconds
