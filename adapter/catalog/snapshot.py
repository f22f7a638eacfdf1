"""All metrics at one moment, made of what each rule makes of its series.

A part belongs to one rule and is replaced only when its series, or the meaning of their labels, have changed. A
snapshot is put together from all parts, and only when one of them was replaced. Both can have ten thousands of entries,
so both are made in a worker thread that releases the GIL regularly; the event loop only swaps references.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from adapter.catalog.inventory import (
    CustomMetricInfo,
    CustomSource,
    ExternalSource,
    LabelMeanings,
    custom_query_source,
    custom_series_uses,
    external_query_source,
    external_series_sources,
    label_meanings,
)
from adapter.gil import releasing_gil
from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule, Rule
from kube.mapping import GroupResource, NoMatchError, ResourceLookup

T = TypeVar("T")

# Fewer series than these are worked on at once: 2 ms.
_FEW = 200


@dataclass(frozen=True, slots=True)
class RulePart:
    """What one rule made of its last list.

    Attributes:
        rule: the rule.
        series: what its seriesQuery found; nothing for a short rule.
        labels: all labels of the series.
        meanings: what the labels mean; None where that does not matter.
        custom: the custom metrics, in the order of the series.
        external: the external metrics, likewise.
    """

    rule: AnyRule
    series: tuple[Series, ...] = ()
    labels: frozenset[str] = frozenset()
    meanings: LabelMeanings | None = None
    custom: tuple[CustomSource, ...] = ()
    external: tuple[ExternalSource, ...] = ()

    def for_rule(self, rule: AnyRule) -> RulePart:
        """The same part for a rule that differs only in its place in the file."""
        return replace(
            self,
            rule=rule,
            custom=tuple(replace(source, rule=rule) for source in releasing_gil(self.custom)),
            external=tuple(replace(source, rule=rule) for source in releasing_gil(self.external)),
        )

    @property
    def unreachable(self) -> CustomSource | None:
        """A custom metric that no request can ever find, because no label means namespaces; None if there is none."""
        return next((source for source in self.custom if source.info.namespaced and not source.namespace_label), None)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two rules that make the same metric: its name, and the source that loses and the one that wins."""

    metric: str
    loses: CustomSource | ExternalSource
    wins: CustomSource | ExternalSource


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All metrics at one moment. Replaced, never changed.

    Attributes:
        parts: what it is made of, in the order of the file.
        custom: the source of each custom metric, by resource and name.
        external: the source of each external metric.
        custom_infos: the custom metrics, sorted.
        external_names: the external metrics, sorted.
        custom_resources: the resources that have custom metrics, as requests spell them.
        overlaps: one for each pair of rules that make the same metric.
    """

    parts: tuple[RulePart, ...] = ()
    custom: Mapping[tuple[GroupResource, str], CustomSource] = field(default_factory=dict)
    external: Mapping[str, ExternalSource] = field(default_factory=dict)
    custom_infos: tuple[CustomMetricInfo, ...] = ()
    external_names: tuple[str, ...] = ()
    custom_resources: frozenset[str] = frozenset()
    overlaps: tuple[Overlap, ...] = ()

    def is_made_of(self, parts: tuple[RulePart, ...]) -> bool:
        """Tell whether these very parts are its own."""
        return len(parts) == len(self.parts) and all(map(_is_same, parts, self.parts))


async def part_of(
    rule: AnyRule, found: tuple[Series, ...], before: RulePart | None, mapper: ResourceLookup, *, external: bool
) -> RulePart:
    """What a rule makes of some series: the part that it made before where nothing has changed.

    Args:
        rule: the rule.
        found: the series.
        before: its last part, or None.
        mapper: which resources there are.
        external: whether the rule stands in externalRules.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    if isinstance(rule, QueryRule):
        part = await _query_part(rule, mapper, external=external)
        return before if before is not None and before == part else part
    unchanged, labels = await _in_thread(len(found), lambda: _compared(found, before))
    meanings = None
    if not external:
        meanings = await label_meanings(rule.resources, labels, mapper)
    elif rule.resources.namespaced:
        meanings = await label_meanings(rule.resources, (), mapper)
    if before is not None and unchanged and before.rule is rule and before.meanings == meanings:
        return before
    return await _in_thread(len(found), lambda: _made(rule, found, labels, meanings, external=external))


async def snapshot_of(parts: tuple[RulePart, ...]) -> Snapshot:
    """Put parts together. Of two rules with the same metric the later one wins."""
    size = sum(len(part.custom) + len(part.external) for part in parts)
    return await _in_thread(size, lambda: _put_together(parts))


async def moved_parts(moves: Iterable[tuple[RulePart, AnyRule]]) -> list[RulePart]:
    """The parts of rules that are as they were, for the rules of another file."""
    pairs = tuple(moves)
    size = sum(len(part.custom) + len(part.external) for part, _ in pairs)
    return await _in_thread(size, lambda: [part.for_rule(rule) for part, rule in pairs])


async def _query_part(rule: QueryRule, mapper: ResourceLookup, *, external: bool) -> RulePart:
    """The metric of a short rule; none where the cluster has no such resource."""
    if external:
        return RulePart(rule, external=(external_query_source(rule),))
    try:
        return RulePart(rule, custom=(await custom_query_source(rule, mapper),))
    except NoMatchError:
        return RulePart(rule)


def _compared(found: tuple[Series, ...], before: RulePart | None) -> tuple[bool, frozenset[str]]:
    """Whether the series are those of before, and all their labels."""
    if before is not None and found == before.series:
        return True, before.labels
    return False, frozenset().union(*(series.labels for series in found))


def _made(
    rule: Rule, found: tuple[Series, ...], labels: frozenset[str], meanings: LabelMeanings | None, *, external: bool
) -> RulePart:
    series = releasing_gil(found)
    if external:
        sources = external_series_sources(rule, series, meanings)
        return RulePart(rule, found, labels, meanings, external=sources)
    assert meanings is not None, "custom metrics need labels"
    custom = tuple(source for use in custom_series_uses(rule, series, meanings) for source in use.sources)
    return RulePart(rule, found, labels, meanings, custom=custom)


def _put_together(parts: tuple[RulePart, ...]) -> Snapshot:
    overlaps: dict[tuple[str, str], Overlap] = {}
    custom: dict[tuple[GroupResource, str], CustomSource] = {}
    external: dict[str, ExternalSource] = {}
    for source in releasing_gil(source for part in parts for source in part.custom):
        key = (source.info.resource, source.info.metric)
        if key in custom:
            _note(overlaps, str(source.info), custom[key], source)
        custom[key] = source
    for found in releasing_gil(found for part in parts for found in part.external):
        if found.metric in external:
            _note(overlaps, found.metric, external[found.metric], found)
        external[found.metric] = found
    infos = sorted(
        (source.info for source in releasing_gil(custom.values())), key=lambda info: (info.metric, info.resource)
    )
    resources = {resource for resource, _ in custom}
    return Snapshot(
        parts=parts,
        custom=custom,
        external=external,
        custom_infos=tuple(infos),
        external_names=tuple(sorted(external)),
        custom_resources=frozenset(map(str, resources)),
        overlaps=tuple(overlaps.values()),
    )


def _note(
    overlaps: dict[tuple[str, str], Overlap],
    metric: str,
    loses: CustomSource | ExternalSource,
    wins: CustomSource | ExternalSource,
) -> None:
    overlaps.setdefault((loses.rule.key, wins.rule.key), Overlap(metric, loses, wins))


async def _in_thread(size: int, work: Callable[[], T]) -> T:
    return work() if size <= _FEW else await asyncio.to_thread(work)


def _is_same(one: object, other: object) -> bool:
    return one is other
