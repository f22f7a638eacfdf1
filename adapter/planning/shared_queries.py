"""Queries, each sent once however many requests need it; see adapter.planning.fresh.

A shared query gets the latest deadline of its current waiters, and Prometheus gets it as `timeout`, so that it does not
go on after the last of them has left. Each request waits until its own deadline; one that joined later, with a later
deadline, sends the query again, and so does one that joined a query that was refused because too many queries of
another namespace wait. Background queries have the time that the server's options allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from adapter.fairness import current_namespace
from adapter.planning.fresh import Fresh, Kept
from adapter.planning.rule_queries import InstantQueries
from adapter.planning.sample_index import ObjectLabels, asked_of, indexed, objects_of
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBusy,
    PrometheusError,
    PrometheusTimeout,
    Scalar,
    Vector,
)
from kube.deadlines import NO_DEADLINE, Deadline

_Key = tuple[str, Destination]

Outcome = Vector | Scalar | PrometheusError
"""What came of a query."""

# Samples that are kept of all answers together; each takes some 500 bytes, and one that takes more counts as several.
_MAX_SAMPLES = 200_000
_SAMPLE_BYTES = 500
# How much before its deadline a query may be called out of time; Prometheus is told milliseconds.
_EARLY_SECONDS = 0.01


class _OutOfTime(PrometheusTimeout):
    """The deadline of the query's waiters has passed; means nothing to a caller with a later one."""

    def __init__(self, error: PrometheusTimeout, deadline: Deadline) -> None:
        super().__init__(str(error))
        self.deadline = deadline


class SharedQueries:
    """Evaluates queries once for all concurrent callers, and caches results. Use as an async context manager."""

    def __init__(self, prometheus: InstantQueries, *, freshness: float) -> None:
        """`freshness` is for how many seconds an answer is given again; 0 for never."""
        self._prometheus = prometheus
        # The deadlines of those who wait, by what they wait for.
        self._waiting: dict[_Key, list[Deadline]] = {}
        self._answers: Fresh[Vector | Scalar] = Fresh(
            period=freshness,
            weigh=_weight,
            max_weight=_MAX_SAMPLES,
            keeps=_concerns_all,
            parts=lambda result: result.samples if isinstance(result, Vector) else (),
        )

    async def __aenter__(self) -> Self:
        await self._answers.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep nothing any more; requests that are still under way have their queries sent."""
        await self._answers.__aexit__(None, None, None)

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector | Scalar:
        """See PrometheusServers.instant."""
        key = (query, destination)
        return (await self._within(deadline, key, lambda: self._fetched(key, query, destination))).value

    def ready(self, query: str, destination: Destination) -> Vector | Scalar | None:
        """The answer to a query if it is fresh, without waiting."""
        kept = self._answers.current((query, destination))
        return kept.value if kept is not None else None

    def fetch(
        self, query: str, destination: Destination, *, objects: ObjectLabels | None, observe: Callable[[Outcome], None]
    ) -> None:
        """Have a query answered in the background, now and again as long as somebody takes its answers.

        Args:
            query: PromQL.
            destination: where it goes.
            objects: the labels of the objects that the answers are indexed by, if they are of objects.
            observe: is told what came of it, each time that it was sent.
        """
        key = (query, destination)

        async def ask() -> Vector | Scalar:
            try:
                result = await self._fetched(key, query, destination, objects=objects)
            except PrometheusError as error:
                observe(error)
                raise
            observe(result)
            return result

        self._answers.fetch(key, ask)

    def keeps(self, query: str, destination: Destination, result: Vector) -> bool:
        """Whether a query's answer is kept; where it is too long, every request has to ask for it again."""
        return self._answers.fits((query, destination), result)

    async def _fetched(
        self, key: _Key, query: str, destination: Destination, *, objects: ObjectLabels | None = None
    ) -> Vector | Scalar:
        # What it was searched by until now it will be searched by; the answer itself may go meanwhile.
        before = self._answers.known(key)
        labels, all_objects = asked_of(before), {*objects_of(before), *((objects,) if objects is not None else ())}
        del before
        result = await self._ask(key, query, destination)
        return await indexed(result, labels, all_objects) if isinstance(result, Vector) else result

    async def _ask(self, key: _Key, query: str, destination: Destination) -> Vector | Scalar:
        """Send a query, with the latest deadline of its current waiters; one without waiters has no limit."""
        deadline = max(self._waiting.get(key, ()), default=NO_DEADLINE)
        try:
            return await self._prometheus.instant(query, deadline=deadline, destination=destination)
        except PrometheusTimeout as error:
            left = deadline.remaining()
            if left is None or left > _EARLY_SECONDS:
                raise
            raise _OutOfTime(error, deadline) from error

    async def _within(
        self, deadline: Deadline, key: _Key, ask: Callable[[], Awaitable[Vector | Scalar]]
    ) -> Kept[Vector | Scalar]:
        seconds = deadline.remaining()
        if seconds is not None and seconds <= 0:
            raise PrometheusTimeout("no time was left for the query")
        kept = self._answers.current(key)
        if kept is not None:
            return kept
        waiting = self._waiting.setdefault(key, [])
        waiting.append(deadline)
        try:
            async with deadline.timeout():
                while True:
                    try:
                        return await self._answers.get(key, ask)
                    except _OutOfTime as error:
                        if error.deadline >= deadline:
                            raise
                    except PrometheusBusy as error:
                        if error.namespace == current_namespace():
                            raise
        except TimeoutError as error:
            raise PrometheusTimeout(f"no answer within {seconds:.3g} s") from error
        finally:
            waiting.remove(deadline)
            if not waiting:
                del self._waiting[key]


def _concerns_all(failure: Exception) -> bool:
    return not isinstance(failure, (_OutOfTime, PrometheusBusy))


def _weight(result: Vector | Scalar) -> int:
    return max(len(result.samples), result.memory // _SAMPLE_BYTES) + 1 if isinstance(result, Vector) else 1
