"""The work queue of a controller on a clock that a test advances, so that its reconciliations can be counted."""

from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop import controller
from kube.controller.workqueue import WorkQueue
from tests.eventually import eventually


class SteppedQueue:
    """The queue of the next controller."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1024.0
        self._queue: _Queue | None = None
        self._spread = 0
        monkeypatch.setattr(controller, "WorkQueue", self._create)

    def _create(self, **settings: Any) -> WorkQueue[HPAKey]:
        self._queue = _Queue(**settings, clock=lambda: self._now)
        return self._queue

    async def started(self, keys: int) -> None:
        """Wait until the controller has spread the first reconciliations of that many HPAs."""

        async def spread() -> bool:
            return self._queue is not None and self._queue.added >= keys

        await eventually(spread, every=0.01)

    async def advance(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Let all HPAs be reconciled that are due after `seconds`; wait for `until`, and for them to end."""
        queue = self._queue
        assert queue is not None
        self._now += seconds
        queue.wake_up()

        async def ended() -> bool:
            return until() and queue.processing == 0 and not queue.is_due()

        await eventually(ended, every=0.01)


class _Queue(WorkQueue[HPAKey]):
    added = 0
    is_stepped = False

    def take(self) -> HPAKey | None:
        # Not before the first step: what is reconciled before it would be due again after it.
        return super().take() if self.is_stepped else None

    def add_after(self, key: HPAKey, delay: float) -> None:
        super().add_after(key, delay)
        self.added += 1

    def is_due(self) -> bool:
        """Whether a key waits to be handed out."""
        due = self._next_due()
        return bool(self._ready) or (due is not None and due <= self._clock())

    def wake_up(self) -> None:
        """Let `get` read the clock."""
        self.is_stepped = True
        self._changed.set()
