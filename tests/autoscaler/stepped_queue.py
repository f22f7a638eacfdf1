"""The work queue of a controller on a clock that a test advances, so that its reconciliations can be counted."""

from collections.abc import Callable

import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop import controller
from kube.workqueue import WorkQueue
from tests.eventually import eventually


class SteppedQueue:
    """The queue of the next controller."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1024.0
        self._queue: WorkQueue[HPAKey] | None = None
        self._spread = 0
        monkeypatch.setattr(controller, "WorkQueue", self._create)

    def _create(self, *, tick: float, on_lag: Callable[[float], None]) -> WorkQueue[HPAKey]:
        stepped = self

        class Queue(WorkQueue[HPAKey]):
            def move(self, key: HPAKey, delay: float) -> None:
                super().move(key, delay)
                stepped._spread += 1

        self._queue = Queue(tick=tick, clock=lambda: self._now, on_lag=on_lag)
        return self._queue

    async def started(self, keys: int) -> None:
        """Wait until the controller has spread the first reconciliations of that many HPAs."""

        async def spread() -> bool:
            return self._spread == keys

        await eventually(spread, every=0.01)

    async def advance(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Let all HPAs be reconciled that are due after `seconds`; wait for `until`, and for them to end."""
        queue = self._queue
        assert queue is not None
        self._now += seconds
        queue.restart()

        async def ended() -> bool:
            return until() and queue.processing == 0

        await eventually(ended, every=0.01)
