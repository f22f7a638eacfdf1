"""The workers: who takes HPAs from the queue and takes their steps, so many at the same time and no more.

A worker is there to observe, decide and scale. Where the budget for requests is short, a step that only waits for its
turn to store a status does not hold one: the worker takes the next HPA, which may have to be scaled, and the rest of
the step is a task of its own. The HPA stays in work until that has ended, so there are never more such tasks than HPAs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from autoscaler.core.model import HPAKey
from autoscaler.loop.queue import WorkQueue

_Rest: TypeAlias = "Callable[[], Coroutine[None, None, None]]"

_FEWEST_WORKERS, _HPAS_PER_WORKER = 5, 100
_HIRE_SECONDS = 1.0


def workers_for(hpas: int) -> int:
    """How many workers so many HPAs have, unless somebody says otherwise."""
    return _FEWEST_WORKERS + hpas // _HPAS_PER_WORKER


class Workers:
    """Takes steps.

    Args:
        queue: tells whose turn it is.
        step: takes a step of an HPA. What it returns is the rest of the step, for which a worker is not needed; None:
            there is none. Neither may fail.
        wanted: how many workers there should be; they become more but not fewer.
    """

    def __init__(
        self, queue: WorkQueue, *, step: Callable[[HPAKey], Awaitable[_Rest | None]], wanted: Callable[[], int]
    ) -> None:
        self._queue = queue
        self._step = step
        self._wanted = wanted
        self._busy = 0

    @property
    def busy(self) -> int:
        """How many steps a worker is at; those that only have their rest to do are not counted."""
        return self._busy

    async def run(self, stop: asyncio.Event) -> None:
        """Take steps until `stop` is set, which closes the queue; return when all that were begun have ended."""
        async with asyncio.TaskGroup() as tasks:
            hired = 0
            while not stop.is_set():
                for _ in range(self._wanted() - hired):
                    tasks.create_task(self._work(tasks))
                    hired += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(_HIRE_SECONDS):
                        await stop.wait()
            self._queue.close()

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        while (key := await self._queue.get()) is not None:
            rest = None
            self._busy += 1
            try:
                rest = await self._step(key)
            finally:
                self._busy -= 1
                if rest is None:
                    self._queue.done(key)
            if rest is not None:
                # The key is given back even if the task is cancelled before it begins.
                tasks.create_task(rest()).add_done_callback(partial(self._done, key))

    def _done(self, key: HPAKey, _: object) -> None:
        self._queue.done(key)
