"""Replays in several processes. Each process gets the load once, and candidates are sent to it."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Final, Self, TypeVar

from replay.tune.evaluation import Figures, Problem, Run, evaluate

_T = TypeVar("_T")

_SPAWN: Final = multiprocessing.get_context("spawn")


class Pool:
    """Processes for any function; with one job, this process. Calls that have not begun at the end are cancelled."""

    def __init__(
        self, *, jobs: int, initializer: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
    ) -> None:
        """`initializer` is called in each new process, with `arguments`."""
        self._pool = ProcessPoolExecutor(jobs, _SPAWN, initializer, arguments) if jobs > 1 else None
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


class Workers(Pool):
    """Processes that replay; with one job, this process.

    Args:
        problem: the same for all replays.
        jobs: how many processes.
    """

    def __init__(self, problem: Problem, *, jobs: int) -> None:
        self._problem = problem
        self._interrupted = _SPAWN.Event() if jobs > 1 else None
        super().__init__(jobs=jobs, initializer=_set_up, arguments=(problem, self._interrupted))

    def __exit__(self, *error: object) -> None:
        if self._interrupted is not None:
            self._interrupted.set()
        super().__exit__(*error)

    def run(self, runs: Sequence[Run]) -> list[tuple[Figures, ...]]:
        """Return the figures of each day of each run. After a KeyboardInterrupt, there are no others."""
        if self._interrupted is None:
            return [evaluate(self._problem, run) for run in runs]
        return [future.result() for future in [self.submit(_evaluate, run) for run in runs]]


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
