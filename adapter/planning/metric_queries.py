"""The query of a request: a metric of some objects, or an external metric.

Each has a plan, which is the fewest queries for the request alone, and a coalesced query, which has the values of many
requests in its result.

A rule with a seriesQuery makes a query for exactly the objects of the request. Servers or proxies refuse long queries,
so:

1. up to 8 KiB (or maxQueryBytes, if less), the query is what prometheus-adapter would send
2. a longer one has a shorter list of names: `web-(a|b)` matches the same as `web-a|web-b`
3. if it still exceeds maxQueryBytes, and is separable, the query is for all objects of the namespace
   if the request is for all, and is otherwise split into several
4. any other query is sent unchanged

A short rule's query is always sent unchanged, and the result filtered.

Whether a query is separable is checked on the text for one object. The result also holds for the coalesced query: the
template may only insert the matchers, so the two texts differ in the matchers alone. `merge: always` skips both checks.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import msgspec

from adapter.catalog.inventory import CustomSource, ExternalSource, Source
from adapter.planning.rendering import (
    QueryError,
    SelectorNotSupported,
    custom_query,
    external_query,
)
from adapter.planning.separable import groups_alike, is_separable
from adapter.planning.vector_index import ObjectLabels
from adapter.rules import Merge, QueryRule, Rule
from kube.values.selectors import LabelSelector, Operator, Requirement

_COMPACT_FROM = 8 * 1024
_EVERYTHING = LabelSelector()
_NAME = "x"
_NO_QUERY = "a schedule has no query"
_NOT_LOCAL = (Operator.GREATER_THAN, Operator.LESS_THAN)
_LISTS = (Operator.IN, Operator.NOT_IN)


@dataclass(frozen=True, slots=True)
class Plan:
    """The queries for a request, and the selection of samples from their results.

    Attributes:
        queries: PromQL; the results belong together.
        labels: the labels that a sample must have, with their values.
        selector: selects samples by their labels.
        value_labels: the first value gets these labels before the selection, and there are no others; None: all values
            with their own labels.
        too_long: the query exceeds the server's limit and cannot be split.
    """

    queries: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    selector: LabelSelector = _EVERYTHING
    value_labels: tuple[tuple[str, str], ...] | None = None
    too_long: bool = False


class ObjectsQuery(msgspec.Struct, frozen=True):
    """A metric of some objects.

    Attributes:
        source: where the metric comes from.
        namespace: the objects' namespace; "" for cluster-scoped objects.
        names: the objects' names, at least one.
        all_objects: True if `names` are all objects of the namespace.
        selector: selects the metric's series.
    """

    source: CustomSource
    namespace: str
    names: list[str]
    all_objects: bool
    selector: LabelSelector

    @property
    def group(self) -> Hashable:
        """Queries of one group have the same coalesced query."""
        source = self.source
        namespace_label = source.namespace_label if self.namespace else ""
        return (
            *(source.rule.key, source.series, source.resource_label, namespace_label),
            *(source.group_by, not self.namespace, str(self.selector)),
        )

    @property
    def requester(self) -> str:
        """Identifies the requester: a group with two different requesters is coalesced.

        A client can send any number of selectors, each of which has its own coalesced query. Therefore selectors that
        only one namespace uses do not cause queries for all namespaces.
        """
        if not self.selector.empty:
            return self.namespace
        return f"{self.namespace}/{self.names[0]}/{self.names[-1]}/{len(self.names)}"

    @property
    def index(self) -> ObjectLabels:
        """The labels that index the coalesced result."""
        return (self.source.namespace_label if self.namespace else "", self.source.resource_label)

    def plan(self) -> Plan:
        """Plan the request alone.

        Raises:
            SelectorNotSupported, QueryError: as for adapter.planning.rendering.custom_query.
        """
        source, rule = self.source, self.source.rule
        if isinstance(rule, QueryRule):
            return _filtered(rule, source.namespace_label if self.namespace else "", self.namespace, self.selector)
        assert isinstance(rule, Rule), _NO_QUERY
        query = functools.partial(
            custom_query, rule.query, source, namespace=self.namespace, selector=self.selector, compact=True
        )
        limit = rule.destination.max_query_bytes
        plain = query(names=self.names, compact=False)
        if len(plain) <= _COMPACT_FROM and len(plain.encode()) <= limit:
            return Plan((plain,))

        def split(names: Sequence[str]) -> list[str]:
            text = query(names=names)
            if len(names) == 1 or len(text.encode()) <= limit:
                return [text]
            # Sorted neighbours share the longest prefixes.
            ordered, middle = sorted(names), len(names) // 2
            return [*split(ordered[:middle]), *split(ordered[middle:])]

        compact = query(names=self.names)
        if len(compact.encode()) <= limit:
            return Plan((compact,))
        if not _only_writes_matchers(rule) or not is_separable(
            query(names=[_NAME]), label=source.resource_label, name=_NAME
        ):
            return Plan((compact,), too_long=True)
        return Plan((query(names=None),) if self.all_objects else tuple(split(self.names)))

    def coalesced(self) -> str:
        """Return the query for all objects in all namespaces; "" if it cannot be coalesced.

        The metric selector is the same in all requests that are coalesced.
        """
        source, rule, namespaced = self.source, self.source.rule, bool(self.namespace)
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER or "LabelValuesByName" in rule.query.source:
            return ""
        if namespaced and source.namespace_label in ("", source.resource_label):
            return ""
        query = functools.partial(custom_query, rule.query, source, selector=self.selector)
        namespace = _NAME if namespaced else ""
        try:
            sample = query(names=[_NAME], namespace=namespace, by_namespace=namespaced)
            labels = [source.resource_label, source.namespace_label] if namespaced else [source.resource_label]
            safe = _only_writes_matchers(rule)
            safe = safe and all(is_separable(sample, label=label, name=_NAME) for label in labels)
            if namespaced and "GroupBy" in rule.query.source:
                safe = safe and rule.query.only_writes("GroupBy") and rule.query.only_writes("GroupBySlice")
                plain = query(names=[_NAME], namespace=namespace)
                safe = safe and groups_alike(plain, label=source.namespace_label)
            if not safe and rule.merge is not Merge.ALWAYS:
                return ""
            return query(names=None, namespace=None if namespaced else "", by_namespace=namespaced)
        except (QueryError, SelectorNotSupported):
            return ""  # the query for the request alone fails, too, and reports it


class ExternalQuery(msgspec.Struct, frozen=True):
    """An external metric in a namespace; `selector` selects its series."""

    source: ExternalSource
    namespace: str
    selector: LabelSelector

    index = None
    """Indexes of the coalesced result are built when selectors need them."""

    @property
    def group(self) -> Hashable:
        """Queries of one group have the same coalesced query, and select from its result by the same labels."""
        source = self.source
        return (source.rule.key, source.series, source.namespace_label, str(self.selector))

    @property
    def requester(self) -> str:
        """A group is coalesced once it has two different requesters."""
        return f"{self.namespace if self.labels else ''}?{self.selector}"

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """The labels that a sample of the coalesced result must have, with their values."""
        rule = self.source.rule
        namespaced = isinstance(rule, Rule) and rule.resources.namespaced
        return ((self.source.namespace_label, self.namespace),) if namespaced else ()

    def plan(self) -> Plan:
        """Plan the request alone.

        Raises:
            SelectorNotSupported, QueryError: as for adapter.planning.rendering.external_query.
        """
        rule = self.source.rule
        if isinstance(rule, QueryRule):
            return _filtered(rule, self.source.namespace_label, self.namespace, self.selector)
        assert isinstance(rule, Rule), _NO_QUERY
        namespace = self.namespace if rule.resources.namespaced else ""
        return Plan((external_query(rule.query, self.source, namespace=namespace, selector=self.selector),))

    def coalesced(self) -> str:
        """Return the query for all namespaces and all values of the selector's labels; "" if there can be none.

        It is the same query for every selector; the caller selects from its result.
        """
        source, rule = self.source, self.source.rule
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER or "LabelValuesByName" in rule.query.source:
            return ""
        namespaced, label = rule.resources.namespaced, source.namespace_label
        if (namespaced and not label) or not all(map(_is_local, self.selector.requirements)):
            return ""
        query = functools.partial(external_query, rule.query, source)
        one = _NAME if namespaced else ""
        try:
            for key in {requirement.key for requirement in self.selector.requirements}:
                only = LabelSelector((Requirement(key, Operator.EQUALS, (_NAME,)),))
                if not is_separable(query(namespace=one, selector=only), label=key, name=_NAME):
                    return ""
            safe = rule.query.only_writes("LabelMatchers")
            if namespaced:
                safe = safe and is_separable(query(namespace=one), label=label, name=_NAME)
            if not safe and rule.merge is not Merge.ALWAYS:
                return ""
            return query(namespace=None if namespaced else "")
        except (QueryError, SelectorNotSupported):
            return ""


MetricQuery = ObjectsQuery | ExternalQuery


def coalesced_query(source: Source) -> str:
    """Return the query for all objects or namespaces of a metric; "" if it cannot be coalesced."""
    if isinstance(source, ExternalSource):
        return ExternalQuery(source, "", _EVERYTHING).coalesced()
    return ObjectsQuery(source, _NAME if source.info.namespaced else "", [_NAME], False, _EVERYTHING).coalesced()


def _filtered(rule: QueryRule, namespace_label: str, namespace: str, selector: LabelSelector) -> Plan:
    labels = ((namespace_label, namespace),) if namespace_label else ()
    return Plan((rule.query,), labels, selector, rule.value_labels)


def _only_writes_matchers(rule: Rule) -> bool:
    """Return whether the template uses the list of names in the matchers only."""
    return "LabelValuesByName" not in rule.query.source and rule.query.only_writes("LabelMatchers")


def _is_local(requirement: Requirement) -> bool:
    """Return whether Prometheus' matcher and Kubernetes' requirement match the same values."""
    if requirement.operator in _NOT_LOCAL or "" in requirement.values:
        return False
    # A list becomes a regular expression, where a dot matches any character.
    return requirement.operator not in _LISTS or not any("." in value for value in requirement.values)
