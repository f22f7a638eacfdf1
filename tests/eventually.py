"""Waiting in tests for something that another process or task brings about."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(check: Callable[[], Awaitable[T]], *, within: float, every: float = 0.1) -> T:
    """Call `check` until what it returns is true; that is returned.

    An AssertionError of `check` means not yet. After `within` seconds the last one is raised, or one that shows what
    was returned last.
    """
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
