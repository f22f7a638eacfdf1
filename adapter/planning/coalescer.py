"""Coalesce requests for different objects of a metric into one query for all objects.

If a rule gets two different requests within a minute, one query serves them all from its cached result. It has no
matchers of objects and namespaces, and is grouped by both. The query for an external metric is grouped by its namespace
label and by the labels that selectors compare. Every request gets the same value as from its own query:

- only queries whose value for an object depends on that object's series alone are coalesced; see `separable`
- an object with several values in the coalesced result is queried alone

No request waits for a coalesced query. It is sent in the background, requests are sent alone until its result is
cached, and it is refreshed ahead for as long as it has hits. If it fails, its result is too large for the cache, or it
costs Prometheus more than it saves (`coalescing_costs`), requests are sent alone for a while.

With a rule's `merge: always`, coalescing starts with the first request, includes queries that are not known to be
separable, and is never paused for its cost. `merge: never` disables it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.planning.coalescing_costs import CoalescingGroup, Pause
from adapter.planning.metric_queries import MetricQuery
from adapter.planning.vector_cache import Outcome, VectorCache
from adapter.planning.vector_index import IndexedVector
from adapter.prometheus import PrometheusError, Vector
from adapter.rules import Rule
from kube.aio.fairness import for_all_namespaces

_log = logging.getLogger(__name__)

_MAX_GROUPS = 1_000
# Clients choose selectors, which can be as long as a URL, and each group stores its own.
_MAX_SELECTOR = 1_000


class MetricsQueryCoalescer:
    """Decides which requests are coalesced, and returns cached results. Belongs to one version of the rules."""

    def __init__(
        self,
        cache: VectorCache,
        *,
        telemetry: RuleTelemetry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns monotonic seconds."""
        self._cache = cache
        self._telemetry = telemetry
        self._clock = clock
        # The least recently used first; None: the requests have no coalesced query.
        self._groups: OrderedDict[Hashable, CoalescingGroup | None] = OrderedDict()

    def paused(self) -> Iterable[tuple[str, Pause]]:
        """Yield the rule's key and the reason of each group whose requests are sent alone for a while."""
        for group in {id(group): group for group in self._groups.values() if group is not None}.values():
            if group.paused is not None:
                yield group.rule.key, group.paused

    def cached(self, query: MetricQuery) -> IndexedVector | None:
        """Return the cached result of the coalesced query.

        None: the request has to be sent alone. Its coalesced query is then sent in the background, if it has one that
        is not paused.
        """
        group = self._group(query)
        if group is None:
            return None
        rule, request, before = group.rule, query.requester, group.paused
        coalesces = group.note(request, now=self._clock())
        if group.paused is not before:
            self._log_pause(group)
        result = self._cache.cached((group.query, rule.destination)) if coalesces else None
        hit = isinstance(result, IndexedVector)
        if self._telemetry is not None:
            self._telemetry.requests.labels(rule.key, "merged" if hit else "alone").inc()
        if isinstance(result, IndexedVector):
            group.hit(request)
            return result
        if coalesces:
            with for_all_namespaces():
                self._cache.prefetch_query(
                    group.query,
                    rule.destination,
                    index=query.index,
                    observe=lambda outcome: self._fetched(group, outcome),
                )
        return None

    def sent_alone(self, query: MetricQuery, seconds: float) -> None:
        """Record the duration of a query for one request."""
        group = self._group(query)
        if group is not None:
            group.sent_alone(seconds)

    def _group(self, query: MetricQuery) -> CoalescingGroup | None:
        if len(str(query.selector)) > _MAX_SELECTOR:
            return None
        key = query.group
        try:
            group = self._groups[key]
        except KeyError:
            group = self._groups[key] = self._new_group(query)
            if len(self._groups) > _MAX_GROUPS:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(key)
        return group

    def _new_group(self, query: MetricQuery) -> CoalescingGroup | None:
        rule, series = query.source.rule, query.source.series
        text = query.coalesced()
        if not text or not isinstance(rule, Rule):
            return None
        # All selectors of an external metric share one coalesced query, and therefore one group.
        for group in self._groups.values():
            if group is not None and (group.rule.key, group.series, group.query) == (rule.key, series, text):
                return group
        return CoalescingGroup(rule, series, text)

    def _fetched(self, group: CoalescingGroup, outcome: Outcome) -> None:
        """Record the result of a coalesced query."""
        now, before = self._clock(), group.paused
        if not isinstance(outcome, Vector):
            group.pause(Pause.FAILURE, now=now)
        elif not self._cache.fits((group.query, group.rule.destination), outcome):
            group.pause(Pause.TOO_LONG, now=now)
        else:
            group.fetched(outcome.seconds, now=now)
        if self._telemetry is not None:
            outcome_label = "failure" if group.paused is Pause.FAILURE else "success"
            self._telemetry.coalesced_queries.labels(group.rule.key, outcome_label).inc()
        if isinstance(outcome, PrometheusError):
            _log.debug("%s: the coalesced query %s: %s", group.rule, group.query, outcome)
        if group.paused is not before:
            self._log_pause(group)

    @staticmethod
    def _log_pause(group: CoalescingGroup) -> None:
        """Log why requests are sent alone, once for each reason."""
        why = group.paused
        if why is not None:
            level = logging.DEBUG if why in group.logged else logging.INFO
            group.logged.add(why)
            _log.log(level, "%s: requests are sent alone for a while: %s (%s)", group.rule, why.text, group.query)
