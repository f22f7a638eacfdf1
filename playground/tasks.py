"""Tasks that belong to a context."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` beside the body of the context, and cancel it at the end; where it failed, that is raised there.

    Unlike a TaskGroup it leaves the body's errors as they are, and does not end the body when the work fails: a body
    that goes on for long looks at the task.
    """
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
