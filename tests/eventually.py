"""Waiting in tests for something that another process or task brings about."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


PATIENCE = 60.0
"""Seconds to wait for an event that must come, on a machine that is busy. It is never part of what is tested."""


async def eventually(check: Callable[[], Awaitable[T]], *, within: float = PATIENCE, every: float = 0.1) -> T:
    """Call `check` until what it returns is true; that is returned.

    An AssertionError of `check` means not yet. After `within` seconds, which are never fewer than PATIENCE, the last
    one is raised, or one that shows what was returned last.
    """
    within = max(within, PATIENCE)
    deadline = asyncio.get_running_loop().time() + within
    while True:
        try:
            result = await check()
            assert result, f"still {result!r}"
        except AssertionError as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise AssertionError(f"not within {within:g} s: {error}") from error
            await asyncio.sleep(every)
        else:
            return result


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; see `eventually`."""

    async def holds() -> bool:
        return condition()

    await eventually(holds, every=0.01)
