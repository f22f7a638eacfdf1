"""Limit how long the requests of each namespace wait for slow queries.

kube-controller-manager reconciles the HPAs of all namespaces with five workers, and each waits for the metrics of its
HPA. So slow queries of one namespace would delay the HPAs of all others.

- Each request may wait a second for its query. Longer waits are paid from the namespace's budget, which grows by
  `seconds` a second. Without a budget a request fails: at once if the query is known to be slow, else after a moment.
- A query that timed out fails at once for a while: 15 s, then twice as long each time, up to five minutes. If its
  server responded to no other query meanwhile, the server hangs and not the query: it costs nothing and has no pause.
  Nor has a query that was sent while the server hung, because its connection may not recover with the server.

All namespaces together have the budget of eight. While it is used up, only namespaces that have used none of theirs may
wait. Requests that fail get an error, never an old value. The times of a query are recorded for each namespace, so that
no namespace can affect another's.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field

from cachetools import LRUCache
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.prometheus import PrometheusSlow, PrometheusTimeout, QueryProgress, Vector
from kube.api.retries import Backoff

_log = logging.getLogger(__name__)

_FREE_SECONDS = 1.0
# How long requests wait for a query that is not known to be slow if the namespace has no budget.
_MOMENT_SECONDS = 0.25
# A budget that is not used grows to this many seconds' worth; a debt is at most as large.
_BURST_SECONDS = 10.0
# Paid in advance for a query of unknown duration.
_UNKNOWN_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 15.0, 300.0
_ALL_TOGETHER = 8.0  # half of what may be in flight by default
_MAX_QUERIES = 4_096
_MAX_NAMESPACES = 4_096
# A namespace counts as limited until this long after its last request that failed; the metrics name so many.
_LIMITED_SECONDS = 300.0
_SHOWN_NAMESPACES = 20


@dataclass(slots=True)
class _Budget:
    """The seconds that requests may wait; negative: a debt. `refused` requests failed since the limit began."""

    rate: float
    left: float = math.inf
    at: float = 0.0
    refused: int = 0
    refused_at: float = -math.inf

    @property
    def is_full(self) -> bool:
        return self.left >= self.rate * _BURST_SECONDS

    def refill(self, now: float) -> None:
        self.left = min(self.left + self.rate * (now - self.at), self.rate * _BURST_SECONDS)
        self.at = now

    def pay(self, seconds: float) -> None:
        """Take seconds, or give them back if they are negative."""
        self.left = max(self.left - seconds, -self.rate * _BURST_SECONDS)


@dataclass(slots=True)
class _SlowQuery:
    """A query that took `seconds` more than the free ones; it fails at once until `retry_at`."""

    seconds: float = _UNKNOWN_SECONDS
    retry_at: float = -math.inf
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))


class SlowQueries(Collector):
    """The budgets of all namespaces, and their slow queries; a collector of metrics about them."""

    def __init__(self, *, seconds: float) -> None:
        """A namespace may wait `seconds` per second; 0: as long as it wants."""
        self._seconds = seconds
        self._total = _Budget(seconds * _ALL_TOGETHER)
        self._budgets: LRUCache[str, _Budget] = LRUCache(_MAX_NAMESPACES)
        self._slow: LRUCache[int, _SlowQuery] = LRUCache(_MAX_QUERIES)  # by the hash of namespace and query
        self._refused = 0
        self._hung_at = -math.inf  # the last query of a server that hung timed out

    async def wait(
        self,
        namespace: str,
        key: Hashable,
        get: Callable[[], Awaitable[Vector]],
        *,
        deadline: float,
        progress: Callable[[], QueryProgress | None],
        responded_at: Callable[[], float],
    ) -> Vector:
        """Return `get()`, the result of a query of a namespace, within the namespace's budget.

        Requests without a namespace are not limited.

        Args:
            namespace: of the request.
            key: of the query.
            get: gets the result.
            deadline: of the request.
            progress: returns that of the query, None if it is not in flight.
            responded_at: returns when the query's server responded last, by the event loop's clock.

        Raises:
            PrometheusSlow: the namespace has no budget, or the query timed out lately.
            PrometheusError: as `get`.
        """
        if not namespace or not self._seconds:
            return await get()
        loop = asyncio.get_running_loop()
        known, started = hash((namespace, key)), loop.time()
        budget = self._budgets.setdefault(namespace, _Budget(self._seconds))
        slow, paid, since = self._slow.get(known), 0.0, started
        was_hanging = self._hung_at > responded_at()
        timeout, timed_out = asyncio.timeout(None), False
        timer: asyncio.TimerHandle
        if slow is not None:
            if started < slow.retry_at:
                why = f"it timed out, and is sent again in {slow.retry_at - started:.0f} s"
                raise self._refusal(namespace, budget, why)
            if not self._may_wait(budget):
                raise self._refusal(namespace, budget, self._reason)
            paid = slow.seconds
            self._pay(budget, paid)

        def check() -> None:
            """Pay for the next seconds of the wait, or end it if nothing was paid yet."""
            nonlocal timer, paid, since
            now, sent = loop.time(), progress()
            if sent is not None:
                since = max(started, sent.since)
            may_wait = self._may_wait(budget)
            due = since + paid + (_FREE_SECONDS if may_wait or paid else _MOMENT_SECONDS)
            if now < due:
                timer = loop.call_at(min(due, now + _FREE_SECONDS), check)  # a query may wait for its slot
            elif may_wait or paid:
                paid += _UNKNOWN_SECONDS
                self._pay(budget, _UNKNOWN_SECONDS)
                timer = loop.call_later(_UNKNOWN_SECONDS, check)
            else:
                timeout.reschedule(now)

        timer = loop.call_later(_MOMENT_SECONDS, check)
        result: Vector | None = None
        try:
            async with timeout:
                result = await get()
            return result
        except TimeoutError as error:
            raise self._refusal(namespace, budget, self._reason) from error
        except PrometheusTimeout:
            timed_out = loop.time() < deadline
            raise
        finally:
            timer.cancel()
            hangs = timed_out and (was_hanging or responded_at() < since)
            if hangs:
                self._hung_at = loop.time()
            timed_out = timed_out and not hangs
            waited = 0.0 if hangs else loop.time() - since - _FREE_SECONDS
            self._pay(budget, max(waited, 0.0) - paid)
            took = waited if result is None else result.seconds - _FREE_SECONDS
            if result is not None and took <= 0:
                self._slow.pop(known, None)
            elif took > 0 or timeout.expired():
                slow = self._slow.setdefault(known, _SlowQuery())
                slow.seconds = took if result is not None or timed_out else max(took, slow.seconds)
                if timed_out and slow.retry_at <= started:  # once for all requests that share the query
                    slow.retry_at = loop.time() + slow.backoff.next()
                elif result is not None:
                    slow.backoff.reset()

    @property
    def _reason(self) -> str:
        return f"requests of the namespace may wait {self._seconds:g} s per second for slow queries"

    def _may_wait(self, budget: _Budget) -> bool:
        now = asyncio.get_running_loop().time()
        for one in (budget, self._total):
            one.refill(now)
        return budget.left > 0 and (self._total.left > 0 or budget.is_full)

    def _pay(self, budget: _Budget, seconds: float) -> None:
        budget.pay(seconds)
        self._total.pay(seconds)

    def _refusal(self, namespace: str, budget: _Budget, why: str) -> PrometheusSlow:
        now = asyncio.get_running_loop().time()
        if not _is_limited(budget):
            budget.refused = 0
            _log.warning("namespace %s: requests for slow queries fail: %s", namespace, why)
        budget.refused, budget.refused_at = budget.refused + 1, now
        self._refused += 1
        return PrometheusSlow(why)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; a namespace has a series only while it is limited."""
        yield CounterMetricFamily(
            "milliscale_adapter_slow_requests_refused",
            "Requests that failed because their query is slow: it timed out, or the namespace has no budget left.",
            value=self._refused,
        )
        family = GaugeMetricFamily(
            "milliscale_adapter_namespace_slow_requests_refused",
            "Requests of a namespace that failed because their query is slow, since it began. Only namespaces with such"
            f" a request in the last five minutes, and the {_SHOWN_NAMESPACES} with the most.",
            labels=("namespace",),
        )
        limited = [(one.refused, name) for name, one in self._budgets.items() if _is_limited(one)]
        for refused, namespace in heapq.nlargest(_SHOWN_NAMESPACES, limited):
            family.add_metric((namespace,), refused)
        yield family


def _is_limited(budget: _Budget) -> bool:
    return asyncio.get_running_loop().time() - budget.refused_at <= _LIMITED_SECONDS
