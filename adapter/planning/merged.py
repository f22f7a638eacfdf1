"""Requests for different objects, as one query for all objects of a rule.

A rule is asked for one pod here and for another there; where that happens, one query without the objects' and
namespaces' matchers, grouped by both, answers them all, and its answer is kept for as long as it is fresh. Nobody can
tell the difference by the values:

- it is done only with queries whose value for an object depends on that object's series alone; `separable` says which
- an object with several values in the merged answer is asked for alone
- where the merged query fails, objects are asked for alone, and it is tried again after a while
- where its answer has far more objects than are asked for, they are asked for alone until more of them are

A rule's `merge` can demand it, also where its query is of a form that nobody can tell of, or forbid it; by default it
begins with the second object that is asked for within a while.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cachetools import LRUCache

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.planner import Plan
from adapter.planning.separable import groups_alike, is_separable
from adapter.planning.shared_queries import Grouped
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Sample
from adapter.rules import Merge, Rule
from adapter.rules.query import QueryError, SelectorNotSupported, custom_query, external_query
from kube.selectors import LabelSelector, Operator, Requirement

__all__ = ["GroupedQueries", "MergedQueries", "MergedSamples", "can_merge"]

_log = logging.getLogger(__name__)

_NAME = "x"
_ANY = ".+"
# Within this time two requests belong together. HPAs ask every 15 seconds, unless told otherwise.
_WINDOW_SECONDS = 60.0
_AGAIN_SECONDS = 60.0
# A merged answer may have this many values, or this many for each object that is asked for.
_ALWAYS_FINE = 1_000
_VALUES_PER_OBJECT = 50
_MAX_GROUPS = 1_000
_NOT_LOCAL = (Operator.GREATER_THAN, Operator.LESS_THAN)
_LISTS = (Operator.IN, Operator.NOT_IN)


class GroupedQueries(Protocol):
    """Where merged queries are evaluated; see SharedQueries.grouped."""

    async def grouped(
        self,
        query: str,
        *,
        namespace_label: str,
        name_label: str,
        timeout: float | None = None,
        destination: Destination = DEFAULT_DESTINATION,
    ) -> Grouped:
        """Evaluate a query for all objects at once."""


@dataclass(frozen=True, slots=True)
class MergedSamples:
    """The samples of a namespace's objects, by name, and until when they are the same, as a Vector's."""

    by_name: Mapping[str, Sample]
    fresh_until: float


@dataclass(slots=True, eq=False)
class _Group:
    """Requests that one query can answer.

    Attributes:
        query: that query; "" where there is none.
        asked: who was asked for in the window that began at `since`.
        objects: how many objects that were.
        before: how many requests and objects there were in the window before.
        size: how many values the last merged answer had.
        not_before: when the merged query is tried again.
    """

    query: str
    since: float = 0.0
    asked: set[tuple[str, str, int]] = field(default_factory=set)
    objects: int = 0
    before: tuple[int, int] = (0, 0)
    size: int = 0
    not_before: float = 0.0

    def note(self, who: tuple[str, str, int], now: float) -> None:
        """Note that somebody is asked for."""
        if now - self.since > _WINDOW_SECONDS:
            self.before = (len(self.asked), self.objects) if now - self.since < 2 * _WINDOW_SECONDS else (0, 0)
            self.asked, self.objects, self.since = set(), 0, now
        if who not in self.asked:
            self.asked.add(who)
            self.objects += who[2]

    @property
    def several(self) -> bool:
        """Several different things were asked for."""
        return len(self.asked) > 1 or self.before[0] > 1

    @property
    def too_wide(self) -> bool:
        """The merged answer has far more than anybody asks for."""
        return self.size > max(_ALWAYS_FINE, _VALUES_PER_OBJECT * max(self.objects, self.before[1]))


class MergedQueries:
    """Decides which requests are answered together, and has the answers."""

    def __init__(self, queries: GroupedQueries) -> None:
        self._queries = queries
        self._groups: LRUCache[object, _Group] = LRUCache(_MAX_GROUPS)

    def forget(self) -> None:
        """The rules have changed."""
        self._groups.clear()

    async def samples(
        self,
        source: CustomSource,
        *,
        namespace: str,
        names: Sequence[str],
        metric_selector: LabelSelector,
        timeout: float | None,
    ) -> MergedSamples | None:
        """The samples of a namespace's objects from a merged answer, or None: then they are to be asked for alone.

        Args:
            source: where the metric comes from.
            namespace: the objects' namespace; "" at the root.
            names: the objects.
            metric_selector: what the client asks of the other labels.
            timeout: the seconds that are left, or None.
        """
        rule = source.rule
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER:
            return None
        key = (rule.key, source.series, source.resource_label, bool(namespace), metric_selector)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(_merged_query(source, bool(namespace), metric_selector))
        if not group.query or not self._now(group, rule, (namespace, names[0], len(names))):
            return None
        namespace_label = source.namespace_label if namespace else ""
        try:
            grouped = await self._queries.grouped(
                group.query,
                namespace_label=namespace_label,
                name_label=source.resource_label,
                timeout=timeout,
                destination=rule.destination,
            )
        except PrometheusError as error:
            _log.debug("%s: asking for objects alone, because of the merged query: %s", rule, error)
            group.not_before = asyncio.get_running_loop().time() + _AGAIN_SECONDS
            return None
        group.size = grouped.size
        found = grouped.samples.get(namespace, {})
        if grouped.ambiguous and any((namespace, name) in grouped.ambiguous for name in names):
            return None
        return MergedSamples(found, grouped.fresh_until)

    def external(self, source: ExternalSource, *, namespace: str, metric_selector: LabelSelector) -> Plan | None:
        """The plan that asks for an external metric in all namespaces, or None: then it is to be asked for alone."""
        rule = source.rule
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER or not rule.resources.namespaced:
            return None
        key = (rule.key, source.series, metric_selector)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(_merged_external_query(source, metric_selector))
        if not group.query:
            return None
        # What differs by the selector alone is answered by the same query, so all selectors count together.
        everybody = self._groups.setdefault((rule.key, source.series), _Group(group.query))
        if not self._now(everybody, rule, (namespace, str(metric_selector), 1)):
            return None
        return Plan((group.query,), ((source.namespace_label, namespace),), metric_selector)

    def _now(self, group: _Group, rule: Rule, who: tuple[str, str, int]) -> bool:
        """Whether a request is answered from a merged query at this moment."""
        now = asyncio.get_running_loop().time()
        group.note(who, now)
        return now >= group.not_before and (rule.merge is Merge.ALWAYS or (group.several and not group.too_wide))


def can_merge(source: CustomSource | ExternalSource) -> bool:
    """Tell whether the requests for different objects of a metric can be answered by one query."""
    if isinstance(source.rule, Rule) and source.rule.merge is Merge.NEVER:
        return False
    if isinstance(source, ExternalSource):
        return bool(_merged_external_query(source, LabelSelector()))
    return bool(_merged_query(source, source.info.namespaced, LabelSelector()))


def _merged_query(source: CustomSource, namespaced: bool, metric_selector: LabelSelector) -> str:
    """The query for all objects; "" where there is none."""
    rule = source.rule
    if not isinstance(rule, Rule) or "LabelValuesByName" in rule.query.source:
        return ""
    namespace_label = source.namespace_label if namespaced else ""
    if namespaced and (not namespace_label or namespace_label == source.resource_label):
        return ""
    more = (namespace_label,) if namespaced else ()
    query = functools.partial(
        custom_query,
        rule.query,
        series=source.series,
        resource_label=source.resource_label,
        namespace_label=namespace_label,
        metric_selector=metric_selector,
    )
    try:
        sample = query(names=[_NAME], namespace=_NAME if namespaced else "", group_by=(*source.group_by, *more))
        plain = query(names=[_NAME], namespace=_NAME if namespaced else "", group_by=source.group_by)
        labels = [source.resource_label, namespace_label] if namespaced else [source.resource_label]
        safe = all(is_separable(sample, label=label, name=_NAME) for label in labels)
        if namespaced and "GroupBy" in rule.query.source:
            safe = safe and groups_alike(plain, label=namespace_label)
        if not safe and rule.merge is not Merge.ALWAYS:
            return ""
        return query(
            names=[],
            pattern=_ANY,
            namespace=_ANY if namespaced else "",
            namespace_pattern=namespaced,
            group_by=(*source.group_by, *more),
        )
    except (QueryError, SelectorNotSupported):
        return ""  # the request itself will say so


def _merged_external_query(source: ExternalSource, metric_selector: LabelSelector) -> str:
    """The query for all namespaces, and for all values of the labels that are selected by; "" where there is none."""
    rule = source.rule
    if not isinstance(rule, Rule) or "LabelValuesByName" in rule.query.source or not source.namespace_label:
        return ""
    query = functools.partial(external_query, rule.query, series=source.series, namespace_label=source.namespace_label)
    try:
        if not all(map(_is_local, metric_selector.requirements)):
            return ""
        for key in {requirement.key for requirement in metric_selector.requirements}:
            only = LabelSelector((Requirement(key, Operator.EQUALS, (_NAME,)),))
            if not is_separable(query(namespace=_NAME, metric_selector=only), label=key, name=_NAME):
                return ""
        sample = query(namespace=_NAME, metric_selector=LabelSelector())
        safe = is_separable(sample, label=source.namespace_label, name=_NAME)
        if not safe and rule.merge is not Merge.ALWAYS:
            return ""
        return query(namespace=_ANY, metric_selector=LabelSelector(), namespace_pattern=True)
    except (QueryError, SelectorNotSupported):
        return ""


def _is_local(requirement: Requirement) -> bool:
    """Whether a matcher of Prometheus and a requirement of Kubernetes say the same of every value."""
    if requirement.operator in _NOT_LOCAL or "" in requirement.values:
        return False
    # A list becomes a regular expression, in which a dot is any character.
    return requirement.operator not in _LISTS or not any("." in value for value in requirement.values)
