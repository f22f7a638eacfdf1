"""What a rule makes of the series that it found: which metrics, of which resources, asked for with which labels.

A series' labels say which objects it can be about: with `namespace` and `pod` it is a metric of pods and one of
namespaces. Which resource a label means is the rule's to say and the API server's to confirm, since only discovery
knows that "pod" is the singular of pods, or that "job" is a resource and "instance" is none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.naming import ResourceNaming
from kube.mapping import GroupResource, NoMatchError, ResourceInfo, ResourceLookup

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

    def object_of(self, labels: Mapping[str, str], *, namespace: str) -> str | None:
        """The name of the object that a sample is about; None if it has no name, or the label of another namespace.

        A query that does not use <<.LabelMatchers>> finds the series of all namespaces. Where its result does not
        have the namespace's label, it is about the namespace that is asked for. `namespace` is "" at the root.
        """
        if namespace and labels.get(self.namespace_label, namespace) != namespace:
            return None
        return labels.get(self.resource_label)


@dataclass(frozen=True, slots=True)
class ExternalSource:
    """Where an external metric comes from; `namespace_label` is "" when the rule knows none."""

    metric: str
    rule: AnyRule
    series: str
    namespace_label: str


@dataclass(frozen=True, slots=True)
class LabelMeaning:
    """What a rule takes a label for: the resource that it names, and the one of the cluster, None if there is none."""

    label: str
    named: GroupResource
    resource: GroupResource | None


@dataclass(frozen=True, slots=True)
class SeriesUse:
    """What a rule makes of one series, and why not more.

    Attributes:
        series: the series.
        metric: what it is called in the API; "" when it is left out.
        left_out_by: the key of the rule that leaves it out, or "".
        labels: its labels that name resources, by the rule.
        sources: the custom metrics that it makes.
    """

    series: Series
    metric: str
    left_out_by: str
    labels: tuple[LabelMeaning, ...] = ()
    sources: tuple[CustomSource, ...] = ()


async def custom_sources(rule: Rule, found: Iterable[Series], mapper: ResourceLookup) -> tuple[CustomSource, ...]:
    """The custom metrics that a rule makes of some series, in the order of the series and their labels.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    return tuple([source async for use in custom_uses(rule, found, mapper) for source in use.sources])


async def custom_uses(rule: Rule, found: Iterable[Series], mapper: ResourceLookup) -> AsyncIterator[SeriesUse]:
    """What a rule makes of each of some series, also of those that it leaves out.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    labels = _Labels(rule.resources, mapper)
    for series in found:
        metric, left_out_by = _name(rule, series)
        if left_out_by:
            yield SeriesUse(series, "", left_out_by)
            continue
        meanings = await labels.meanings(series.labels)
        label_of: dict[GroupResource, str] = {}
        for meaning in meanings:
            if meaning.resource is not None:
                label_of.setdefault(meaning.resource, meaning.label)
        namespace_label = label_of.get(_NAMESPACES) or await labels.for_namespaces()
        namespaced = not _AT_ROOT.issuperset(label_of)
        sources = tuple(
            CustomSource(
                CustomMetricInfo(resource, metric, namespaced and resource not in _AT_ROOT),
                rule,
                series.name,
                label,
                namespace_label,
            )
            for resource, label in label_of.items()
        )
        yield SeriesUse(series, metric, "", meanings, sources)


async def external_sources(rule: Rule, found: Iterable[Series], mapper: ResourceLookup) -> tuple[ExternalSource, ...]:
    """The external metrics that a rule makes of some series, in the order of the series.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    label = await _Labels(rule.resources, mapper).for_namespaces() if rule.resources.namespaced else ""
    uses = external_uses(rule, found)
    return tuple(ExternalSource(use.metric, rule, use.series.name, label) for use in uses if use.metric)


def external_uses(rule: Rule, found: Iterable[Series]) -> tuple[SeriesUse, ...]:
    """What a rule of externalRules makes of each of some series."""
    return tuple(SeriesUse(series, *_name(rule, series)) for series in found)


async def custom_query_source(rule: QueryRule, mapper: ResourceLookup) -> CustomSource:
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


def _name(rule: Rule, series: Series) -> tuple[str, str]:
    """The metric's name, or what leaves the series out; one of the two is empty."""
    metric = rule.metric_for(series.name)
    if metric is None:
        return "", rule.left_out_by(series.name)
    return (metric, "") if _SERIES_NAME.fullmatch(series.name) else ("", "the name of the series")


class _Labels:
    """Which resource each label means, by one rule; every label is looked up once."""

    def __init__(self, naming: ResourceNaming, mapper: ResourceLookup) -> None:
        self._naming = naming
        self._mapper = mapper
        self._overrides = dict(naming.overrides)
        self._rank = {label: rank for rank, label in enumerate(self._overrides)}
        self._known: dict[str, ResourceInfo | None] = {}

    async def meanings(self, labels: Iterable[str]) -> tuple[LabelMeaning, ...]:
        """The labels that name resources; where two mean the same, the overrides come first, in their order."""
        by_rank = sorted(labels, key=lambda label: (self._rank.get(label, len(self._rank)), label))
        found = []
        for label in by_rank:
            named = self._named(label)
            if named is not None:
                info = await self._resource(label)
                found.append(LabelMeaning(label, named, info.group_resource if info is not None else None))
        return tuple(found)

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
        named = self._named(label)
        if named is None:
            return None
        try:
            return await self._mapper.resource_for(named.resource, named.group)
        except NoMatchError:
            _log.debug("label %s: there is no resource %s", label, named)
            return None

    def _named(self, label: str) -> GroupResource | None:
        return self._overrides.get(label) or self._by_template(label)

    def _by_template(self, label: str) -> GroupResource | None:
        template = self._naming.template
        named = template.resource_in(label) if template is not None else None
        # A label cannot have the dots of a group; it has underscores in their place.
        return GroupResource(named.group.replace("_", "."), named.resource) if named is not None else None
