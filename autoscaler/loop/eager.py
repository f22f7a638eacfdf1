"""Eager mode: evaluate the metrics of an HPA every second, and reconcile it at once if that scales it up.

An evaluation fetches the metrics, takes pods from the watch and the scale from the last reconciliation, and decides. It
changes nothing: no recommendation, no status, no record, and not the time of the next sync. If its decision is to scale
up, the HPA is reconciled; that reads the scale, decides again, and has no effect either unless it scales up. So every
scale-up is one that a sync at that moment would have made, and only syncs scale down.

The HPAs of a namespace are evaluated in batches, so that their queries are coalesced. An evaluation that fails, and a
scale-up that cannot be written, are repeated after a second, then two, and so on up to a sync period. While there are
more HPAs than `evaluations_per_second`, each namespace has an equal share of these. Evaluations are less frequent while
the event loop is late, because the process has too little CPU: syncs need it first.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from autoscaler.core.config import Mode
from autoscaler.core.decision import Decision
from autoscaler.core.model import HPA, HPAKey
from autoscaler.core.observation import Observation, Scale
from autoscaler.loop.observe import Observer
from autoscaler.settings import EagerSettings
from kube.aio.fairness import enter_namespace
from kube.api.retries import Backoff

_log = logging.getLogger(__name__)

_TICK_SECONDS: Final = 0.1
_BATCH: Final = 50
"""HPAs of a namespace that are evaluated together: about as many as one request can have selectors."""
_PODS: Final = 50
"""An evaluation counts once more for each so many pods."""
_SECONDS_PER_LATE_SECOND: Final = 10.0
"""How much longer an interval is for each second by which the event loop is late."""
_MAX_LATE_SECONDS: Final = 1.0
"""For example after the machine was suspended."""


class Result(StrEnum):
    """The result of an evaluation, a label of metrics."""

    NONE = "none"
    """Nothing to do before the next sync."""
    SCALE_UP = "scale_up"
    """The HPA is reconciled at once."""
    FAILED = "failed"
    """A metric failed or took too long."""


@dataclass(slots=True)
class _EagerHPA:
    """An eager HPA."""

    observation: Observation
    """Of the last reconciliation, with the scale as it was read or written."""
    backoff: Backoff
    retry_at: float = -math.inf
    """By the clock: the end of a backoff."""
    busy: bool = False
    """It is being evaluated."""


@dataclass(slots=True)
class _Namespace:
    """The eager HPAs of a namespace. Those from `offset` on are evaluated when they are `due`, by the clock."""

    due: float
    offset: int = 0
    evaluations: int = 1
    """How many those of all its HPAs count for."""
    hpas: dict[HPAKey, _EagerHPA] = field(default_factory=dict)


@dataclass(kw_only=True)
class EagerEvaluator:
    """Evaluates eager HPAs while this process is leader.

    Args:
        hpa: returns an HPA as it is now; None: it was deleted.
        is_eager: returns whether an HPA is eager.
        observer: fetches metrics, behind the requests of syncs.
        evaluate: decides on an observation, without any effect.
        scale_up: reconciles an HPA if that scales it up, and returns whether it did.
        on_evaluation: called with the result of each evaluation.
        max_delay: seconds from a failure to the next evaluation, at most; a sync period.
        settings: see EagerSettings.
        clock: the current time in seconds; only differences matter.
    """

    hpa: Callable[[HPAKey], HPA | None]
    is_eager: Callable[[HPA], bool]
    observer: Observer
    evaluate: Callable[[Observation], Result]
    scale_up: Callable[[HPA], Awaitable[bool]]
    on_evaluation: Callable[[Result], None]
    max_delay: float
    settings: EagerSettings
    clock: Callable[[], float] = time.monotonic
    _namespaces: dict[str, _Namespace] = field(default_factory=dict, init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Evaluate HPAs once they have been reconciled, until `stop` is set and no evaluation is in flight."""
        self._namespaces.clear()
        late = 0.0
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                started = self.clock()
                for namespace in self._namespaces.values():
                    if namespace.due <= started:
                        for key, hpa in self._next_batch(namespace, started, late):
                            tasks.create_task(self._evaluate(key, hpa))
                await asyncio.sleep(_TICK_SECONDS)
                late = min(max(0.0, self.clock() - started - _TICK_SECONDS), _MAX_LATE_SECONDS)

    def decided(self, decision: Decision, mode: Mode, written: int | None) -> None:
        """Process a reconciliation of an HPA; `written`: the replicas that were written to its scale, if any."""
        observation = decision.observation
        hpa, scale = observation.hpa, observation.scale
        if not self.is_eager(hpa) or mode is not Mode.ACT or observation.responses is None:
            self.forget(hpa.key)
            return
        assert isinstance(scale, Scale)
        if written is not None:
            scale = replace(scale, spec_replicas=written, status_replicas=written)
            observation = replace(observation, scale=scale)
        # The first evaluation is an interval after the reconciliation.
        namespace = self._namespaces.setdefault(
            hpa.namespace, _Namespace(self.clock() + self.settings.interval_seconds)
        )
        eager = namespace.hpas.setdefault(
            hpa.key, _EagerHPA(observation, Backoff(self.settings.interval_seconds, self.max_delay))
        )
        eager.observation = observation

    def forget(self, key: HPAKey) -> None:
        """Stop evaluating an HPA."""
        namespace = self._namespaces.get(key.namespace)
        if namespace is not None and namespace.hpas.pop(key, None) is not None and not namespace.hpas:
            del self._namespaces[key.namespace]

    def _next_batch(self, namespace: _Namespace, now: float, late: float) -> list[tuple[HPAKey, _EagerHPA]]:
        """Return HPAs to evaluate now; the batches of a namespace are spread over its interval."""
        hpas, settings = list(namespace.hpas.items()), self.settings
        namespace.evaluations = sum(_evaluations(each.observation) for _, each in hpas)
        seconds, total = settings.interval_seconds, sum(each.evaluations for each in self._namespaces.values())
        if total > settings.evaluations_per_second:
            seconds = max(seconds, namespace.evaluations * len(self._namespaces) / settings.evaluations_per_second)
        # At most one batch in a tick, so those of many HPAs are larger.
        batches = min(math.ceil(len(hpas) / _BATCH), math.ceil(seconds / _TICK_SECONDS))
        step = (seconds + _SECONDS_PER_LATE_SECOND * late) / batches
        namespace.due = max(namespace.due + step, now)
        start = namespace.offset if namespace.offset < len(hpas) else 0
        namespace.offset = start + math.ceil(len(hpas) / batches)
        return [(key, each) for key, each in hpas[start : namespace.offset] if not each.busy and each.retry_at <= now]

    async def _evaluate(self, key: HPAKey, eager: _EagerHPA) -> None:
        hpa, before = self.hpa(key), eager.observation
        if hpa is None or hpa.problem:
            self.forget(key)
            return
        eager.busy = True
        enter_namespace(key.namespace)
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                observation = await self.observer.refresh(hpa, before)
            # A reconciliation or a change of the HPA meanwhile is newer.
            is_current = eager.observation is before and self.hpa(key) is hpa
            result = self.evaluate(observation) if is_current else Result.NONE
            failed = result is Result.FAILED or (result is Result.SCALE_UP and not await self.scale_up(hpa))
        except TimeoutError:
            result, failed = Result.FAILED, True
        except Exception:  # noqa: BLE001  # a bug: the other HPAs must go on
            _log.exception("%s: internal error", key)
            result, failed = Result.FAILED, True
        self.on_evaluation(result)
        eager.busy = False
        if failed:
            eager.retry_at = self.clock() + eager.backoff.next()
        else:
            eager.backoff.reset()


def _evaluations(observation: Observation) -> int:
    """Return how many evaluations one of this HPA counts for."""
    return 1 + len(observation.pods) // _PODS if isinstance(observation.pods, tuple) else 1
