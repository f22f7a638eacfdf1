"""The query of a request: a metric of some objects, or an external metric; and PromQL from a rule's template.

Each has a plan, which is the fewest queries for the request alone, and a coalesced query, which has the values of many
requests in its result.

A rule with a seriesQuery makes a query for exactly the objects of the request. Label matchers have prometheus-adapter's
order: metric selector (sorted by key), namespace, object. So a cache in front of Prometheus sees the same queries. Two
differences are deliberate: object names are escaped in regular expressions, so that "." matches itself; and values from
clients are escaped for any quotes around them, in `.LabelValuesByName` too, so that a name cannot change the query.

Servers or proxies refuse long queries, so:

1. up to 8 KiB (or maxQueryBytes, if less), the query is what prometheus-adapter would send
2. a longer one has a shorter list of names: `web-(a|b)` matches the same as `web-a|web-b`
3. if it still exceeds maxQueryBytes, and is separable, the query is for all objects of the namespace
   if the request is for all, and is otherwise split into several
4. any other query is sent unchanged

A short rule's query is always sent unchanged, and the result filtered.

Whether a query is separable (adapter.promql.labels) is checked on the text for one object. The result also holds for
the coalesced query: the template may only insert the matchers, so the two texts differ in the matchers alone. `merge:
always` skips both checks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import msgspec

from adapter.catalog.inventory import CustomSource, ExternalSource, Source
from adapter.gotemplate import Template, TemplateError
from adapter.planning.vectors import ObjectLabels
from adapter.prometheus.options import MAX_QUERY_BYTES
from adapter.promql import Labels, alternation, any_of, groups_alike, label_text, separable_labels
from adapter.rules import AnyRule, Merge, QueryRule, Rule
from kube.values.fields import quote
from kube.values.selectors import EVERYTHING, LabelSelector, Operator, Requirement

_ANY = ".+"
# Most values need no escaping; this check is faster than a replacement for each value.
_PLAIN = re.compile(r"[A-Za-z0-9_.:|/ -]*")
_MATCHERS = {
    Operator.EQUALS: "=",
    Operator.DOUBLE_EQUALS: "=",
    Operator.NOT_EQUALS: "!=",
    Operator.IN: "=~",
    Operator.NOT_IN: "!~",
    Operator.EXISTS: "!=",
    Operator.DOES_NOT_EXIST: "=",
}
_COMPACT_FROM = 8 * 1024
_NAME = "x"
_NO_QUERY = "a schedule has no query"
# Of a query for one namespace or object, to see in which selectors the matchers stand.
_ONE = LabelSelector((Requirement(_NAME, Operator.EQUALS, (_NAME,)),))
_NO_LABELS = Labels()
_NOT_LOCAL = (Operator.GREATER_THAN, Operator.LESS_THAN)
_LISTS = (Operator.IN, Operator.NOT_IN)


_Term = tuple[str, str, str]
"""A label matcher: the label, the sign, the value."""


class QueryError(ValueError):
    """A rule's template makes no query for this request."""


class SelectorNotSupported(ValueError):
    """PromQL cannot express the metric selector; the message is for the client."""


def custom_query(
    template: Template,
    source: CustomSource,
    *,
    names: Sequence[str] | None,
    namespace: str | None,
    selector: LabelSelector = EVERYTHING,
    compact: bool = False,
    by_namespace: bool = False,
    pattern: str = _ANY,
) -> str:
    """Return the query for a metric of some objects.

    Args:
        template: the rule's metricsQuery.
        source: the series and labels.
        names: the objects, one or more; None for all that match `pattern`.
        namespace: the objects' namespace; None for all; "" for cluster-scoped objects, which have no such matcher.
        selector: the metricLabelSelector of the request.
        compact: write several names as an expression with common prefixes factored out.
        by_namespace: group by the namespace, too.
        pattern: a regular expression of names.

    Raises:
        SelectorNotSupported: PromQL cannot express the metric selector.
        QueryError: the template fails with this data, or makes an empty query.
    """
    terms = [*_terms(source.namespace_label, namespace, selector)]
    if names is None:
        terms.append((source.resource_label, "=~", pattern))
    elif len(names) == 1:
        terms.append((source.resource_label, "=", names[0]))
    else:
        terms.append((source.resource_label, "=~", alternation(names) if compact else any_of(names)))
    more = (source.namespace_label,) if by_namespace else ()
    return _rendered(template, source.series, terms, (source.resource_label, *source.group_by, *more))


def external_query(
    template: Template, source: ExternalSource, *, namespace: str | None, selector: LabelSelector = EVERYTHING
) -> str:
    """Return the query for an external metric; `namespace` is "" for a rule that is not namespaced, None for all.

    Raises:
        SelectorNotSupported, QueryError: as for custom_query.
    """
    return _rendered(template, source.series, _terms(source.namespace_label, namespace, selector), ())


def _terms(label: str, namespace: str | None, selector: LabelSelector) -> Iterator[_Term]:
    """Yield the matchers of a metric selector, and of the namespace in a label."""
    for requirement in selector.requirements:
        yield requirement.key, _matcher(requirement), "|".join(requirement.values)
    if namespace is None:
        yield label, "=~", _ANY
    elif namespace and label:  # a rule of a namespace need not have the label
        yield label, "=", namespace


def _rendered(template: Template, series: str, terms: Iterable[_Term], labels: Iterable[str]) -> str:
    """Return the query of a template; `labels` are those by which it groups."""
    matchers, values = [], {}
    for label, matcher, value in terms:
        plain = _PLAIN.fullmatch(value) is not None
        quoted = f'"{value}"' if plain else quote(value)
        matchers.append(f"{label_text(label)}{matcher}{quoted}")
        values[label] = value if plain else _for_any_quotes(value)
    group_by = tuple(map(label_text, labels))
    try:
        query = template.render(
            {
                "Series": series,
                "LabelMatchers": ",".join(matchers),
                "LabelValuesByName": values,
                "GroupBy": ",".join(group_by),
                "GroupBySlice": group_by,
            }
        )
    except TemplateError as error:
        raise QueryError(f"metricsQuery: {error}") from error
    if not query.strip():
        raise QueryError("metricsQuery makes an empty query")
    return query


def _for_any_quotes(value: str) -> str:
    """Escape a value so that it cannot end the template's quotes around it: double, single or backquotes."""
    escaped_value = quote(value)[1:-1].replace('\\"', r"\x22")
    return escaped_value.replace("'", r"\x27").replace("`", r"\x60")


def _matcher(requirement: Requirement) -> str:
    if label_text(requirement.key) != requirement.key:
        raise SelectorNotSupported(
            f"{quote(requirement.key)} in the metric selector is not supported: the name of a label there consists of"
            " letters, digits and '_', and does not start with a digit"
        )
    matcher = _MATCHERS.get(requirement.operator)
    if matcher is None:
        sign = ">" if requirement.operator is Operator.GREATER_THAN else "<"
        raise SelectorNotSupported(
            f'"{sign}" in the metric selector is not supported: Prometheus selectors have no such operator'
        )
    return matcher


@dataclass(frozen=True, slots=True)
class Plan:
    """The queries for a request, and the selection of samples from their results."""

    queries: tuple[str, ...]
    """PromQL; the results belong together."""
    labels: tuple[tuple[str, str], ...] = ()
    """The labels that a sample must have, with their values."""
    selector: LabelSelector = EVERYTHING
    """Selects samples by their labels."""
    value_labels: tuple[tuple[str, str], ...] | None = None
    """The first value gets these labels before the selection, and there are no others; None: all values with their own
    labels."""
    too_long: bool = False
    """The query exceeds the server's limit and cannot be split."""


@dataclass(frozen=True, slots=True)
class CoalescedQuery:
    """PromQL for many requests; metric selectors can select from its result by these labels."""

    text: str
    labels: Labels


class ObjectsQuery(msgspec.Struct, frozen=True):
    """A metric of some objects."""

    source: CustomSource
    """Where the metric comes from."""
    namespace: str
    """The objects' namespace; "" for cluster-scoped objects."""
    names: list[str]
    """The objects' names, at least one."""
    all_objects: bool
    """True if `names` are all objects of the namespace."""
    selector: LabelSelector
    """Selects the metric's series."""

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

    def is_served_by(self, _: CoalescedQuery) -> bool:
        """Return whether the result of the group's coalesced query has the values of this request."""
        return True

    def plan(self) -> Plan:
        """Plan the request alone.

        Raises:
            SelectorNotSupported, QueryError: as for adapter.planning.metric_queries.custom_query.
        """
        source, rule = self.source, self.source.rule
        if isinstance(rule, QueryRule):
            return _filtered(rule, source.namespace_label if self.namespace else "", self.namespace, self.selector)
        assert isinstance(rule, Rule), _NO_QUERY
        query = functools.partial(
            custom_query, rule.query, source, namespace=self.namespace, selector=self.selector, compact=True
        )
        server = rule.destination.server
        limit = MAX_QUERY_BYTES if server is None else server.max_query_bytes
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
        label = source.resource_label
        separable = separable_labels(query(names=[_NAME]), label=label, value=_NAME)
        if not _only_writes_matchers(rule) or not separable.can_have(label):
            return Plan((compact,), too_long=True)
        return Plan((query(names=None),) if self.all_objects else tuple(split(self.names)))

    def coalesced(self) -> CoalescedQuery | None:
        """Return the query for all objects in all namespaces; None if it cannot be coalesced.

        The metric selector is the same in all requests that are coalesced.
        """
        source, rule, namespaced = self.source, self.source.rule, bool(self.namespace)
        if not may_be_coalesced(rule) or (namespaced and source.namespace_label in ("", source.resource_label)):
            return None
        query = functools.partial(custom_query, rule.query, source, selector=self.selector)
        one = functools.partial(query, names=[_NAME], namespace=_NAME if namespaced else "")
        try:
            if rule.merge is not Merge.ALWAYS:
                labels = separable_labels(one(by_namespace=namespaced), label=source.resource_label, value=_NAME)
                needed = [source.resource_label, source.namespace_label] if namespaced else [source.resource_label]
                if not (_only_writes_matchers(rule) and all(map(labels.can_have, needed))):
                    return None
                if namespaced and "GroupBy" in rule.query.source:
                    only_writes = rule.query.only_writes("GroupBy") and rule.query.only_writes("GroupBySlice")
                    if not (only_writes and groups_alike(one(), label=source.namespace_label)):
                        return None
            text = query(names=None, namespace=None if namespaced else "", by_namespace=namespaced)
            return CoalescedQuery(text, _NO_LABELS)
        except (QueryError, SelectorNotSupported):
            return None  # the query for the request alone fails, too, and reports it


class ExternalQuery(msgspec.Struct, frozen=True):
    """An external metric in a namespace; `selector` selects its series."""

    source: ExternalSource
    namespace: str
    selector: LabelSelector

    index = None
    """Indexes of the coalesced result are built when selectors need them."""

    @property
    def group(self) -> Hashable:
        """Queries of one group have the same coalesced query, and select from its result."""
        return (self.source.rule.key, self.source.series, self.source.namespace_label)

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

    def is_served_by(self, coalesced: CoalescedQuery) -> bool:
        """Return whether the selector selects the same series from the result as Prometheus would."""
        return all(_is_local(one) and coalesced.labels.can_have(one.key) for one in self.selector.requirements)

    def plan(self) -> Plan:
        """Plan the request alone.

        Raises:
            SelectorNotSupported, QueryError: as for adapter.planning.metric_queries.external_query.
        """
        rule = self.source.rule
        if isinstance(rule, QueryRule):
            return _filtered(rule, self.source.namespace_label, self.namespace, self.selector)
        assert isinstance(rule, Rule), _NO_QUERY
        namespace = self.namespace if rule.resources.namespaced else ""
        return Plan((external_query(rule.query, self.source, namespace=namespace, selector=self.selector),))

    def coalesced(self) -> CoalescedQuery | None:
        """Return the query for all namespaces and all values of the selector's labels; None if there can be none."""
        source, rule = self.source, self.source.rule
        if not may_be_coalesced(rule):
            return None
        namespaced, label = rule.resources.namespaced, source.namespace_label
        query = functools.partial(external_query, rule.query, source)
        try:
            one = query(namespace=_NAME if namespaced else "", selector=_ONE)
            labels = separable_labels(one, label=_NAME, value=_NAME)
            safe = rule.query.only_writes("LabelMatchers") and (not namespaced or labels.can_have(label))
            if (namespaced and not label) or (not safe and rule.merge is not Merge.ALWAYS):
                return None
            return CoalescedQuery(query(namespace=None if namespaced else ""), labels)
        except (QueryError, SelectorNotSupported):
            return None


MetricQuery = ObjectsQuery | ExternalQuery


def coalesced_query(source: Source) -> str:
    """Return the query for all objects or namespaces of a metric; "" if it cannot be coalesced."""
    query: MetricQuery
    if isinstance(source, ExternalSource):
        query = ExternalQuery(source, "", EVERYTHING)
    else:
        query = ObjectsQuery(source, _NAME if source.info.namespaced else "", [_NAME], False, EVERYTHING)
    found = query.coalesced()
    return found.text if found is not None else ""


def may_be_coalesced(rule: AnyRule) -> TypeGuard[Rule]:
    """Return whether a rule allows to coalesce requests; whether its queries are fit for it is found out later."""
    return isinstance(rule, Rule) and rule.merge is not Merge.NEVER and "LabelValuesByName" not in rule.query.source


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
