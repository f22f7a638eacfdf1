"""Queries, each sent once however many requests need it; see adapter.planning.fresh.

A query has the time of the most patient of the requests that wait when it is sent, and Prometheus is told, so that
it does not go on working for nobody. Each request waits as long as its own time lasts; whoever joined later and has
more of it asks again. What is asked for ahead has the time that the server's options allow.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Self, TypeVar

from adapter.planning.fresh import Fresh, Kept
from adapter.planning.rule_queries import InstantQueries
from adapter.planning.sample_index import asked_of, indexed
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBusy,
    PrometheusResultError,
    PrometheusTimeout,
    Sample,
    Scalar,
    Vector,
)
from adapter.turns import leaving_turns

__all__ = ["Grouped", "SharedQueries"]

T = TypeVar("T")

# Samples that are kept of all answers together; each takes some 500 bytes, and one that takes more counts as several.
_MAX_SAMPLES = 200_000
_SAMPLE_BYTES = 500
# A longer answer is sorted by objects in a thread, so that the loop goes on meanwhile.
_LONG = 2_000
# How much before its deadline a query may be called out of time; Prometheus is told milliseconds.
_EARLY_SECONDS = 0.01


class _OutOfTime(PrometheusTimeout):
    """The time of those who asked was up; says nothing to those who have more."""

    def __init__(self, error: PrometheusTimeout, deadline: float) -> None:
        super().__init__(str(error))
        self.deadline = deadline


@dataclass(frozen=True, slots=True)
class Grouped:
    """An answer by namespace and object.

    Attributes:
        samples: each object's first sample, by namespace and name; the namespace is "" for objects at the root.
        ambiguous: all samples of the objects that have several, by namespace and name together.
        size: how many samples there are.
        memory: how many bytes they take, about; 0 where nobody has estimated it.
    """

    samples: Mapping[str, Mapping[str, Sample]]
    ambiguous: Mapping[tuple[str, str], Sequence[Sample]]
    size: int
    memory: int = 0


class SharedQueries:
    """Evaluates queries for all who ask. Use as an async context manager."""

    def __init__(self, prometheus: InstantQueries, *, freshness: float) -> None:
        """`freshness` is for how many seconds an answer is given again; 0 for never."""
        self._prometheus = prometheus
        # The deadlines of those who wait, on the loop's clock, by what they wait for.
        self._waiting: dict[Hashable, list[float]] = {}
        self._answers: Fresh[Vector | Scalar] = Fresh(
            period=freshness,
            weigh=_weight,
            max_weight=_MAX_SAMPLES,
            keeps=_concerns_all,
            parts=lambda result: result.samples if isinstance(result, Vector) else (),
        )
        self._grouped: Fresh[Grouped] = Fresh(
            period=freshness,
            weigh=lambda grouped: _weight_of(grouped.size, grouped.memory),
            max_weight=_MAX_SAMPLES,
            keeps=_concerns_all,
            parts=_samples_of,
        )

    async def __aenter__(self) -> Self:
        await self._answers.__aenter__()
        await self._grouped.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._grouped.__aexit__(None, None, None)
        await self._answers.__aexit__(None, None, None)

    def forget(self) -> None:
        """Give no answer again that came before now."""
        self._answers.forget()
        self._grouped.forget()

    async def instant(
        self, query: str, *, timeout: float | None = None, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector | Scalar:
        """See PrometheusServers.instant."""
        return (await self.kept(query, timeout=timeout, destination=destination)).value

    async def kept(
        self, query: str, *, timeout: float | None = None, destination: Destination = DEFAULT_DESTINATION
    ) -> Kept[Vector | Scalar]:
        """As `instant`; also until when the same result is given again."""
        key = (query, destination)

        async def ask() -> Vector | Scalar:
            # What it was searched by until now it will be searched by; the answer itself may go meanwhile.
            labels = asked_of(self._answers.known(key))
            result = await self._ask(key, query, destination)
            return await indexed(result, labels) if isinstance(result, Vector) else result

        return await self._within(timeout, self._answers, key, ask)

    async def grouped(
        self,
        query: str,
        *,
        namespace_label: str,
        name_label: str,
        timeout: float | None = None,
        destination: Destination = DEFAULT_DESTINATION,
    ) -> Kept[Grouped]:
        """Evaluate a query for all objects at once; also until when the same result is given again.

        Args:
            query: PromQL.
            namespace_label: the label with the objects' namespaces; "" for objects at the root.
            name_label: the label with their names.
            timeout: the seconds that are left, or None.
            destination: where it goes.

        Raises:
            PrometheusError: as for `instant`; PrometheusResultError also when the result is no vector.
        """
        key = (query, namespace_label, name_label, destination)

        async def ask() -> Grouped:
            result = await self._ask(key, query, destination)
            if not isinstance(result, Vector):
                raise PrometheusResultError("the query's result is not a vector")
            size = len(result.samples)
            if size <= _LONG:
                return Grouped(*_by_object(result.samples, namespace_label, name_label), size, result.memory)
            samples = leaving_turns(result.samples)
            found = await asyncio.to_thread(_by_object, samples, namespace_label, name_label)
            return Grouped(*found, size, result.memory)

        return await self._within(timeout, self._grouped, key, ask)

    async def _ask(self, key: Hashable, query: str, destination: Destination) -> Vector | Scalar:
        """Send a query, with the time of the most patient one who waits for it; what nobody waits for has no limit."""
        clock = asyncio.get_running_loop().time
        deadline = max(self._waiting.get(key, ()), default=math.inf)
        timeout = None if deadline == math.inf else deadline - clock()
        try:
            return await self._prometheus.instant(query, timeout=timeout, destination=destination)
        except PrometheusTimeout as error:
            if clock() < deadline - _EARLY_SECONDS:
                raise
            raise _OutOfTime(error, deadline) from error

    async def _within(
        self, timeout: float | None, fresh: Fresh[T], key: Hashable, ask: Callable[[], Awaitable[T]]
    ) -> Kept[T]:
        if timeout is None:
            deadline = math.inf
        elif timeout > 0:
            deadline = asyncio.get_running_loop().time() + timeout
        else:
            raise PrometheusTimeout("no time was left for the query")
        kept = fresh.current(key)
        if kept is not None:
            return kept
        waiting = self._waiting.setdefault(key, [])
        waiting.append(deadline)
        try:
            async with asyncio.timeout_at(None if timeout is None else deadline):
                while True:
                    try:
                        return await fresh.get(key, ask)
                    except _OutOfTime as error:
                        if error.deadline >= deadline:
                            raise
        except TimeoutError as error:
            raise PrometheusTimeout(f"no answer within {timeout:.3g} s") from error
        finally:
            waiting.remove(deadline)
            if not waiting:
                del self._waiting[key]


def _concerns_all(failure: Exception) -> bool:
    return not isinstance(failure, (_OutOfTime, PrometheusBusy))


def _weight(result: Vector | Scalar) -> int:
    return _weight_of(len(result.samples), result.memory) if isinstance(result, Vector) else 1


def _weight_of(samples: int, memory: int) -> int:
    return max(samples, memory // _SAMPLE_BYTES) + 1


def _samples_of(grouped: Grouped) -> Sequence[Sample]:
    first = chain.from_iterable(by_name.values() for by_name in grouped.samples.values())
    return [*first, *chain.from_iterable(grouped.ambiguous.values())]


def _by_object(
    found: Iterable[Sample], namespace_label: str, name_label: str
) -> tuple[dict[str, dict[str, Sample]], dict[tuple[str, str], list[Sample]]]:
    """Each object's first sample, and all samples of those that have several."""
    samples: dict[str, dict[str, Sample]] = {}
    ambiguous: dict[tuple[str, str], list[Sample]] = {}
    for sample in found:
        labels = sample.labels
        namespace = labels.get(namespace_label, "") if namespace_label else ""
        name = labels.get(name_label, "")
        first = samples.setdefault(namespace, {}).setdefault(name, sample)
        if first is not sample:
            ambiguous.setdefault((namespace, name), [first]).append(sample)
    return samples, ambiguous
