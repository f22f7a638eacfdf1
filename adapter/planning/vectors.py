"""Results of Prometheus, with the index that finds the samples of one request, and their cache by query and server.

Each version of the rules has one cache. Every query passes through it even with a TTL of 0 (no caching), so that
concurrent requests for the same query share it.

The result of a coalesced query or a short rule can have a hundred thousand samples, of which each request needs a few.
It is indexed by the labels of namespaces and objects, and by labels that selectors compare with `=`. Indexes of long
vectors are built in worker threads. When a vector is refreshed, the indexes that were used are built for the new vector
before it replaces the old one.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast
from weakref import WeakSet

from adapter.caches import Fetch, RefreshAheadCache
from adapter.gil import releasing_gil
from adapter.planning.sample_times import REFUSED_SECONDS, SampleClock
from adapter.planning.slow_queries import SlowQueries
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBusy,
    PrometheusError,
    PrometheusOptions,
    PrometheusTimeout,
    QueryProgress,
    Sample,
    Vector,
    query_progress,
)
from adapter.prometheus.results import sample_order
from adapter.settings import DEFAULTS
from kube.aio.fairness import current_namespace
from kube.values.selectors import LabelSelector, Operator

# How long requests wait for a query that took little time before.
_DUE_SECONDS = 1.0
# The minimum size of a sample in bytes.
_SAMPLE_BYTES = 500
# Shorter vectors are scanned, not indexed.
_SHORT = 16
# Scanning or indexing more samples takes over 0.3 ms and is done in a thread.
_FEW = 500
# An index needs at most 150 bytes per sample, so the number of indexes of a vector is limited.
_MAX_INDEXES = 4
_ONE_OF = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)

_Labels = tuple[tuple[str, str], ...]
# A single sample is not put into a list: a hundred thousand lists would take ten times the memory, and be work
# for the garbage collector.
_Samples = Sample | list[Sample]

ObjectLabels = tuple[str, str]
"""The labels that hold objects' namespaces and names; the former is "" for cluster-scoped objects."""
ObjectSamples = Mapping[str, _Samples]
"""The sample of each object by name, or its samples where it has several."""


class VectorIndex:
    """Finds the samples of one vector by label values, in the vector's order. Caches metric values made from them."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._prepared: dict[tuple[Hashable, ...], tuple[tuple[object, ...], dict[str, Any]]] = {}
        self._prepared_count = 0
        self._samples = samples
        self._by_labels: dict[tuple[str, ...], Mapping[str, Any]] = {}
        self._used: set[tuple[str, ...]] = set()
        self._names: frozenset[str] | None = None  # of all labels
        self._building = asyncio.Lock()

    @property
    def used(self) -> frozenset[tuple[str, ...]]:
        """The labels whose indexes were used."""
        return frozenset(self._used)

    async def build(self, indexes: Iterable[tuple[str, ...]]) -> None:
        """Build an index for each tuple of labels. An index for two labels is a nested mapping."""
        for labels in indexes:
            await self._by(labels)

    def objects(self, labels: ObjectLabels, namespace: str) -> ObjectSamples | None:
        """Return a namespace's objects; None before the index has been built."""
        found = self._by_labels.get(labels)
        if found is None:
            return None
        self._used.add(labels)
        objects: ObjectSamples = found.get(namespace, {})
        return objects

    async def matching(self, labels: _Labels, selector: LabelSelector) -> tuple[Sample, ...]:
        """Return the samples that have these labels and that the selector matches."""
        found: Sequence[Sequence[Sample]] = (self._samples,)
        for label, values in _required_values(labels, selector):
            count = sum(map(len, found))
            if count <= _SHORT:
                break
            if not await self._has(label):
                return ()
            by_value = await self._by((label,))
            if by_value is None:
                continue
            self._used.add((label,))
            having = [as_sequence(by_value[value]) for value in values if value in by_value]
            found = having if sum(map(len, having)) < count else found
        matching = functools.partial(_matching, found, labels, selector)
        return await asyncio.to_thread(matching) if sum(map(len, found)) > _FEW else matching()

    def prepared(self, owners: tuple[object, ...], key: tuple[str, ...]) -> dict[str, Any]:
        """Return the metric values that `prepare` has added for these owners and this key, by name.

        They are dropped with the vector. Owners, such as the source of the metric, are compared by identity.
        """
        whole = (*map(id, owners), *key)
        found = self._prepared.get(whole)
        if found is None:
            found = self._prepared[whole] = (owners, {})  # keeps the owners alive, so that their ids stay unique
        return found[1]

    def prepare(self, prepared: dict[str, Any], name: str, value: object, *, count: int = 1) -> None:
        """Add metric values. Their number is limited by that of the samples, because clients choose the keys."""
        self._prepared_count += count
        if self._prepared_count > len(self._samples) + _FEW:
            self._prepared.clear()
            self._prepared_count = count
        prepared[name] = value

    async def _by(self, labels: tuple[str, ...]) -> Mapping[str, Any] | None:
        """Return the index by labels; None if there are too many indexes."""
        if labels in self._by_labels:
            return self._by_labels[labels]
        async with self._building:
            if labels not in self._by_labels and len(self._by_labels) < _MAX_INDEXES:
                build = functools.partial(_index, self._samples, labels)
                self._by_labels[labels] = await asyncio.to_thread(build) if len(self._samples) > _FEW else build()
            return self._by_labels.get(labels)

    async def _has(self, label: str) -> bool:
        """Return whether any sample has a label, so that labels invented by clients get no index."""
        if self._names is None:
            names = functools.partial(_label_names, self._samples)
            self._names = await asyncio.to_thread(names) if len(self._samples) > _FEW else names()
        return label in self._names


@dataclass(frozen=True, slots=True)
class IndexedVector(Vector):
    """A cached vector with its index, and what is known of the times of its samples."""

    index: VectorIndex = field(kw_only=True, compare=False, repr=False)
    clock: SampleClock | None = field(default=None, kw_only=True, compare=False, repr=False)


Outcome = IndexedVector | PrometheusError
"""The result of a query, or the error."""


async def indexed(
    vector: Vector, by: Iterable[tuple[str, ...]] = (), clock: SampleClock | None = None
) -> IndexedVector:
    """Return a vector with its index, which is built by these labels."""
    index = VectorIndex(vector.samples)
    await index.build(by)
    return IndexedVector(
        vector.samples, vector.memory, seconds=vector.seconds, is_scalar=vector.is_scalar, index=index, clock=clock
    )


async def matching(vector: Vector, labels: _Labels, selector: LabelSelector) -> Vector:
    """Return the samples of a vector that have these labels and that the selector matches."""
    if not labels and selector.empty:
        return vector
    index = vector.index if isinstance(vector, IndexedVector) else VectorIndex(vector.samples)
    found = await index.matching(labels, selector)
    return Vector(found, seconds=vector.seconds, is_scalar=vector.is_scalar and bool(found))


def _index(samples: Sequence[Sample], labels: tuple[str, ...]) -> dict[str, Any]:
    *outer, last = labels
    index: dict[str, Any] = {}
    for sample in releasing_gil(samples):
        inner = index
        for label in outer:
            inner = inner.setdefault(sample.labels.get(label, ""), {})
        known = inner.setdefault(sample.labels.get(last, ""), sample)
        if isinstance(known, list):
            known.append(sample)
        elif known is not sample:
            inner[sample.labels.get(last, "")] = [known, sample]
    return index


def _required_values(labels: _Labels, selector: LabelSelector) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each label that must have one of a few values, with these values."""
    for label, value in labels:
        yield label, (value,)
    for requirement in selector.requirements:
        if requirement.operator in _ONE_OF:
            yield requirement.key, requirement.values


def as_sequence(samples: Sample | list[Sample] | None) -> Sequence[Sample]:
    """Return the samples of an object as a sequence."""
    if samples is None:
        return ()
    return samples if isinstance(samples, list) else (samples,)


def _matching(found: Sequence[Sequence[Sample]], labels: _Labels, selector: LabelSelector) -> tuple[Sample, ...]:
    samples = found[0] if len(found) == 1 else heapq.merge(*found, key=sample_order)
    return tuple(
        sample
        for sample in releasing_gil(samples)
        if all(sample.labels.get(label) == value for label, value in labels) and selector.matches(sample.labels)
    )


def _label_names(samples: Sequence[Sample]) -> frozenset[str]:
    names: set[str] = set()
    for sample in releasing_gil(samples):
        names.update(sample.labels)
    return frozenset(names)


class InstantQueries(Protocol):
    """Evaluates queries; see PrometheusServers.instant."""

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Evaluate a query now."""


class VectorCache(RefreshAheadCache[IndexedVector]):
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
            owner=lambda key: cast("tuple[str, Destination]", key)[1].tenant.namespace,
            due=_due,
        )
        self._prometheus = prometheus
        self._slow_queries = slow_queries or SlowQueries(seconds=0)
        self._in_flight: dict[tuple[str, Destination], QueryProgress] = {}
        self._responded_at: dict[PrometheusOptions | None, float] = {}  # by the server
        self._slow: WeakSet[asyncio.Task[None]] = WeakSet()  # background queries that requests have waited for in vain

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Return a query's result; raises as PrometheusServers.instant, and PrometheusSlow."""
        key = query, destination
        if deadline <= asyncio.get_running_loop().time():
            raise PrometheusTimeout("no time was left for the query")
        value = self.cached(key)
        if value is not None:
            return value
        namespace = destination.tenant.namespace or current_namespace()
        return await self._slow_queries.wait(
            namespace,
            key,
            lambda: self._instant(query, deadline, destination),
            deadline=deadline,
            progress=lambda: self._in_flight.get(key),
            responded_at=lambda: self._responded_at.get(destination.server, -math.inf),
        )

    async def _instant(self, query: str, deadline: float, destination: Destination) -> IndexedVector:
        left = deadline - asyncio.get_running_loop().time()
        fetch = self._fetch(query, destination)
        while True:
            try:
                return await self.get((query, destination), fetch, deadline)
            except PrometheusBusy as error:
                # This request shared a query of another namespace, whose queue is full.
                if error.namespace == current_namespace() or destination.tenant.namespace:
                    raise
            except TimeoutError as error:
                raise PrometheusTimeout(f"no response within {left:.3g} s") from error

    async def prefetch_query(
        self,
        query: str,
        destination: Destination,
        *,
        index: ObjectLabels | None,
        observe: Callable[[Outcome], None],
        deadline: float = math.inf,
    ) -> IndexedVector | None:
        """Send a query in the background, and refresh it for as long as its results have hits; return None.

        If there can be a new sample since the last result, wait for the new result, since the last one took little
        time; None: it failed, or takes longer than a second or half of the time until `deadline`. `index` has the
        labels by which results are indexed; `observe` is called once with each outcome.
        """
        fetch = self._fetch(query, destination, index)

        async def observed(latest: float) -> IndexedVector:
            try:
                result = await fetch(latest)
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
            left = max(deadline - asyncio.get_running_loop().time(), 0.0)
            seconds = min(_DUE_SECONDS, left / 2)  # the rest is for the request's own query
            done, _ = await asyncio.wait([task], timeout=seconds)
            if not done and seconds == _DUE_SECONDS:
                self._slow.add(task)  # later requests do not wait for it
        return self.cached(key)

    def _fetch(self, query: str, destination: Destination, index: ObjectLabels | None = None) -> Fetch[IndexedVector]:
        async def fetch(deadline: float) -> IndexedVector:
            now = asyncio.get_running_loop().time
            before = self.latest((query, destination))
            indexes: frozenset[tuple[str, ...]] = frozenset()
            clock: SampleClock | None = None  # the times of samples are learned with the first refresh
            text, seconds = query, 0.0
            if before is not None:
                clock = before.clock or SampleClock(ttl=self.ttl, new_objects=index is not None)
                indexes, seconds = before.index.used, before.seconds
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
                    if clock is None or text is query:
                        raise
                    clock.give_up(now(), seconds=REFUSED_SECONDS)
                    text = query
                    result = await self._prometheus.instant(query, deadline=deadline, destination=destination)
                self._responded_at[destination.server] = now()
            finally:
                # After a call that was cancelled, another one may have begun already.
                if self._in_flight.get((query, destination)) is progress:
                    del self._in_flight[query, destination]
            if clock is not None and text is not query:
                # Whether it is worth to coalesce requests does not depend on what else this query has found.
                result = replace(clock.learn(result, now=now()), seconds=min(seconds, result.seconds))
            return await indexed(result, indexes, clock)

        return fetch


def _due(result: IndexedVector) -> float | None:
    """Return when a result expires, by the times of its samples; see SampleClock.due."""
    return None if result.clock is None else result.clock.due(asyncio.get_running_loop().time())


def _size(result: Vector) -> int:
    return max(_SAMPLE_BYTES * len(result.samples), result.memory)
