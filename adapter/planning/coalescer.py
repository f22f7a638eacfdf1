"""Coalesce requests for different objects of a metric into one query for all objects.

If a rule gets two different requests within a minute, one query serves them all from its cached result. It has no
matchers of objects and namespaces, and is grouped by both. The query for an external metric is grouped by its namespace
label and by the labels that selectors compare. Every request gets the same value as from its own query:

- only queries whose value for an object depends on that object's series alone are coalesced; see `metric_queries`
- an object with several values in the coalesced result is queried alone

Requests wait for a coalesced query only if its last result has expired with a new sample (`sample_times`), which takes
little time. It is sent in the background, requests are sent alone until its result is cached, and it is refreshed ahead
for as long as it has hits. Requests are sent alone for five minutes

- if it fails while they succeed alone; after an outage of Prometheus, they are coalesced at once
- if its result is too large for the cache
- if it costs more than it saves: its results of two minutes in a row took Prometheus longer than the requests that they
  served would have taken alone. After the first minute one request is sent alone, because Prometheus may have become
  slower since the last one.

With a rule's `merge: always`, coalescing starts with the first request, includes queries that are not known to be
separable, and is never paused for its cost. `merge: never` disables it.
"""

from __future__ import annotations

import enum
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from adapter.planning.metric_queries import CoalescedQuery, MetricQuery, may_be_coalesced
from adapter.planning.vectors import IndexedVector, Outcome, VectorCache
from adapter.prometheus import PrometheusError
from adapter.rules import Merge, Rule
from adapter.telemetry import RuleTelemetry
from kube.aio.fairness import for_all_namespaces

_log = logging.getLogger(__name__)

_MAX_GROUPS = 1_000
# Clients choose selectors, which can be as long as a URL, and each group stores its own.
_MAX_SELECTOR = 1_000
# Two different requests within this time start coalescing. By default HPAs are reconciled every 15 seconds.
_WINDOW_SECONDS = 60.0
_PAUSE_SECONDS = 300.0
# The maximum count of different requests that one result serves.
_MAX_SERVED = 10_000
# The weight of the last query in the moving average of the seconds that queries for one request take.
_LAST = 0.2


class Pause(enum.Enum):
    """Why the requests of a group are sent alone for a while: the label of a metric, and the reason in words."""

    COST = "cost", "the coalesced query costs more than it saves"
    FAILURE = "failure", "the coalesced query fails"
    TOO_LONG = "too-long", "the coalesced query's result is too large for the cache"

    def __init__(self, label: str, text: str) -> None:
        self.label = label
        self.text = text

    @property
    def is_problem(self) -> bool:
        """True if a change of the rule could end it. It is no problem of a rule that few requests are cheaper alone."""
        return self is not Pause.COST


@dataclass(slots=True, eq=False)
class _Group:
    """The requests that one coalesced query of a rule can serve."""

    rule: Rule
    """The rule."""
    query: CoalescedQuery | None = None
    """The coalesced query, made when it is first needed; None if there can be none."""
    is_made: bool = False
    """It has been made."""
    paused: Pause | None = None
    """Why requests are sent alone for a while, or None."""
    logged: set[Pause] = field(default_factory=set)
    """The reasons that were logged."""
    _paused_until: float = -math.inf
    # Of this minute: two different requests (their hashes), the requests that results served, the seconds of queries.
    _since: float = -math.inf
    _requests: set[int] = field(default_factory=set)
    _served: int = 0
    _seconds: float = 0.0
    _were_different: bool = False  # the requests of the minute before
    _served_by_last: set[int] = field(default_factory=set)
    _alone_seconds: float = math.inf
    _alone_succeed: bool = False  # requests since the last result
    _cost_more: bool = False  # the results of the minute before
    _measures_alone: bool = False  # the next request

    def note(self, request: str, *, now: float) -> bool:
        """Count a request; return whether to coalesce it. `now` is in seconds, and monotonic."""
        if now - self._since > _WINDOW_SECONDS:
            self._end_window(now)
        if len(self._requests) < 2:
            self._requests.add(hash(request))
        if self.paused is not None and now >= self._paused_until:
            self.paused = None
        if self._measures_alone:
            self._measures_alone = False
            return False
        different = len(self._requests) > 1 or self._were_different
        return self.paused is None and (different or self.rule.merge is Merge.ALWAYS)

    def hit(self, request: str) -> None:
        """Count a request that was served from the cached result."""
        if len(self._served_by_last) < _MAX_SERVED:
            self._served_by_last.add(hash(request))

    def sent_alone(self, seconds: float) -> None:
        """Record the duration of a query for one request."""
        before = self._alone_seconds
        self._alone_seconds = seconds if before == math.inf else before + _LAST * (seconds - before)
        self._alone_succeed = True

    def fetched(self, seconds: float) -> None:
        """Record the duration of the coalesced query."""
        self._count_served()
        self._seconds += seconds
        self._alone_succeed = False

    def failed(self, *, now: float) -> None:
        """Record a failure of the coalesced query."""
        if self._alone_succeed:
            self.pause(Pause.FAILURE, now=now)

    def pause(self, why: Pause, *, now: float) -> None:
        """Send every request alone for a while; log why, once for each reason."""
        if why is not self.paused and self.query is not None:
            level = logging.DEBUG if why in self.logged else logging.INFO
            self.logged.add(why)
            _log.log(level, "%s: requests are sent alone for a while: %s (%s)", self.rule, why.text, self.query.text)
        self.paused, self._paused_until = why, now + _PAUSE_SECONDS

    def _count_served(self) -> None:
        self._served += len(self._served_by_last)
        self._served_by_last.clear()

    def _end_window(self, now: float) -> None:
        """Compare what coalescing cost and saved in the last minute, and begin another one."""
        self._count_served()
        costs_more = self._seconds > self._served * self._alone_seconds  # not if no request was sent alone
        if costs_more and self.paused is None and self.rule.merge is not Merge.ALWAYS:
            if self._cost_more:
                self.pause(Pause.COST, now=now)
            else:
                self._alone_seconds, self._measures_alone = math.inf, True
        self._cost_more = costs_more
        self._were_different = len(self._requests) > 1 and now - self._since < 2 * _WINDOW_SECONDS
        self._served, self._seconds, self._since = 0, 0.0, now
        self._requests.clear()


class MetricsQueryCoalescer:
    """Decides which requests are coalesced, and returns cached results. Belongs to one version of the rules."""

    def __init__(
        self, cache: VectorCache, *, telemetry: RuleTelemetry | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns monotonic seconds."""
        self._cache = cache
        self._telemetry = RuleTelemetry() if telemetry is None else telemetry
        self._clock = clock
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()  # the least recently used first

    def paused(self) -> Iterable[tuple[str, Pause]]:
        """Yield the rule's key and the reason of each group whose requests are sent alone for a while."""
        for group in self._groups.values():
            if group.paused is not None:
                yield group.rule.key, group.paused

    async def cached(self, query: MetricQuery, deadline: float = math.inf) -> IndexedVector | None:
        """Return the cached result of the coalesced query, or a new one if a new sample of it is due.

        None: the request has to be sent alone, before its `deadline`. Its coalesced query is then sent in the
        background, if it has one that is not paused.
        """
        group = self._group(query)
        if group is None:
            return None
        rule, request = group.rule, query.requester
        coalesces = group.note(request, now=self._clock())
        if coalesces and not group.is_made:
            group.query, group.is_made = query.coalesced(), True
        coalesced = group.query
        if group.is_made and (coalesced is None or not query.is_served_by(coalesced)):
            return None
        result: IndexedVector | None = None
        if coalesces and coalesced is not None:
            result = self._cache.cached((coalesced.text, rule.destination))
            if result is None:
                with for_all_namespaces():
                    result = await self._cache.prefetch_query(
                        coalesced.text,
                        rule.destination,
                        index=query.index,
                        observe=lambda outcome: self._fetched(group, coalesced, outcome),
                        deadline=deadline,
                    )
        self._telemetry.requests[rule.key, "alone" if result is None else "merged"] += 1
        if result is not None:
            group.hit(request)
        return result

    def sent_alone(self, query: MetricQuery, seconds: float) -> None:
        """Record the duration of a query for one request."""
        group = self._group(query)
        if group is not None:
            group.sent_alone(seconds)

    def _group(self, query: MetricQuery) -> _Group | None:
        rule = query.source.rule
        # Without a cache, each object's request would send the query for all objects.
        if not self._cache.ttl or not may_be_coalesced(rule) or len(str(query.selector)) > _MAX_SELECTOR:
            return None
        key = query.group
        group = self._groups.get(key)
        if group is None or group.rule != rule:  # an object's rule can change, and keeps its key
            group = self._groups[key] = _Group(rule)
        self._groups.move_to_end(key)
        if len(self._groups) > _MAX_GROUPS:
            self._groups.popitem(last=False)
        return group

    def _fetched(self, group: _Group, query: CoalescedQuery, outcome: Outcome) -> None:
        """Record the result of a coalesced query."""
        now = self._clock()
        if isinstance(outcome, PrometheusError):
            group.failed(now=now)
        elif outcome.is_scalar:
            group.pause(Pause.FAILURE, now=now)
        elif not self._cache.fits((query.text, group.rule.destination), outcome):
            group.pause(Pause.TOO_LONG, now=now)
        else:
            group.fetched(outcome.seconds)
        is_failure = isinstance(outcome, PrometheusError) or outcome.is_scalar
        self._telemetry.coalesced_queries[group.rule.key, "failure" if is_failure else "success"] += 1
        if isinstance(outcome, PrometheusError):
            _log.debug("%s: the coalesced query %s: %s", group.rule, query.text, outcome)
