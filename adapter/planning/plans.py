"""Plan the queries of a request, and the selection of samples from their results.

A rule with a seriesQuery makes a query for exactly the objects of the request. Where the list of objects is so long
that servers or proxies would refuse the query, in this order:

1. up to 8 KiB (or maxQueryBytes, if less), the query is what prometheus-adapter would send
2. a longer one has a shorter list of names: `web-(a|b)` matches the same as `web-a|web-b`
3. if it still exceeds maxQueryBytes, and is separable, the query is for all objects of the namespace
   if the request is for all, and is otherwise split into several
4. any other query is sent as it is

A short rule's query is always sent as it stands, and the result filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from cachetools import LRUCache

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.coalescible import is_separable
from adapter.rules import QueryRule, Rule
from adapter.rules.query import alternation, custom_query, external_query, require_label_names
from kube.selectors import LabelSelector

_COMPACT_FROM = 8 * 1024
_EVERYTHING = LabelSelector()
_ANY_NAME = ".+"
_SAMPLE_NAME = "x"
_MAX_CACHE_BYTES = 16 * 1024 * 1024
_PLAN_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The queries for a request, and the selection of samples from their results.

    Attributes:
        queries: PromQL; the results belong together.
        labels: the labels that a sample must have, with their values.
        selector: selects samples by their labels.
        too_long: the query is longer than the server takes, and cannot be split.
    """

    queries: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    selector: LabelSelector = _EVERYTHING
    too_long: bool = False


class _Entry(msgspec.Struct, frozen=True):
    source: object
    plan: Plan
    size: int


class PlanCache:
    """Plans by source and request, bounded in bytes, since clients choose how long names are.

    Sources are compared by identity. A relist that changes a metric makes another source, so plans of metrics that are
    gone are never used again.
    """

    def __init__(self) -> None:
        self._plans: LRUCache[tuple[int, tuple[str, ...]], _Entry] = LRUCache(
            _MAX_CACHE_BYTES, getsizeof=lambda entry: entry.size
        )

    def get(self, source: object, request: tuple[str, ...], make: Callable[[], Plan]) -> Plan:
        """Return the cached plan of a source for the same request, or else that of `make`."""
        key = (id(source), request)
        entry = self._plans.get(key)
        if entry is not None and entry.source is source:
            return entry.plan
        plan = make()
        size = _PLAN_BYTES + 4 * sum(map(len, request)) + 4 * sum(map(len, plan.queries))
        if size <= _MAX_CACHE_BYTES // 16:
            self._plans[key] = _Entry(source, plan, size)
        return plan


def custom_plan(
    source: CustomSource, *, names: Sequence[str], all_objects: bool, namespace: str, metric_selector: LabelSelector
) -> Plan:
    """Plan a request for a metric of some objects.

    Args:
        source: where the metric comes from.
        names: the objects.
        all_objects: these are all objects of the namespace.
        namespace: the objects' namespace; "" for cluster-scoped objects.
        metric_selector: selects the metric's series.

    Raises:
        SelectorNotSupported, QueryError: as for adapter.rules.query.custom_query.
    """
    if isinstance(source.rule, QueryRule):
        return _filtered(source.rule, source.namespace_label if namespace else "", namespace, metric_selector)
    planner = _LongLists(source, source.rule, namespace, metric_selector)
    return planner.plan(names, all_objects=all_objects)


def external_plan(source: ExternalSource, *, namespace: str, metric_selector: LabelSelector) -> Plan:
    """Plan a request for an external metric.

    Raises:
        SelectorNotSupported, QueryError: as for adapter.rules.query.external_query.
    """
    rule = source.rule
    if isinstance(rule, QueryRule):
        return _filtered(rule, source.namespace_label, namespace, metric_selector)
    query = external_query(
        rule.query,
        series=source.series,
        namespace_label=source.namespace_label,
        namespace=namespace if rule.resources.namespaced else "",
        metric_selector=metric_selector,
    )
    return Plan((query,))


def _filtered(rule: QueryRule, namespace_label: str, namespace: str, selector: LabelSelector) -> Plan:
    require_label_names(selector)
    labels = ((namespace_label, namespace),) if namespace_label else ()
    return Plan((rule.query,), labels, selector)


@dataclass(frozen=True, slots=True)
class _LongLists:
    """Plans a request for many objects in the order that the module's docstring lists."""

    source: CustomSource
    rule: Rule
    namespace: str
    metric_selector: LabelSelector

    def plan(self, names: Sequence[str], *, all_objects: bool) -> Plan:
        plain = self._query(names)
        if len(plain) <= _COMPACT_FROM and self._fits(plain):
            return Plan((plain,))
        compact = self._compact(names)
        if self._fits(compact):
            return Plan((compact,))
        if not self._separable():
            return Plan((compact,), too_long=True)
        if all_objects:
            return Plan((self._query(names, pattern=_ANY_NAME),))
        return Plan(tuple(self._split(names)))

    def _split(self, names: Sequence[str]) -> list[str]:
        query = self._compact(names)
        if len(names) == 1 or self._fits(query):
            return [query]
        # Sorted neighbours share the longest prefixes.
        ordered, middle = sorted(names), len(names) // 2
        return [*self._split(ordered[:middle]), *self._split(ordered[middle:])]

    def _compact(self, names: Sequence[str]) -> str:
        return self._query(names, pattern=alternation(names))

    def _fits(self, query: str) -> bool:
        return len(query.encode()) <= self.rule.destination.max_query_bytes

    def _separable(self) -> bool:
        # A list of names that the template uses otherwise than in the matchers may mean anything.
        if "LabelValuesByName" in self.rule.query.source or not self.rule.query.only_writes("LabelMatchers"):
            return False
        return is_separable(self._query([_SAMPLE_NAME]), label=self.source.resource_label, name=_SAMPLE_NAME)

    def _query(self, names: Sequence[str], *, pattern: str | None = None) -> str:
        return custom_query(
            self.rule.query,
            series=self.source.series,
            resource_label=self.source.resource_label,
            names=names,
            pattern=pattern,
            namespace_label=self.source.namespace_label,
            namespace=self.namespace,
            metric_selector=self.metric_selector,
            group_by=self.source.group_by,
        )
