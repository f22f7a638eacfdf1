"""Replays in several processes. Each process gets the load once; lines of the search and candidates are sent to it."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

from replay.tune.evaluation import Evaluation, Figures, Limits, Problem, Stopped, evaluate
from replay.tune.goal import Goal, Margin
from replay.tune.line_search import Line, Trial, search_line, trial_of
from replay.tune.space import Candidate, Field

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The input of a line search that is the same for all lines."""

    target: Field | None
    goal: Goal
    margin: Margin
    given: tuple[Figures, ...]
    """The given spec's figures on the training part."""
    limits: Limits

    def search(self, line: Line, *, problem: Problem, is_interrupted: Callable[[], bool]) -> list[Trial]:
        """Search a line."""

        def trial(candidate: Candidate) -> Trial:
            parts = len(self.given)
            found = evaluate(problem, candidate, parts=parts, limits=self.limits, is_interrupted=is_interrupted)
            return trial_of(candidate, found, self.goal, self.given, excess=self.margin)

        return search_line(line, self.target, self.goal, trial)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A replay to its end."""

    candidate: Candidate
    parts: int | None = None
    """Only the first ones; None: all."""
    offset_ms: int = 0
    """How much later than otherwise each reconciliation is."""


def _evaluate(run: Run, *, problem: Problem, is_interrupted: Callable[[], bool]) -> Evaluation:
    parts = run.parts or problem.split.parts
    return evaluate(problem, run.candidate, parts=parts, offset_ms=run.offset_ms, is_interrupted=is_interrupted)


class Workers:
    """Processes that replay; with one job, this process.

    Args:
        problem: the same for all replays.
        jobs: how many processes.
    """

    def __init__(self, problem: Problem, *, jobs: int) -> None:
        self.cpu_seconds = 0.0
        """Of all evaluations that are not the search's."""
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
            if error is not None:
                self._interrupted.set()
            self._pool.shutdown(cancel_futures=True)
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)

    def evaluate(self, runs: Sequence[Run]) -> list[Evaluation]:
        """Return the evaluations of candidates, in their order."""
        found = list(self._map(_evaluate, runs))
        self.cpu_seconds += sum(each.cpu_seconds for each in found)
        return found

    def search(self, training: Training, lines: Sequence[Line]) -> Iterator[list[Trial]]:
        """Yield the trials of lines, in their order. After a KeyboardInterrupt, others can be evaluated."""
        return self._map(training.search, lines)

    def _map(self, function: Callable[..., _R], items: Sequence[_T]) -> Iterator[_R]:
        if self._pool is None:
            for item in items:
                yield function(item, problem=self._problem, is_interrupted=_never)
            return
        with _without_sigint():
            futures = [self._pool.submit(_call, partial(function, item)) for item in items]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            # The processes are to be free for what is evaluated next.
            self._interrupted.set()
            for future in futures:
                if not future.cancel():
                    _wait_for_stop(future)
            self._interrupted.clear()
            raise


def _wait_for_stop(future: Any) -> None:
    try:
        future.result()
    except (Stopped, KeyboardInterrupt, BrokenExecutor):
        return


def _exit(number: int, _frame: Any) -> None:
    sys.exit(128 + number)


def _never() -> bool:
    return False


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


def _call(function: Callable[..., _R]) -> _R:
    return function(**_PROCESS)
