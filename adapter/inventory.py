"""What a rule makes of the series that it found: which metrics, of which resources, asked for with which labels.

A series' labels say which objects it can be about: with `namespace` and `pod` it is a metric of pods and one of
namespaces. Which resource a label means is the rule's to say and the API server's to confirm, since only discovery
knows that "pod" is the singular of pods, or that "job" is a resource and "instance" is none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from adapter.naming import ResourceNaming
from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule, Rule
from kube.mapping import GroupResource, NoMatchError, ResourceInfo, RestMapper

__all__ = [
    "CustomMetricInfo",
    "CustomSource",
    "ExternalSource",
    "custom_query_source",
    "custom_sources",
    "external_query_source",
    "external_sources",
]

_log = logging.getLogger(__name__)

_NAMESPACES = GroupResource("", "namespaces")
# prometheus-adapter counts metrics of these as not namespaced, whatever other labels a series has.
_AT_ROOT = frozenset({_NAMESPACES, GroupResource("", "nodes"), GroupResource("", "persistentvolumes")})

# Anything else cannot be written before the braces of a selector.
_SERIES_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


@dataclass(frozen=True, slots=True)
class CustomMetricInfo:
    """One entry of custom.metrics.k8s.io's discovery.

    Attributes:
        resource: whose metric it is, in the plural.
        metric: its name.
        namespaced: whether it is asked for under a namespace.
    """

    resource: GroupResource
    metric: str
    namespaced: bool

    def __str__(self) -> str:
        return f"{self.resource}/{self.metric}"


@dataclass(frozen=True, slots=True)
class CustomSource:
    """Where a custom metric comes from.

    Attributes:
        info: the metric.
        rule: the rule that makes it.
        series: the name of the series; "" for a short rule.
        resource_label: the label with the objects' names.
        namespace_label: the label with their namespace; "" when the rule knows none.
        group_by: labels that values are told apart by, beside the objects' names.
    """

    info: CustomMetricInfo
    rule: AnyRule
    series: str
    resource_label: str
    namespace_label: str
    group_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternalSource:
    """Where an external metric comes from; `namespace_label` is "" when the rule knows none."""

    metric: str
    rule: AnyRule
    series: str
    namespace_label: str


async def custom_sources(rule: Rule, found: Iterable[Series], mapper: RestMapper) -> tuple[CustomSource, ...]:
    """The custom metrics that a rule makes of some series, in the order of the series and their labels.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    labels = _Labels(rule.resources, mapper)
    sources: list[CustomSource] = []
    for series, metric in _named(rule, found):
        label_of = await labels.by_resource(series.labels)
        namespace_label = label_of.get(_NAMESPACES) or await labels.for_namespaces()
        namespaced = not _AT_ROOT.issuperset(label_of)
        sources += [
            CustomSource(
                CustomMetricInfo(resource, metric, namespaced and resource not in _AT_ROOT),
                rule,
                series.name,
                label,
                namespace_label,
            )
            for resource, label in label_of.items()
        ]
    return tuple(sources)


async def external_sources(rule: Rule, found: Iterable[Series], mapper: RestMapper) -> tuple[ExternalSource, ...]:
    """The external metrics that a rule makes of some series, in the order of the series.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    label = await _Labels(rule.resources, mapper).for_namespaces() if rule.resources.namespaced else ""
    return tuple(ExternalSource(metric, rule, series.name, label) for series, metric in _named(rule, found))


async def custom_query_source(rule: QueryRule, mapper: RestMapper) -> CustomSource:
    """The custom metric of a short rule.

    Raises:
        NoMatchError: the cluster has no such resource.
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    assert rule.resource is not None, "a short rule of externalRules"
    info = await mapper.resource_for(rule.resource.resource, rule.resource.group)
    namespaced = info.group_resource not in _AT_ROOT and bool(rule.namespace_label)
    return CustomSource(
        CustomMetricInfo(info.group_resource, rule.metric, namespaced),
        rule,
        "",
        rule.resource_label,
        rule.namespace_label,
    )


def external_query_source(rule: QueryRule) -> ExternalSource:
    """The external metric of a short rule."""
    return ExternalSource(rule.metric, rule, "", rule.namespace_label)


def _named(rule: Rule, found: Iterable[Series]) -> Iterable[tuple[Series, str]]:
    for series in found:
        metric = rule.metric_for(series.name)
        if metric is not None and _SERIES_NAME.fullmatch(series.name):
            yield series, metric


class _Labels:
    """Which resource each label means, by one rule; every label is looked up once."""

    def __init__(self, naming: ResourceNaming, mapper: RestMapper) -> None:
        self._naming = naming
        self._mapper = mapper
        self._overrides = dict(naming.overrides)
        self._rank = {label: rank for rank, label in enumerate(self._overrides)}
        self._known: dict[str, ResourceInfo | None] = {}

    async def by_resource(self, labels: Iterable[str]) -> dict[GroupResource, str]:
        """The label of each resource; where two labels mean the same, the first override, then the template."""
        by_rank = sorted(labels, key=lambda label: (self._rank.get(label, len(self._rank)), label))
        found: dict[GroupResource, str] = {}
        for label in by_rank:
            info = await self._resource(label)
            if info is not None:
                found.setdefault(info.group_resource, label)
        return found

    async def for_namespaces(self) -> str:
        """The label that the rule has for namespaces, on any series; "" if none."""
        for label in self._overrides:
            info = await self._resource(label)
            if info is not None and info.group_resource == _NAMESPACES:
                return label
        template = self._naming.template
        return template.label_for(group="", singular="namespace") if template is not None else ""

    async def _resource(self, label: str) -> ResourceInfo | None:
        if label not in self._known:
            self._known[label] = await self._look_up(label)
        return self._known[label]

    async def _look_up(self, label: str) -> ResourceInfo | None:
        named = self._overrides.get(label) or self._by_template(label)
        if named is None:
            return None
        try:
            return await self._mapper.resource_for(named.resource, named.group)
        except NoMatchError:
            _log.debug("label %s: there is no resource %s", label, named)
            return None

    def _by_template(self, label: str) -> GroupResource | None:
        template = self._naming.template
        named = template.resource_in(label) if template is not None else None
        # A label cannot have the dots of a group; it has underscores in their place.
        return GroupResource(named.group.replace("_", "."), named.resource) if named is not None else None
