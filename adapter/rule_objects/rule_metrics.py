"""From a rule of an object to its metrics."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapter.catalog.inventory import CustomSource, Source
from adapter.catalog.snapshot import part_of
from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule
from adapter.rules.naming import NAMESPACES
from kube.api.mapping import ResourceLookup

# Each metric takes memory here, and a line in the discovery of every client of the cluster. Those of one rule are
# replaced together, in some 40 ms.
_MAX_METRICS = 5_000
_MAX_METRICS_OF_TENANT = 200
_MAX_NAMES_OF_TENANT = 2_000
_MAX_SERIES_NAME = 1_024
# Of a metric, in bytes of JSON. Names stand in the discovery documents, which every client of the cluster reads.
_MAX_NAME = 253


class UnusableRuleError(ValueError):
    """A rule that cannot make its metrics; the message says why, and what to change."""


async def metrics_of(rule: AnyRule, found: tuple[Series, ...], mapper: ResourceLookup) -> tuple[Source, ...]:
    """Return the metrics that a rule makes: of the series that it has found, or the metric of a short rule.

    Raises:
        UnusableRuleError: it makes none, or too many, or none with a name that a metric of an object can have.
        KubeError, StatusError: discovery of the API server's resources failed.
    """
    if rule.namespace:  # its regular expressions may take a millisecond for each name
        found = tuple(series for series in found if len(series.name) <= _MAX_SERIES_NAME)
        if len(found) > _MAX_NAMES_OF_TENANT:
            raise UnusableRuleError(
                f"its seriesQuery finds {len(found)} names of series, and can find {_MAX_NAMES_OF_TENANT}; narrow it"
            )
    part = await part_of(rule, found, None, mapper)
    sources = part.sources
    if rule.namespace:
        sources = tuple(source for source in sources if _is_in_a_namespace(source))
    named = tuple(source for source in sources if _is_name(source.metric))
    if sources and not named:
        raise UnusableRuleError(
            f"the name of a metric can have {_MAX_NAME} bytes, all printable: {sources[0].metric[:40]!r}..."
        )
    sources = named
    limit = _MAX_METRICS_OF_TENANT if rule.namespace else _MAX_METRICS
    if len(sources) > limit:
        raise UnusableRuleError(
            f"it makes {len(sources)} metrics, and can make {limit}; narrow its seriesQuery or its seriesFilters"
        )
    if not sources and isinstance(rule, QueryRule):
        raise UnusableRuleError(_why_none(rule, part.custom))
    return sources


def _is_name(metric: str) -> bool:
    return metric.isprintable() and len(msgspec.json.encode(metric)) <= _MAX_NAME + len('""')


def _is_in_a_namespace(source: Source) -> bool:
    """Return whether a metric describes objects of a namespace, or the namespace itself."""
    return not isinstance(source, CustomSource) or source.info.namespaced or source.info.resource == NAMESPACES


def _why_none(rule: QueryRule, custom: Iterable[CustomSource]) -> str:
    for source in custom:
        return f"{source.info.resource} are in no namespace; only a ClusterMetricRule can have a metric of them"
    return f"the cluster has no resource {rule.resource}"
