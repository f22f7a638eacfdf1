"""Deadlines: a timeout becomes one absolute time at the start of a request, and is passed on unchanged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Self, TypeVar

import msgspec

_T = TypeVar("_T")


class DeadlineExceeded(TimeoutError):
    """The work was cancelled at its deadline; other TimeoutErrors come from the work itself."""


class Deadline(msgspec.Struct, frozen=True, order=True):
    """An absolute time on the event loop's clock; the latest of several is their `max`."""

    at: float = math.inf
    """In seconds of `loop.time()`; infinite: no deadline."""

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline `seconds` from now; None: no deadline."""
        return cls() if seconds is None else cls(asyncio.get_running_loop().time() + seconds)

    def remaining(self) -> float:
        """Return the seconds left, at least 0; infinite: no deadline."""
        return self.at if self.at == math.inf else max(self.at - asyncio.get_running_loop().time(), 0.0)

    def timeout(self) -> asyncio.Timeout:
        """Return a context manager that cancels its body at the deadline, like `asyncio.timeout_at`."""
        return asyncio.timeout_at(None if self.at == math.inf else self.at)


NO_DEADLINE = Deadline()


async def within(deadline: Deadline, work: Awaitable[_T]) -> _T:
    """Return the result of `work`; cancel it at the deadline.

    Raises:
        DeadlineExceeded: the work did not end in time.
    """
    try:
        async with deadline.timeout() as timeout:
            return await work
    except TimeoutError as error:
        if timeout.expired():
            raise DeadlineExceeded from error
        raise
