"""Deadlines: a timeout becomes one absolute time at the start of a request, and is passed on unchanged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Generator
from typing import Any, Generic, Self, TypeVar, cast

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


async def within(deadline: Deadline, work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of `work`, a coroutine that has not been started; cancel it at the deadline.

    Like `deadline.timeout()`, but work that never waits sets no timer: a timer costs more than most responses from a
    cache.

    Raises:
        DeadlineExceeded: the work did not end in time.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    try:
        async with deadline.timeout() as timeout:
            return await _Rest(work, waits_for)
    except TimeoutError as error:
        if timeout.expired():
            raise DeadlineExceeded from error
        raise


class _Rest(Generic[_T]):
    """The rest of a coroutine after its first await: `yield from`, started in the middle (PEP 380)."""

    def __init__(self, work: Coroutine[Any, Any, _T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, _T]:
        work, waits_for = self._work, self._waits_for
        while True:
            failure: BaseException | None = None
            sent: Any = None
            try:
                sent = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - raised in the work, above all cancellation
                failure = error
            try:
                waits_for = work.send(sent) if failure is None else work.throw(failure)
            except StopIteration as done:
                return cast("_T", done.value)
