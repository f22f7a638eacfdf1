"""Tasks that end with a context."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` concurrently with the body of the context, cancel it at the end, and raise its error there.

    Unlike a TaskGroup it does not wrap the body's errors, and does not cancel the body if the work fails: a long body
    should check the task.
    """
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
