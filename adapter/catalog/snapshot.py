"""An immutable snapshot of all metrics, in one part per rule.

A part is replaced only when its series, or the resources that their labels name, have changed; the snapshot only when a
part was replaced. Both can have tens of thousands of entries, so both are made in a worker thread that releases the GIL
regularly; the event loop only swaps references.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from adapter.catalog.inventory import (
    CustomMetricInfo,
    CustomSource,
    ExternalSource,
    LabelMeanings,
    Source,
    custom_query_source,
    custom_uses,
    external_query_source,
    external_sources,
    label_meanings,
)
from adapter.gil import releasing_gil
from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule, Rule, ScheduleRule
from kube.api.mapping import GroupResource, NoMatchError, ResourceLookup

T = TypeVar("T")

# Fewer series take less than 2 ms and are processed without a thread.
_FEW = 200


@dataclass(frozen=True, slots=True)
class RulePart:
    """The metrics of one rule, custom or external ones, in the order of its series.

    A rule that names its metric has no series. `labels` are all labels of the series, and `meanings` the resources that
    they name; None if the rule does not need them.
    """

    rule: AnyRule
    series: tuple[Series, ...] = ()
    labels: frozenset[str] = frozenset()
    meanings: LabelMeanings | None = None
    custom: tuple[CustomSource, ...] = ()
    external: tuple[ExternalSource, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The metrics."""
        return self.custom or self.external

    @property
    def unreachable(self) -> CustomSource | None:
        """A custom metric that no request can find, because no label maps to namespaces; None if there is none."""
        if self.rule.namespace:
            return None
        return next((source for source in self.custom if source.info.namespaced and not source.namespace_label), None)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All metrics, immutable.

    `parts` are in the order of the file, infos and names sorted, `custom_resources` as in requests. `overlaps` has, for
    each pair of rules that make the same metric, one source that loses, and the one that wins.
    """

    parts: tuple[RulePart, ...] = ()
    custom: Mapping[tuple[GroupResource, str], CustomSource] = field(default_factory=dict)
    external: Mapping[str, ExternalSource] = field(default_factory=dict)
    custom_infos: tuple[CustomMetricInfo, ...] = ()
    external_names: tuple[str, ...] = ()
    custom_resources: frozenset[str] = frozenset()
    overlaps: tuple[tuple[Source, Source], ...] = ()

    def is_made_of(self, parts: tuple[RulePart, ...]) -> bool:
        """Return whether it has these parts, by identity."""
        return len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))


async def part_of(
    rule: AnyRule, found: tuple[Series, ...], before: RulePart | None, mapper: ResourceLookup
) -> RulePart:
    """Return the part of a rule for some series: the previous part if nothing has changed.

    Raises:
        KubeUnreachable, StatusError: discovery of the API server's resources failed.
    """
    if not isinstance(rule, Rule):
        part = await _named_part(rule, mapper)
        return before if before is not None and before == part else part
    # The regular expressions of a namespace's rule may take long.
    size = len(found) if not rule.namespace else sys.maxsize
    unchanged, labels = await _in_thread(size, lambda: _compared(found, before))
    meanings = None
    if not rule.external or rule.resources.namespaced:
        meanings = await label_meanings(rule.resources, () if rule.external else labels, mapper)
    if before is not None and unchanged and before.rule is rule and before.meanings == meanings:
        return before
    return await _in_thread(size, lambda: _made(rule, found, labels, meanings))


async def snapshot_of(parts: tuple[RulePart, ...]) -> Snapshot:
    """Return the snapshot of some parts. Of two rules with the same metric the later one wins."""
    size = sum(len(part.sources) for part in parts)
    return await _in_thread(size, lambda: _put_together(parts))


async def carried_part(rule: Rule, before: RulePart) -> RulePart:
    """Return the part of a rule for the series of `before`, whose rule has the same `resources`. Sends no request."""
    return await _in_thread(len(before.series), lambda: _made(rule, before.series, before.labels, before.meanings))


async def _named_part(rule: QueryRule | ScheduleRule, mapper: ResourceLookup) -> RulePart:
    """Return the metric of a rule that names it; none if the cluster has no such resource."""
    if isinstance(rule, ScheduleRule):
        return RulePart(rule, external=(ExternalSource(rule.metric, rule, "", ""),))
    if rule.external:
        return RulePart(rule, external=(external_query_source(rule),))
    try:
        return RulePart(rule, custom=(await custom_query_source(rule, mapper),))
    except NoMatchError:
        return RulePart(rule)


def _compared(found: tuple[Series, ...], before: RulePart | None) -> tuple[bool, frozenset[str]]:
    """Return whether the series are unchanged, and all their labels."""
    if before is not None and found == before.series:
        return True, before.labels
    return False, frozenset().union(*(series.labels for series in found))


def _made(rule: Rule, found: tuple[Series, ...], labels: frozenset[str], meanings: LabelMeanings | None) -> RulePart:
    series = releasing_gil(found)
    if rule.external:
        return RulePart(rule, found, labels, meanings, external=external_sources(rule, series, meanings))
    assert meanings is not None, "custom metrics need labels"
    custom = tuple(source for use in custom_uses(rule, series, meanings) for source in use.sources)
    return RulePart(rule, found, labels, meanings, custom=custom)


def _put_together(parts: tuple[RulePart, ...]) -> Snapshot:
    overlaps: dict[tuple[str, str], tuple[Source, Source]] = {}
    custom: dict[tuple[GroupResource, str], CustomSource] = {}
    external: dict[str, ExternalSource] = {}
    loses: Source | None
    for source in releasing_gil(source for part in parts for source in part.sources):
        if isinstance(source, CustomSource):
            key = (source.info.resource, source.info.metric)
            loses, custom[key] = custom.get(key), source
        else:
            loses, external[source.metric] = external.get(source.metric), source
        if loses is not None:
            overlaps.setdefault((loses.rule.key, source.rule.key), (loses, source))
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


async def _in_thread(size: int, work: Callable[[], T]) -> T:
    return work() if size <= _FEW else await asyncio.to_thread(work)
