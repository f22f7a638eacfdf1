"""Replays in several processes. Each process gets the load once, and candidates are sent to it."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import Any, Final, TypeVar

from replay.tune.evaluation import Figures, Problem, Run, evaluate

_T = TypeVar("_T")


class Workers:
    """Processes that replay; with one job, this process.

    Args:
        problem: the same for all replays.
        jobs: how many processes.
    """

    def __init__(self, problem: Problem, *, jobs: int) -> None:
        self._problem = problem
        self._interrupted: Any = None
        self._pool: ProcessPoolExecutor | None = None
        self._sigterm: Any = None
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._interrupted = context.Event()
            self._pool = ProcessPoolExecutor(jobs, context, _set_up, (problem, self._interrupted))

    def __enter__(self) -> Workers:
        if self._pool is not None and threading.current_thread() is threading.main_thread():
            # The default would leave the processes behind.
            self._sigterm = signal.signal(signal.SIGTERM, _exit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._interrupted.set()
            self._pool.shutdown(cancel_futures=True)
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)

    def run(self, runs: Sequence[Run]) -> list[tuple[Figures, ...]]:
        """Return the figures of each day of each run. After a KeyboardInterrupt, there are no others."""
        if self._pool is None:
            return [evaluate(self._problem, run) for run in runs]
        with _without_sigint():
            futures = [self._pool.submit(_evaluate, run) for run in runs]
        return [future.result() for future in futures]


class Pool:
    """Processes for any function; with one job, this process. Calls that have not begun at the end are cancelled."""

    def __init__(self, *, jobs: int) -> None:
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) if jobs > 1 else None
        self._sigterm: Any = None

    def __enter__(self) -> Pool:
        if self._pool is not None and threading.current_thread() is threading.main_thread():
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


# --- in the processes ------------------------------------------------------------------------------------------------

_PROCESS: Final[dict[str, Any]] = {}


def _set_up(problem: Problem, interrupted: Any) -> None:
    _PROCESS.update(problem=problem, is_interrupted=interrupted.is_set)


def _evaluate(run: Run) -> tuple[Figures, ...]:
    return evaluate(_PROCESS["problem"], run, is_interrupted=_PROCESS["is_interrupted"])
