"""Events of a page that consists of a few parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from kube.web.event_stream import ServerEvent

CheckAccess: TypeAlias = Callable[[], Awaitable[None]]
"""Raises StatusError if the user may no longer see the page."""


async def changed_parts(
    parts: Callable[[], Awaitable[Mapping[str, str]]], check_access: CheckAccess, *, tick_seconds: float
) -> AsyncIterator[ServerEvent]:
    """Yield the parts of a page, {name: HTML}: first all of them, then those that have changed."""
    shown: Mapping[str, str] = {}
    while True:
        await check_access()
        now = await parts()
        new = [html for name, html in now.items() if shown.get(name) != html]
        if new:
            yield ServerEvent("replace", "\n".join(new))
        shown = now
        await asyncio.sleep(tick_seconds)
