"""Replays in several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Final, Self, TypeVar

_T = TypeVar("_T")
_Item = TypeVar("_Item")

_SPAWN: Final = multiprocessing.get_context("spawn")


class Pool:
    """Processes for any function; with one job, this process. Calls that have not begun at the end are cancelled."""

    def __init__(self, *, jobs: int) -> None:
        self._pool = ProcessPoolExecutor(jobs, _SPAWN) if jobs > 1 else None
        self._sigterm: Any = None

    def __enter__(self) -> Self:
        if self._pool is not None and threading.current_thread() is threading.main_thread():
            # The default would leave the processes behind.
            self._sigterm = signal.signal(signal.SIGTERM, _exit)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)

    def submit(self, function: Callable[..., _T], *arguments: object) -> Future[_T]:
        """Call a function of a module; the result is that of the future."""
        if self._pool is None:
            future: Future[_T] = Future()
            future.set_result(function(*arguments))
            return future
        with _without_sigint():
            return self._pool.submit(function, *arguments)

    def map(self, function: Callable[[_Item], _T], items: Iterable[_Item]) -> list[_T]:
        """Return the results of a function for some arguments, in their order."""
        return [future.result() for future in [self.submit(function, item) for item in items]]


def _exit(number: int, _frame: Any) -> None:
    sys.exit(128 + number)


@contextlib.contextmanager
def _without_sigint() -> Iterator[None]:
    """Let processes that are started ignore Ctrl-C, which goes to all of them: the first one says when to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
