"""Which metrics there are: MetricIndex has those of the rules in objects, Snapshot those of the rules file.

A rule of a namespace serves this namespace only; others serve all namespaces. Of several objects that make the same
metric for a namespace, the oldest wins, whatever its kind; of two that were created in the same second, the first by
kind, namespace and name. Within one object, the later rule wins, as in the rules file. Metrics of the rules file come
before all of these (adapter.catalog.catalog).

`put` and `remove` are effective for requests at once. The tuples of discovery are new after `publish`, if they changed.

A metric whose value has labels of its own (QueryRule.value_labels) competes only with others of the same labels, and
with those that have none: a request gets the one that its selector selects.
"""

from __future__ import annotations

import asyncio
import bisect
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, MetricKey, Source
from adapter.gil import releasing_gil
from adapter.rules import QueryRule
from adapter.rules.objects import ObjectName, RuleObject
from kube.values.selectors import LabelSelector

# Fewer metrics are sorted within a millisecond, or taken into a snapshot within 2 ms, without a thread.
_FEW, _FEW_IN_FILE = 500, 200
# After all times of creation.
_NEVER = "~"

Precedence = tuple[str, ObjectName]
"""When an object was created, and its name: the lowest wins."""


def precedence(one: RuleObject) -> Precedence:
    """Return an object's precedence."""
    return one.created or _NEVER, one.name


class _Candidate(NamedTuple):
    """A source of a metric, and the precedence of its object."""

    precedence: Precedence
    source: Source


_precedence_of = operator.attrgetter("precedence")


class MetricIndex:
    """The metrics of the rules in objects.

    Attributes:
        problem: returns why it is not known yet which metrics there are; None: it is.
        external: the external metrics, sorted; the same tuple until they change.
        custom: the custom metrics, likewise.
        custom_resources: the resources that have custom metrics, as in requests.
    """

    def __init__(self, *, problem: Callable[[], str | None] = lambda: None) -> None:
        self.problem = problem
        # The candidates of each metric by namespace, the first one wins; those for all namespaces are in "".
        self._candidates: dict[MetricKey, dict[str, tuple[_Candidate, ...]]] = {}
        self._sources: dict[ObjectName, tuple[Source, ...]] = {}
        self._listed: Counter[str | CustomMetricInfo] = Counter()
        self._changed = False
        self.external: tuple[str, ...] = ()
        self.custom: tuple[CustomMetricInfo, ...] = ()
        self.custom_resources: frozenset[str] = frozenset()

    def find(self, namespace: str, key: MetricKey, name: str, selector: LabelSelector) -> Source | None:
        """Return the source of a metric in a namespace; None if there is no such metric. See Catalog.find_custom.

        A value without labels of its own is always selected. Of several with labels, the one with the fewest comes
        first: a selector that names all its labels selects it alone. If none is selected, it is the first source.
        """
        ranked = self._ranked(namespace, key)
        found: tuple[int, Source] | None = None
        for _, source in ranked:
            labels = _value_labels(source)
            if labels is None:
                return source if found is None else found[1]
            values = dict(labels)
            is_named = not name or (isinstance(source, CustomSource) and values.get(source.resource_label) == name)
            if is_named and selector.matches(values) and (found is None or len(labels) < found[0]):
                found = len(labels), source
        if found is not None:
            return found[1]
        return ranked[0].source if ranked else None

    def winner(self, source: Source) -> ObjectName | None:
        """Return the object that makes the metric of `source` where its rule serves; None: no object does."""
        labels = _value_labels(source)
        for (_, name), other in self._ranked(source.rule.namespace, source.key):
            if labels is None or _value_labels(other) in (None, labels):
                return name
        return None

    def sources(self, name: ObjectName) -> tuple[Source, ...]:
        """Return the metrics of an object's rules, whether they win or not."""
        return self._sources.get(name, ())

    def makers(self, namespace: str, key: MetricKey) -> list[Source]:
        """Return all sources of a metric for a namespace, the winner first; with "" those for any namespace."""
        return [one.source for one in sorted(self._competing(namespace, key), key=_precedence_of)]

    def conflicting(self, name: ObjectName) -> set[ObjectName]:
        """Return the objects that make one of an object's metrics for a namespace of it, itself among them."""
        competing = (one for source in self.sources(name) for one in self._competing(source.rule.namespace, source.key))
        return {name, *(one.precedence[1] for one in competing)}

    def put(self, one: RuleObject, sources: Iterable[Source]) -> None:
        """Set the metrics of an object's rules, in the order of the rules."""
        self.remove(one.name)
        by_key = {source.key: source for source in sources}
        if not by_key:
            return
        self._sources[one.name] = tuple(by_key.values())
        self._changed = True
        rank = precedence(one)
        for key, source in by_key.items():
            by_namespace, namespace = self._candidates.setdefault(key, {}), source.rule.namespace
            others = by_namespace.get(namespace, ())
            place = bisect.bisect(others, rank, key=_precedence_of)
            by_namespace[namespace] = (*others[:place], _Candidate(rank, source), *others[place:])
            self._listed[source.listed] += 1

    def remove(self, name: ObjectName) -> None:
        """Remove the metrics of an object."""
        for source in self._sources.pop(name, ()):
            self._changed = True
            namespace, by_namespace = source.rule.namespace, self._candidates[source.key]
            left = tuple(one for one in by_namespace[namespace] if one.source is not source)
            if left:
                by_namespace[namespace] = left
            else:
                del by_namespace[namespace]
            if not by_namespace:
                del self._candidates[source.key]
            self._listed[source.listed] -= 1
            if not self._listed[source.listed]:
                del self._listed[source.listed]

    async def publish(self) -> None:
        """Show the metrics in discovery."""
        if not self._changed:
            return
        self._changed = False
        listed = list(self._listed)
        if len(listed) <= _FEW:
            external, custom, resources = _sorted(listed)
        else:
            external, custom, resources = await asyncio.to_thread(_sorted, listed)
        if external != self.external:
            self.external = external
        if custom != self.custom:
            self.custom, self.custom_resources = custom, resources

    def _ranked(self, namespace: str, key: MetricKey) -> list[_Candidate]:
        """Return the candidates in a namespace, the winner first; with "" those for all namespaces."""
        by_namespace = self._candidates.get(key, {})
        return sorted((one for space in {namespace, ""} for one in by_namespace.get(space, ())), key=_precedence_of)

    def _competing(self, namespace: str, key: MetricKey) -> Iterator[_Candidate]:
        """Yield the candidates for a namespace; with "" those for any."""
        by_namespace = self._candidates.get(key, {})
        for space in {namespace, ""} if namespace else by_namespace:
            yield from by_namespace.get(space, ())


def _value_labels(source: Source) -> tuple[tuple[str, str], ...] | None:
    return source.rule.value_labels if isinstance(source.rule, QueryRule) else None


def _sorted(
    listed: Iterable[str | CustomMetricInfo],
) -> tuple[tuple[str, ...], tuple[CustomMetricInfo, ...], frozenset[str]]:
    external: list[str] = []
    custom: list[CustomMetricInfo] = []
    for one in releasing_gil(listed):
        if isinstance(one, str):
            external.append(one)
        else:
            custom.append(one)
    custom.sort(key=lambda info: (info.metric, info.resource, info.namespaced))
    return (
        tuple(sorted(external)),
        tuple(custom),
        frozenset(map(str, {info.resource for info in releasing_gil(custom)})),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The metrics of the rules file, immutable, and replaced only when the metrics of a rule have changed.

    `parts` are the metrics of each rule, in the order of the file; `custom` and `external` as in discovery, sorted;
    `custom_resources` as in requests. `overlaps` has, for each pair of rules that make the same metric, one source that
    loses, and the one that wins.
    """

    parts: tuple[tuple[Source, ...], ...] = ()
    by_key: Mapping[MetricKey, Source] = field(default_factory=dict)
    custom: tuple[CustomMetricInfo, ...] = ()
    external: tuple[str, ...] = ()
    custom_resources: frozenset[str] = frozenset()
    overlaps: tuple[tuple[Source, Source], ...] = ()


async def snapshot_of(parts: tuple[tuple[Source, ...], ...]) -> Snapshot:
    """Return the snapshot of the metrics of some rules. Of two rules with the same metric the later one wins."""
    if sum(map(len, parts)) <= _FEW_IN_FILE:
        return _put_together(parts)
    return await asyncio.to_thread(_put_together, parts)


def _put_together(parts: tuple[tuple[Source, ...], ...]) -> Snapshot:
    overlaps: dict[tuple[str, str], tuple[Source, Source]] = {}
    by_key: dict[MetricKey, Source] = {}
    for source in releasing_gil(source for part in parts for source in part):
        loses, by_key[source.key] = by_key.get(source.key), source
        if loses is not None:
            overlaps.setdefault((loses.rule.key, source.rule.key), (loses, source))
    external, custom, resources = _sorted(source.listed for source in by_key.values())
    return Snapshot(parts, by_key, custom, external, resources, tuple(overlaps.values()))
