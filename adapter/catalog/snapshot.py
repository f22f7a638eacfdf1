"""An immutable snapshot of the metrics of the rules file.

It is replaced only when the metrics of a rule have changed. It can have tens of thousands of entries, so it is made in
a worker thread that releases the GIL regularly; the event loop only swaps references.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, MetricKey, Source
from adapter.gil import releasing_gil

# Fewer metrics take less than 2 ms and are processed without a thread.
_FEW = 200


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All metrics, immutable.

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
    if sum(map(len, parts)) <= _FEW:
        return _put_together(parts)
    return await asyncio.to_thread(_put_together, parts)


def _put_together(parts: tuple[tuple[Source, ...], ...]) -> Snapshot:
    overlaps: dict[tuple[str, str], tuple[Source, Source]] = {}
    by_key: dict[MetricKey, Source] = {}
    for source in releasing_gil(source for part in parts for source in part):
        loses, by_key[source.key] = by_key.get(source.key), source
        if loses is not None:
            overlaps.setdefault((loses.rule.key, source.rule.key), (loses, source))
    custom = [one.info for one in releasing_gil(by_key.values()) if isinstance(one, CustomSource)]
    return Snapshot(
        parts=parts,
        by_key=by_key,
        custom=tuple(sorted(custom, key=lambda info: (info.metric, info.resource))),
        external=tuple(sorted(metric for resource, metric in by_key if resource is None)),
        custom_resources=frozenset(str(resource) for resource in {info.resource for info in custom}),
        overlaps=tuple(overlaps.values()),
    )
