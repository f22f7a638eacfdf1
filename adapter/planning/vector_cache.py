"""The cache of Prometheus' results, by query and server.

Each version of the rules has one. Every query passes through it even with a TTL of 0 (no caching), so that concurrent
requests for the same query share it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Protocol
from weakref import WeakSet

from adapter.deadlines import NO_DEADLINE, Deadline
from adapter.planning.refresh_ahead import Fetch, RefreshAheadCache
from adapter.planning.sample_times import REFUSED_SECONDS, SampleClock
from adapter.planning.slow_queries import SlowQueries
from adapter.planning.vector_index import IndexedVector, ObjectLabels, indexed
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBusy,
    PrometheusError,
    PrometheusOptions,
    PrometheusTimeout,
    QueryProgress,
    Tenant,
    Vector,
    query_progress,
)
from adapter.settings import DEFAULTS
from kube.aio.fairness import current_namespace

Outcome = Vector | PrometheusError
"""The result of a query, or the error."""

# How long requests wait for a query that took little time before.
_DUE_SECONDS = 1.0
# The minimum size of a sample in bytes.
_SAMPLE_BYTES = 500


class InstantQueries(Protocol):
    """Evaluates queries; see PrometheusServers.instant."""

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Evaluate a query now."""


class VectorCache(RefreshAheadCache[Vector]):
    """Cached results by query and destination. Use as an async context manager."""

    def __init__(
        self,
        prometheus: InstantQueries,
        *,
        ttl: float,
        max_bytes: int = DEFAULTS.caches.results_bytes,
        slow_queries: SlowQueries | None = None,
    ) -> None:
        """`ttl` is in seconds; 0 caches nothing. `slow_queries` limits how long requests wait; None: nothing does."""
        super().__init__(
            ttl=ttl,
            size=_size,
            max_bytes=max_bytes,
            caches_failure=lambda error: not isinstance(error, PrometheusBusy),
            parts=lambda result: result.samples,
            owner=_namespace,
            due=_due,
        )
        self._ttl = ttl
        self._prometheus = prometheus
        self._slow_queries = slow_queries or SlowQueries(seconds=0)
        self._in_flight: dict[tuple[str, Destination], QueryProgress] = {}
        self._responded_at: dict[PrometheusOptions | None, float] = {}  # by the server
        self._slow: WeakSet[asyncio.Task[None]] = WeakSet()  # background queries that requests have waited for in vain

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Return a query's result; raises as PrometheusServers.instant, and PrometheusSlow."""
        key = query, destination
        if deadline.remaining() <= 0:
            raise PrometheusTimeout("no time was left for the query")
        value = self.cached(key)
        if value is not None:
            return value
        namespace = destination.tenant.namespace if destination.tenant is not None else current_namespace()
        return await self._slow_queries.wait(
            namespace,
            key,
            lambda: self._instant(query, deadline, destination),
            deadline=deadline,
            progress=lambda: self._in_flight.get(key),
            responded_at=lambda: self._responded_at.get(destination.server, -math.inf),
        )

    async def _instant(self, query: str, deadline: Deadline, destination: Destination) -> Vector:
        left = deadline.remaining()
        fetch = self._fetch(query, destination)
        while True:
            try:
                return await self.get((query, destination), fetch, deadline)
            except PrometheusBusy as error:
                # This request shared a query of another namespace, whose queue is full.
                if error.namespace == current_namespace() or destination.tenant is not None:
                    raise
            except TimeoutError as error:
                raise PrometheusTimeout(f"no response within {left:.3g} s") from error

    async def prefetch_query(
        self, query: str, destination: Destination, *, index: ObjectLabels | None, observe: Callable[[Outcome], None]
    ) -> Vector | None:
        """Send a query in the background, and refresh it for as long as its results have hits; return None.

        If there can be a new sample since the last result, wait for the new result, since the last one took little
        time; None: it failed, or takes longer. `index` has the labels by which results are indexed; `observe` is called
        with each outcome.
        """
        fetch = self._fetch(query, destination, index)

        async def observed(deadline: Deadline) -> Vector:
            try:
                result = await fetch(deadline)
            except PrometheusError as error:
                observe(error)
                raise
            observe(result)
            return result

        key = query, destination
        is_due = self.latest(key) is not None
        self.prefetch(key, observed)
        if not is_due:
            return None
        task = self._prefetching[key]
        if task not in self._slow:
            done, _ = await asyncio.wait([task], timeout=_DUE_SECONDS)
            if not done:
                self._slow.add(task)  # later requests do not wait for it
        return self.cached(key)

    def _fetch(self, query: str, destination: Destination, index: ObjectLabels | None = None) -> Fetch[Vector]:
        async def fetch(deadline: Deadline) -> Vector:
            now = asyncio.get_running_loop().time
            before = self.latest((query, destination))
            indexes: frozenset[tuple[str, ...]] = frozenset()
            clock, text, seconds = SampleClock(ttl=self._ttl, new_objects=index is not None), query, 0.0
            if isinstance(before, IndexedVector):
                indexes, clock, seconds = before.index.used, before.clock or clock, before.seconds
                text = await clock.query(query, now=now(), seconds=seconds)
            del before  # the old vector may be evicted meanwhile
            if index is not None:
                indexes |= {index}
            progress = self._in_flight[query, destination] = QueryProgress(now())
            query_progress.set(progress)
            try:
                try:
                    result = await self._prometheus.instant(text, deadline=deadline, destination=destination)
                except PrometheusBusy:
                    raise
                except PrometheusError:
                    # Whatever the longer query fails with, a proxy's rights or limits, the metric has a value.
                    if text is query:
                        raise
                    clock.give_up(now(), seconds=REFUSED_SECONDS)
                    text = query
                    result = await self._prometheus.instant(query, deadline=deadline, destination=destination)
                self._responded_at[destination.server] = now()
            finally:
                # After a call that was cancelled, another one may have begun already.
                if self._in_flight.get((query, destination)) is progress:
                    del self._in_flight[query, destination]
            if text is not query:
                # Whether it is worth to coalesce requests does not depend on what else this query has found.
                result = replace(clock.learn(result, now=now()), seconds=min(seconds, result.seconds))
            return await indexed(result, indexes, clock)

        return fetch


def _namespace(key: Hashable) -> str:
    """Return the namespace whose rule sends a query, the key of `VectorCache`; "" for a rule for all namespaces."""
    match key:
        case (str(), Destination(tenant=Tenant(namespace=namespace))):
            return namespace
    return ""


def _due(result: Vector) -> float | None:
    """Return when a result expires, by the times of its samples; see SampleClock.due."""
    clock = result.clock if isinstance(result, IndexedVector) else None
    return None if clock is None else clock.due(asyncio.get_running_loop().time())


def _size(result: Vector) -> int:
    return max(_SAMPLE_BYTES * len(result.samples), result.memory)
