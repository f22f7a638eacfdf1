"""The metrics of rules in objects: MetricRules, ClusterMetricRules, ConfigMaps and annotations of HPAs.

A rule of a namespace serves this namespace only; others serve all namespaces. Of several objects that make the same
metric for a namespace, the oldest wins, whatever its kind; of two that were created in the same second, the first by
kind, namespace and name. Within one object, the later rule wins, as in the rules file. Metrics of the rules file come
before all of these.

`put` and `remove` are effective for requests at once. The tuples of discovery are new after `publish`, if they changed.

A metric whose value has labels of its own (QueryRule.value_labels) competes only with others of the same labels, and
with those that have none: a request gets the one that its selector selects.
"""

from __future__ import annotations

import asyncio
import bisect
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource, Source
from adapter.gil import releasing_gil
from adapter.rules import QueryRule
from adapter.rules.objects import ObjectName, RuleObject
from kube.api.mapping import GroupResource
from kube.api.status import service_unavailable
from kube.values.selectors import EVERYTHING, LabelSelector

# Fewer metrics are sorted within a millisecond, without a thread.
_FEW = 500
# After all times of creation.
_NEVER = "~"

K = TypeVar("K")
S = TypeVar("S", CustomSource, ExternalSource)
_Custom = tuple[GroupResource, str]
Precedence = tuple[str, ObjectName]
"""When an object was created, and its name: the lowest wins."""


def precedence(one: RuleObject) -> Precedence:
    """Return an object's precedence."""
    return one.created or _NEVER, one.name


@dataclass(frozen=True, slots=True, order=True)
class _Candidate(Generic[S]):
    """A source of a metric, and the precedence of its object."""

    precedence: Precedence
    source: S


class _Index(Generic[K, S]):
    """The candidates of each metric by namespace, the first one wins; those for all namespaces are in ""."""

    def __init__(self) -> None:
        self._by_key: dict[K, dict[str, list[_Candidate[S]]]] = {}

    def add(self, namespace: str, key: K, candidate: _Candidate[S]) -> None:
        candidates = self._by_key.setdefault(key, {}).setdefault(namespace, [])
        bisect.insort(candidates, candidate, key=_precedence_of)

    def discard(self, namespace: str, key: K, name: ObjectName) -> None:
        by_namespace = self._by_key[key]
        left = [candidate for candidate in by_namespace[namespace] if candidate.precedence[1] != name]
        if left:
            by_namespace[namespace] = left
            return
        del by_namespace[namespace]
        if not by_namespace:
            del self._by_key[key]

    def first(self, namespace: str, key: K) -> _Candidate[S] | None:
        """Return the candidate that wins in a namespace."""
        by_namespace = self._by_key.get(key)
        if by_namespace is None:
            return None
        own, common = by_namespace.get(namespace), by_namespace.get("")
        if own is None or common is None:
            found = own or common
            return found[0] if found else None
        return min(own[0], common[0], key=_precedence_of)

    def ranked(self, namespace: str, key: K) -> list[_Candidate[S]]:
        """Return the candidates in a namespace, the winner first; with "" those for all namespaces."""
        by_namespace = self._by_key.get(key, {})
        return sorted((one for space in {namespace, ""} for one in by_namespace.get(space, ())), key=_precedence_of)

    def conflicting(self, namespace: str, key: K) -> Iterator[ObjectName]:
        """Yield the objects that make a metric for a namespace; with "" those that make it for any."""
        for candidate in self.candidates(namespace, key):
            yield candidate.precedence[1]

    def candidates(self, namespace: str, key: K) -> Iterator[_Candidate[S]]:
        """Yield the candidates for a namespace; with "" those for any."""
        by_namespace = self._by_key.get(key, {})
        for space in {namespace, ""} if namespace else by_namespace:
            yield from by_namespace.get(space, ())


_precedence_of = operator.attrgetter("precedence")


class ObjectCatalog:
    """The metrics of the rules in objects.

    Attributes:
        external: the external metrics, sorted; the same tuple until they change.
        custom: the custom metrics, likewise.
        custom_resources: the resources that have custom metrics, as in requests.
    """

    def __init__(self, *, problem: Callable[[], str | None] = lambda: None) -> None:
        """`problem` returns why it is not known yet which metrics there are; None: it is."""
        self._problem = problem
        self._external: _Index[str, ExternalSource] = _Index()
        self._custom: _Index[_Custom, CustomSource] = _Index()
        self._sources: dict[ObjectName, tuple[str, tuple[Source, ...]]] = {}
        self._external_names: Counter[str] = Counter()
        self._custom_infos: Counter[CustomMetricInfo] = Counter()
        self._changed = False
        self.external: tuple[str, ...] = ()
        self.custom: tuple[CustomMetricInfo, ...] = ()
        self.custom_resources: frozenset[str] = frozenset()

    def require_known(self) -> None:
        """Raise before all objects are known, when it is not known yet whether a metric exists.

        Raises:
            StatusError: 503, with the reason.
        """
        problem = self._problem()
        if problem is not None:
            raise service_unavailable(f"it is not known yet which metrics there are: {problem}")

    def find_external(self, namespace: str, metric: str, selector: LabelSelector = EVERYTHING) -> ExternalSource | None:
        """Return the source of an external metric in a namespace; None if there is no such metric."""
        found = self._external.first(namespace, metric)
        if found is None or _value_labels(found.source) is None:
            return None if found is None else found.source
        return _selected(self._external.ranked(namespace, metric), selector.matches)

    def find_custom(
        self,
        namespace: str,
        resource: GroupResource,
        metric: str,
        *,
        name: str = "",
        selector: LabelSelector = EVERYTHING,
    ) -> CustomSource | None:
        """Return the source of a metric of a resource (in the plural); None if there is no such metric.

        `namespace` is that of the objects; for a metric of a namespace itself, its name; else "". `name` is that of the
        object, or "" for any; `selector` selects the metric's series.
        """
        found = self._custom.first(namespace, (resource, metric))
        if found is None or _value_labels(found.source) is None:
            return None if found is None else found.source
        label = found.source.resource_label
        return _selected(
            self._custom.ranked(namespace, (resource, metric)),
            lambda labels: name in ("", labels.get(label)) and selector.matches(labels),
        )

    def winner(self, namespace: str, source: Source) -> ObjectName | None:
        """Return the object that makes the metric of `source` in a namespace, or in all (""); None: no object does."""
        found: Sequence[_Candidate[ExternalSource] | _Candidate[CustomSource]]
        if isinstance(source, ExternalSource):
            found = self._external.ranked(namespace, source.metric)
        else:
            found = self._custom.ranked(namespace, (source.info.resource, source.info.metric))
        labels = _value_labels(source)
        for one in found:
            if labels is None or _value_labels(one.source) in (None, labels):
                return one.precedence[1]
        return None

    def sources(self, name: ObjectName) -> tuple[Source, ...]:
        """Return the metrics of an object's rules, whether they win or not."""
        return self._sources.get(name, ("", ()))[1]

    def makers(self, namespace: str, resource: GroupResource | None, metric: str) -> list[Source]:
        """Return all sources of a metric for a namespace, the winner first; with "" those for any namespace.

        `resource` is None for an external metric.
        """
        found: list[_Candidate[CustomSource] | _Candidate[ExternalSource]] = []
        if resource is None:
            found += self._external.candidates(namespace, metric)
        else:
            found += self._custom.candidates(namespace, (resource, metric))
        return [candidate.source for candidate in sorted(found, key=_precedence_of)]

    def conflicting(self, name: ObjectName) -> set[ObjectName]:
        """Return the objects that make one of an object's metrics for a namespace of it, itself among them."""
        namespace, sources = self._sources.get(name, ("", ()))
        found = {name}
        for source in sources:
            if isinstance(source, ExternalSource):
                found.update(self._external.conflicting(namespace, source.metric))
            else:
                found.update(self._custom.conflicting(namespace, (source.info.resource, source.info.metric)))
        return found

    def put(self, one: RuleObject, sources: Iterable[Source]) -> None:
        """Set the metrics of an object's rules, in the order of the rules."""
        self.remove(one.name)
        by_key = {_key(source): source for source in sources}
        if not by_key:
            return
        namespace = next(iter(by_key.values())).rule.namespace
        self._sources[one.name] = (namespace, tuple(by_key.values()))
        self._changed = True
        rank = precedence(one)
        for source in by_key.values():
            if isinstance(source, ExternalSource):
                self._external.add(namespace, source.metric, _Candidate(rank, source))
                self._external_names[source.metric] += 1
            else:
                key = (source.info.resource, source.info.metric)
                self._custom.add(namespace, key, _Candidate(rank, source))
                self._custom_infos[source.info] += 1

    def remove(self, name: ObjectName) -> None:
        """Remove the metrics of an object."""
        namespace, sources = self._sources.pop(name, ("", ()))
        self._changed = self._changed or bool(sources)
        for source in sources:
            if isinstance(source, ExternalSource):
                self._external.discard(namespace, source.metric, name)
                _subtract(self._external_names, source.metric)
            else:
                self._custom.discard(namespace, (source.info.resource, source.info.metric), name)
                _subtract(self._custom_infos, source.info)

    async def publish(self) -> None:
        """Show the metrics in discovery."""
        if not self._changed:
            return
        self._changed = False
        names, infos = list(self._external_names), list(self._custom_infos)
        if len(names) + len(infos) <= _FEW:
            external, custom, resources = _sorted(names, infos)
        else:
            external, custom, resources = await asyncio.to_thread(_sorted, names, infos)
        if external != self.external:
            self.external = external
        if custom != self.custom:
            self.custom, self.custom_resources = custom, resources


def _value_labels(source: Source) -> tuple[tuple[str, str], ...] | None:
    return source.rule.value_labels if isinstance(source.rule, QueryRule) else None


def _selected(candidates: Sequence[_Candidate[S]], selects: Callable[[Mapping[str, str]], bool]) -> S:
    """Return the first candidate that is selected; if none is, the first one.

    One without labels of its own is always selected. Of several with labels, the one with the fewest comes first: a
    selector that names all its labels selects it alone.
    """
    found: tuple[int, S] | None = None
    for one in candidates:
        labels = _value_labels(one.source)
        if labels is None:
            return one.source if found is None else found[1]
        if selects(dict(labels)) and (found is None or len(labels) < found[0]):
            found = len(labels), one.source
    return candidates[0].source if found is None else found[1]


def _key(source: Source) -> object:
    return source.metric if isinstance(source, ExternalSource) else (source.info.resource, source.info.metric)


def _subtract(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _sorted(
    names: list[str], infos: list[CustomMetricInfo]
) -> tuple[tuple[str, ...], tuple[CustomMetricInfo, ...], frozenset[str]]:
    ordered = sorted(releasing_gil(infos), key=lambda info: (info.metric, info.resource, info.namespaced))
    return tuple(sorted(names)), tuple(ordered), frozenset(str(info.resource) for info in releasing_gil(ordered))
