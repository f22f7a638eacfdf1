"""Requests for different objects, as one query for all objects of a rule.

A rule is asked for one pod here and for another there; where that happens, one query without the objects' and
namespaces' matchers, grouped by both, answers them all, and its answer is kept for as long as it is fresh. Of an
external metric one query has all namespaces, and all values of the labels that are selected by. Nobody can tell the
difference by the values:

- it is done only with queries whose value for an object depends on that object's series alone; `mergeable` says which
- an object with several values in the merged answer is asked for alone
- where the merged query fails, everybody is asked for alone, and it is tried again after a while; so, too, where its
  answer is too long to be kept, and would have to be asked for again by everybody
- where its answer has far more values than are asked for, they are asked for alone until more of them are

A rule's `merge` can demand it, also where its query is of a form that nobody can tell of, or forbid it; by default it
begins with the second object that is asked for within a while.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cachetools import LRUCache

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.fairness import for_all_namespaces
from adapter.planning.fresh import Kept
from adapter.planning.mergeable import merged_custom_query, merged_external_query
from adapter.planning.sample_index import matching
from adapter.planning.shared_queries import Grouped
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Sample, Scalar, Vector
from adapter.rules import Merge, Rule
from kube.selectors import LabelSelector

__all__ = ["AllSamples", "GroupedQueries", "MergedQueries"]

_log = logging.getLogger(__name__)

# Within this time two requests belong together. HPAs ask every 15 seconds, unless told otherwise.
_WINDOW_SECONDS = 60.0
_AGAIN_SECONDS = 60.0
# A merged answer may have this many values, or this many for each one that is asked for. It is asked for once a period,
# and 10,000 values are some 0.1 s of Prometheus' and our time; a query for one object is about as much as 50 values.
_ALWAYS_FINE = 10_000
_VALUES_PER_OBJECT = 50
_MAX_GROUPS = 1_000
# How many askers are told apart; with more, no answer that can be kept is too wide.
_MAX_ASKERS = 6_000
# Clients write selectors, up to the length of a URL, and what they write is kept with each group.
_MAX_SELECTOR = 1_000


class GroupedQueries(Protocol):
    """Where merged queries are evaluated; see SharedQueries."""

    async def kept(
        self, query: str, *, timeout: float | None = None, destination: Destination = DEFAULT_DESTINATION
    ) -> Kept[Vector | Scalar]:
        """Evaluate a query, and tell whether its result is kept."""

    async def grouped(
        self,
        query: str,
        *,
        namespace_label: str,
        name_label: str,
        timeout: float | None = None,
        destination: Destination = DEFAULT_DESTINATION,
    ) -> Kept[Grouped]:
        """Evaluate a query for all objects at once."""


AllSamples = Mapping[str, Sequence[Sample]]
"""All samples of objects, by the objects' names."""


@dataclass(slots=True, eq=False)
class _Group:
    """Requests that one query can answer.

    Attributes:
        asked: who asked in the window that began at `since`, as hashes, with how many values each of them wants.
        wanted: how many values that are.
        before: how many askers and values there were in the window before.
        size: how many values the last merged answer had.
        not_before: when the merged query is tried again.
        told: the log says already that the answer is too long.
    """

    since: float = -math.inf
    asked: dict[int, int] = field(default_factory=dict)
    wanted: int = 0
    before: tuple[int, int] = (0, 0)
    size: int = 0
    not_before: float = -math.inf
    told: bool = False

    def note(self, who: Hashable, values: int, *, now: float) -> None:
        """Note that somebody asks for so many values."""
        if now - self.since > _WINDOW_SECONDS:
            self.before = (len(self.asked), self.wanted) if now - self.since < 2 * _WINDOW_SECONDS else (0, 0)
            self.asked, self.wanted, self.since = {}, 0, now
        key = hash(who)
        known = self.asked.get(key, 0)
        if values > known and (known or len(self.asked) < _MAX_ASKERS):
            self.asked[key] = values
            self.wanted += values - known

    def merges(self, rule: Rule, *, now: float) -> bool:
        """Whether the merged query is asked at this moment."""
        if now < self.not_before:
            return False
        return rule.merge is Merge.ALWAYS or (self._several and not self._too_wide)

    @property
    def _several(self) -> bool:
        """Several different things were asked for."""
        return len(self.asked) > 1 or self.before[0] > 1

    @property
    def _too_wide(self) -> bool:
        """The merged answer has far more than anybody asks for."""
        return self.size > max(_ALWAYS_FINE, _VALUES_PER_OBJECT * max(self.wanted, self.before[1]))


class MergedQueries:
    """Decides which requests are answered together, and has the answers."""

    def __init__(self, queries: GroupedQueries, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is a time in seconds that does not go back."""
        self._queries = queries
        self._clock = clock
        self._texts: LRUCache[Hashable, str] = LRUCache(_MAX_GROUPS)
        self._groups: LRUCache[Hashable, _Group] = LRUCache(_MAX_GROUPS)

    def forget(self) -> None:
        """The rules have changed."""
        self._texts.clear()
        self._groups.clear()

    async def samples(
        self,
        source: CustomSource,
        *,
        namespace: str,
        names: Sequence[str],
        metric_selector: LabelSelector,
        timeout: float | None,
    ) -> Mapping[str, Sample] | None:
        """The samples of a namespace's objects by name, from a merged answer; None: ask for them alone.

        Args:
            source: where the metric comes from.
            namespace: the objects' namespace; "" at the root.
            names: the objects.
            metric_selector: what the client asks of the other labels.
            timeout: the seconds that are left, or None.
        """
        grouped = await self._grouped(source, namespace, names, metric_selector, timeout)
        if grouped is None:
            return None
        if grouped.ambiguous and any((namespace, name) in grouped.ambiguous for name in names):
            return None
        return grouped.samples.get(namespace, {})

    async def all_samples(
        self, source: CustomSource, *, namespace: str, names: Sequence[str], timeout: float | None
    ) -> AllSamples | None:
        """As `samples`, for queries that make several values of an object, as one for each of a pod's containers."""
        grouped = await self._grouped(source, namespace, names, LabelSelector(), timeout)
        if grouped is None:
            return None
        only = grouped.samples.get(namespace, {})
        return {name: grouped.ambiguous.get((namespace, name), (only[name],)) for name in names if name in only}

    async def _grouped(
        self,
        source: CustomSource,
        namespace: str,
        names: Sequence[str],
        metric_selector: LabelSelector,
        timeout: float | None,
    ) -> Grouped | None:
        """The answer for all objects, or None where it is not to be asked for, or failed lately."""
        rule = source.rule
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER:
            return None
        selector = str(metric_selector)
        if len(selector) > _MAX_SELECTOR:
            return None
        labels = (source.resource_label, source.namespace_label, *source.group_by)
        key = (rule.key, source.series, labels, bool(namespace), selector)
        query = self._query(key, lambda: merged_custom_query(source, bool(namespace), metric_selector))
        if not query:
            return None
        group = self._group(key)
        now = self._clock()
        # A client can write any number of selectors, each of which has a query of its own. So one namespace alone does
        # not make the adapter ask, with its selectors, for the objects of all others.
        who = namespace if selector else (namespace, names[0], names[-1], len(names))
        group.note(who, len(names), now=now)
        if not group.merges(rule, now=now):
            return None
        try:
            with for_all_namespaces():
                kept = await self._queries.grouped(
                    query,
                    namespace_label=source.namespace_label if namespace else "",
                    name_label=source.resource_label,
                    timeout=timeout,
                    destination=rule.destination,
                )
        except PrometheusError as error:
            self._failed(group, rule, error)
            return None
        self._answered(group, rule, kept.value.size, is_kept=kept.is_kept)
        return kept.value

    async def external(
        self, source: ExternalSource, *, namespace: str, metric_selector: LabelSelector, timeout: float | None
    ) -> Vector | None:
        """What a request for an external metric gets of a merged answer, or None: then it is to be asked for alone.

        Args:
            source: where the metric comes from.
            namespace: the namespace that it is asked in.
            metric_selector: what the client asks of the labels.
            timeout: the seconds that are left, or None.
        """
        rule = source.rule
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER:
            return None
        selector = str(metric_selector)
        if len(selector) > _MAX_SELECTOR:
            return None
        metric = (rule.key, source.series, source.namespace_label)
        query = self._query((*metric, selector), lambda: merged_external_query(source, metric_selector))
        if not query:
            return None
        # What differs by the selector alone is answered by the same query, so all selectors count together.
        group = self._group(metric)
        labels = ((source.namespace_label, namespace),) if rule.resources.namespaced else ()
        who = (namespace if labels else "", selector)
        now = self._clock()
        group.note(who, 1, now=now)
        if not group.merges(rule, now=now):
            return None
        try:
            with for_all_namespaces():
                kept = await self._queries.kept(query, timeout=timeout, destination=rule.destination)
        except PrometheusError as error:
            self._failed(group, rule, error)
            return None
        result = kept.value
        if not isinstance(result, Vector):
            self._rest(group)
            return None
        self._answered(group, rule, len(result.samples), is_kept=kept.is_kept)
        found = await matching(result, labels, metric_selector)
        group.note(who, len(found.samples), now=now)
        return found

    def _answered(self, group: _Group, rule: Rule, size: int, *, is_kept: bool) -> None:
        """Note what came of a merged query; an answer that is not kept would be asked for by every request."""
        group.size = size
        if not is_kept:
            if not group.told:
                group.told = True
                _log.warning("%s: the answer for all objects has %d values, too many to be kept", rule, size)
            self._rest(group)

    def _failed(self, group: _Group, rule: Rule, error: PrometheusError) -> None:
        _log.debug("%s: everybody is asked for alone, because of the merged query: %s", rule, error)
        self._rest(group)

    def _rest(self, group: _Group) -> None:
        """Ask for everybody alone, and try the merged query again after a while."""
        group.not_before = self._clock() + _AGAIN_SECONDS

    def _query(self, key: Hashable, make: Callable[[], str]) -> str:
        """The merged query for a key; "" where there is none."""
        query = self._texts.get(key)
        if query is None:
            query = self._texts[key] = make()
        return query

    def _group(self, key: Hashable) -> _Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        return group
