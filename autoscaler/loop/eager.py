"""Eager mode: look at the metrics of an HPA every second, and reconcile it at once if that scales it up.

A look fetches the metrics, takes pods from the watch and the scale from the last reconciliation, and decides. It
changes nothing: no recommendation, no status, no record, and not the time of the next sync. If its decision is to scale
up, the HPA is reconciled; that reads the scale, decides again, and has no effect either unless it scales up. So every
scale-up is one that a sync at that moment would have made, and only syncs scale down.

The HPAs of a namespace are looked at together, so that their queries are coalesced. A look that fails, and a scale-up
that cannot be written, are repeated after a second, then two, and so on up to a sync period. While there are more HPAs
than `looks_per_second`, each namespace has an equal share of these, and its HPAs are looked at less often. So are all
HPAs while reconciliations or looks start late, because the process has too little CPU.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from autoscaler.core.config import Mode
from autoscaler.core.decide import decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import History
from autoscaler.core.model import HPA, HPAKey
from autoscaler.core.observation import Observation, Pod, Scale
from autoscaler.loop.observe import Observer
from autoscaler.settings import EagerSettings
from kube.aio.fairness import enter_namespace
from kube.api.retries import Backoff
from kube.cache.label_index import SelectorIndex
from kube.controller.workqueue import WorkQueue, run_workers

_log = logging.getLogger(__name__)

_TICKS: Final = 10
"""The looks of an interval are spread over so many times."""
_TOGETHER: Final = 50
"""HPAs of a namespace that are looked at together: about as many as one request can have selectors."""
_SECONDS_PER_LATE_SECOND: Final = 10.0
"""How much longer the interval of looks is for each second by which reconciliations and looks are late."""
_LATENESS_WEIGHT: Final = 0.05
"""Of the last one in their mean."""
_MOST_LATE_SECONDS: Final = 1.0
"""One that was later counts as so late, for example after the machine was suspended."""


class Look(StrEnum):
    """The result of a look, a label of metrics."""

    NONE = "none"
    """Nothing to do before the next sync."""
    SCALE_UP = "scale_up"
    """The HPA is reconciled at once."""
    FAILED = "failed"
    """A metric failed or took too long."""


@dataclass(slots=True)
class _Watched:
    """An eager HPA."""

    observation: Observation
    """The last one, with the scale as it was last read or written."""
    backoff: Backoff
    weight: int = 0
    """How many looks one of this HPA counts for."""
    failing: bool = False
    reconciling: bool = False
    calm: bool = False
    """With this observation, time alone changes nothing before the next sync."""
    looked_at: float = -math.inf


class EagerLooks:
    """Looks at eager HPAs, during one term as leader.

    Args:
        hpa: returns an HPA as it is now; None: it was deleted.
        is_eager: returns whether an HPA is eager.
        observer: fetches metrics, behind the requests of syncs.
        history: returns the history of an HPA.
        selectors: the selectors of all HPAs' targets.
        on_scale_up: called with each HPA to reconcile at once; `reconciled` must follow.
        on_look: called with the result of each look.
        longest_delay: seconds between two looks that fail, at most; a sync period.
        settings: see EagerSettings.
        now: returns (milliseconds since the Unix epoch, milliseconds of the histories' clock).
        clock: the current time in seconds; only differences matter.
    """

    def __init__(
        self,
        *,
        hpa: Callable[[HPAKey], HPA | None],
        is_eager: Callable[[HPA], bool],
        observer: Observer,
        history: Callable[[HPA], History],
        selectors: SelectorIndex[HPAKey],
        on_scale_up: Callable[[HPAKey], None],
        on_look: Callable[[Look], None],
        longest_delay: float,
        settings: EagerSettings,
        now: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hpa = hpa
        self._is_eager = is_eager
        self._observer = observer
        self._history = history
        self._selectors = selectors
        self._on_scale_up = on_scale_up
        self._on_look = on_look
        self._longest_delay = longest_delay
        self._settings = settings
        self._now = now
        self._clock = clock
        self._tick = settings.interval_seconds / _TICKS
        self._watched: dict[HPAKey, _Watched] = {}
        self._weights: Counter[str] = Counter()  # by namespace
        self._weight = 0
        self._lateness = 0.0
        self._queue: WorkQueue[HPAKey] = WorkQueue(
            tick=self._tick,
            namespace=lambda key: key.namespace,
            limit=lambda: len(self._watched),
            clock=clock,
            on_lag=self._was_late,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop` is set."""
        await run_workers(self._queue, self._run_look, stop=stop)

    def decided(self, decision: Decision, mode: Mode, written: int | None) -> None:
        """Process a reconciliation of an HPA; `written`: the replicas that were written to its scale, if any."""
        observation = decision.observation
        hpa, scale = observation.hpa, observation.scale
        if not self._is_eager(hpa) or mode is not Mode.ACT or observation.responses is None:
            self.forget(hpa.key)
            return
        assert isinstance(scale, Scale)
        if written is not None:
            observation = replace(observation, scale=replace(scale, spec_replicas=written))
        watched = self._watched.get(hpa.key)
        is_new = watched is None
        if watched is None:
            backoff = Backoff(self._settings.interval_seconds, self._longest_delay)
            watched = self._watched[hpa.key] = _Watched(observation, backoff)
        watched.observation, watched.calm, watched.reconciling = observation, False, False
        pods = len(observation.pods) if isinstance(observation.pods, tuple) else 0
        self._weigh(hpa.key, watched, max(1, pods // self._settings.pods_per_look))
        if is_new:
            self._queue.add_after(hpa.key, self._delay(hpa.key, watched))

    def reconciled(self, key: HPAKey, *, scaled: bool) -> None:
        """Process the reconciliation that a look has caused."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.reconciling, watched.failing = False, not scaled
            self._queue.move(key, self._delay(key, watched))

    def _was_late(self, seconds: float) -> None:
        """Note by how much a look started later than it was due. Reconciliations also wait for workers."""
        self._lateness += _LATENESS_WEIGHT * (min(seconds, _MOST_LATE_SECONDS) - self._lateness)

    def pod_became_ready(self, pod: Pod) -> None:
        """Look at the HPAs of a pod soon, unless looks at them fail; at most twice as often, if its readiness flaps."""
        if not self._watched:
            return
        for key in self._selectors.matching(pod.namespace, pod):
            watched = self._watched.get(key)
            if watched is not None and not watched.failing:
                since = self._clock() - watched.looked_at
                self._queue.add_after(key, max(self._tick, self._interval(key, watched) / 2 - since))

    def forget(self, key: HPAKey) -> None:
        """Stop looking at an HPA."""
        watched = self._watched.pop(key, None)
        if watched is not None:
            self._weigh(key, watched, 0)

    async def _run_look(self, key: HPAKey) -> None:
        watched, hpa = self._watched.get(key), self._hpa(key)
        if watched is None or hpa is None or hpa.problem:
            self.forget(key)
            return
        watched.looked_at = self._clock()
        if not watched.reconciling:
            enter_namespace(key.namespace)
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    result = await self._look(hpa, watched)
            except TimeoutError:
                result = Look.FAILED
            except Exception:  # noqa: BLE001  # a bug: the other HPAs must go on
                _log.exception("%s: internal error", key)
                result = Look.FAILED
            self._on_look(result)
            if self._watched.get(key) is not watched:
                return  # deleted meanwhile, or not eager any more
            if result is Look.SCALE_UP:
                watched.reconciling = True  # and failing as before, until it is scaled
                self._on_scale_up(key)
            else:
                watched.failing = result is Look.FAILED
        self._queue.add_after(key, self._delay(key, watched))

    async def _look(self, hpa: HPA, watched: _Watched) -> Look:
        before = watched.observation
        observation = await self._observer.look(hpa, before)
        if watched.observation is not before or watched.reconciling:
            return Look.NONE  # reconciled meanwhile
        is_same = observation.responses == before.responses and observation.pods == before.pods
        if watched.calm and is_same and observation.hpa is before.hpa:
            return Look.NONE
        now_ms, monotonic_ms = self._now()
        decision = decide(observation, self._history(hpa), now_ms, monotonic_ms=monotonic_ms)
        if decision.error is not None:
            return Look.FAILED
        if decision.is_early_scale_up:
            return Look.SCALE_UP
        normalized = decision.normalized
        watched.observation = observation
        watched.calm = normalized is not None and normalized.proposed_replicas <= (decision.current_replicas or 0)
        return Look.NONE

    def _delay(self, key: HPAKey, watched: _Watched) -> float:
        """Seconds until the next look: after an interval, when others of its namespace are due, too."""
        if watched.failing:
            return watched.backoff.next()
        watched.backoff.reset()
        groups = math.ceil(self._weights[key.namespace] / _TOGETHER)
        group = zlib.crc32(key.namespace.encode()) + zlib.crc32(key.name.encode()) % groups
        now, least = self._clock(), self._settings.interval_seconds
        # Whole seconds, so that HPAs whose intervals differ a little are due together.
        step = least * max(1, round(self._interval(key, watched) / least))
        phase = group % round(step / self._tick) * self._tick
        # Half an interval less: a look ends somewhat after it was due. Half a tick less: the queue rounds up.
        rounds = math.floor((now + step / 2 - phase) / step) + 1
        return rounds * step + phase - self._tick / 2 - now

    def _interval(self, key: HPAKey, watched: _Watched) -> float:
        """Seconds from one look at an HPA to the next."""
        settings = self._settings
        seconds = settings.interval_seconds * watched.weight
        if self._weight > settings.looks_per_second:
            seconds = max(seconds, self._weights[key.namespace] * len(self._weights) / settings.looks_per_second)
        return seconds + _SECONDS_PER_LATE_SECOND * self._lateness

    def _weigh(self, key: HPAKey, watched: _Watched, weight: int) -> None:
        change, watched.weight = weight - watched.weight, weight
        self._weight += change
        self._weights[key.namespace] += change
        if not self._weights[key.namespace]:
            del self._weights[key.namespace]
