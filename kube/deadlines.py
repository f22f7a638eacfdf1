"""Deadlines of work that seldom waits: a timer costs more than most responses from a cache."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

_T = TypeVar("_T")


def after(seconds: float) -> float:
    """Return the deadline that is some seconds from now. Deadlines are seconds on the clock of the event loop."""
    return asyncio.get_running_loop().time() + seconds


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline; negative once it has passed."""
    return deadline - asyncio.get_running_loop().time()


def timeout_at(deadline: float) -> asyncio.Timeout:
    """Return asyncio.timeout_at, with no timer for an infinite deadline."""
    return asyncio.timeout_at(None if deadline == math.inf else deadline)


class DeadlineExceeded(TimeoutError):
    """The work was cancelled at its deadline; any other TimeoutError is the work's own."""


async def before(deadline: float, work: Coroutine[Any, Any, _T]) -> _T:
    """The outcome of `work`, which is cancelled if it still waits for something at the deadline.

    As `timeout_at`, but work that never waits sets no timer.

    Args:
        deadline: on the clock of the event loop; infinite for none.
        work: a coroutine that has not been started.

    Raises:
        DeadlineExceeded: the work did not end in time.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    try:
        async with timeout_at(deadline) as timeout:
            return await _Rest(work, waits_for)
    except TimeoutError as error:
        if timeout.expired():
            raise DeadlineExceeded from error
        raise


class _Rest(Generic[_T]):
    """A coroutine that has been started, from what it waits for on; PEP 380's delegation, begun in the middle."""

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
            except BaseException as error:  # noqa: BLE001 - the work's to handle, cancellation above all
                failure = error
            try:
                waits_for = work.send(sent) if failure is None else work.throw(failure)
            except StopIteration as done:
                return cast("_T", done.value)
