"""The metrics that a rule makes of series: of which resources, and with which labels.

A series' labels say which objects it can describe: with `namespace` and `pod` it is a metric of pods and one of
namespaces. The rule says which resource a label names, and discovery confirms it: only the API server knows that "pod"
is the singular of pods, that "job" is a resource and "instance" is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from adapter.gil import releasing_gil
from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.naming import NAMESPACES, ResourceNaming, is_metric_name
from kube.aio.tasks import in_slices
from kube.api.mapping import GroupResource, NoMatchError, ResourceLookup

_log = logging.getLogger(__name__)

# prometheus-adapter counts metrics of these as not namespaced, whatever other labels a series has.
_CLUSTER_SCOPED = frozenset({NAMESPACES, GroupResource("", "nodes"), GroupResource("", "persistentvolumes")})

# So many labels are matched within a millisecond or two, without a thread.
_FEW = 200


MetricKey = tuple[GroupResource | None, str]
"""A custom metric: its resource, in the plural, and its name. An external metric has no resource."""


@dataclass(frozen=True, slots=True)
class CustomMetricInfo:
    """A custom metric in discovery: resource in the plural, name, and whether requests have a namespace."""

    resource: GroupResource
    metric: str
    namespaced: bool

    def __str__(self) -> str:
        return f"{self.resource}/{self.metric}"


@dataclass(frozen=True, slots=True)
class CustomSource:
    """The rule and series of a custom metric."""

    info: CustomMetricInfo
    """The metric."""
    rule: AnyRule
    """The rule that makes it."""
    series: str
    """The name of the series; "" for a short rule."""
    resource_label: str
    """The label with the objects' names."""
    namespace_label: str
    """The label with their namespace; "" if the rule has none."""
    group_by: tuple[str, ...] = ()
    """Further labels that distinguish values of one object."""
    is_forecast: bool = False
    """The metric has the value that is expected, if that is higher."""

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.info.metric

    @property
    def key(self) -> MetricKey:
        """The metric."""
        return self.info.resource, self.info.metric

    @property
    def listed(self) -> CustomMetricInfo:
        """What discovery lists."""
        return self.info

    def __str__(self) -> str:
        return str(self.info)


@dataclass(frozen=True, slots=True)
class ExternalSource:
    """The rule and series of an external metric; `namespace_label` is "" if the rule has none.

    `is_forecast`: the metric has the value that is expected, if that is higher.
    """

    metric: str
    rule: AnyRule
    series: str
    namespace_label: str
    is_forecast: bool = False

    @property
    def key(self) -> MetricKey:
        """The metric."""
        return None, self.metric

    @property
    def listed(self) -> str:
        """What discovery lists."""
        return self.metric

    def __str__(self) -> str:
        return self.metric


Source = CustomSource | ExternalSource
_S = TypeVar("_S", CustomSource, ExternalSource, Source)


@dataclass(frozen=True, slots=True)
class LabelMeaning:
    """The resource that a rule maps a label to, and the cluster's resource of that name, or None."""

    label: str
    named: GroupResource
    resource: GroupResource | None


@dataclass(frozen=True, slots=True)
class SeriesUse:
    """The metrics that a rule makes of one series.

    `metric` is the name in the API, or "" if the rule's key `left_out_by` excludes the series. `labels` are the labels
    that name resources. `sources` are the custom metrics.
    """

    series: Series
    metric: str
    left_out_by: str
    labels: tuple[LabelMeaning, ...] = ()
    sources: tuple[CustomSource, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelMeanings:
    """The resources that a rule maps the labels of some series to, as discovery has them now."""

    by_label: Mapping[str, LabelMeaning]
    """The labels that the rule maps to resources."""
    namespace_label: str
    """The rule's label for namespaces, whether or not a series has it; "" if none."""


def with_forecasts(rule: AnyRule, sources: Iterable[_S]) -> tuple[_S, ...]:
    """Return a rule's sources with the forecasts that it makes: of the same metrics, or of further ones."""
    forecast = rule.forecast
    if forecast is None:
        return tuple(sources)
    found: list[_S] = []
    for source in sources:
        if not forecast.as_:
            found.append(replace(source, is_forecast=True))
            continue
        found.append(source)
        name: str | None = forecast.as_
        if isinstance(rule, Rule):
            name = rule.naming.matches.expand(forecast.as_, source.series)
        if name is not None and is_metric_name(name) and name != source.metric:
            if isinstance(source, CustomSource):
                found.append(replace(source, info=replace(source.info, metric=name), is_forecast=True))
            else:
                found.append(replace(source, metric=name, is_forecast=True))
    return tuple(found)


async def label_meanings(naming: ResourceNaming, labels: Iterable[str], mapper: ResourceLookup) -> LabelMeanings:
    """Look up the resources that labels name.

    Raises:
        KubeUnreachable, StatusError: discovery of the API server's resources failed.
    """
    overrides = dict(naming.overrides)
    found_labels = {*labels, *overrides}

    def names() -> list[tuple[str, GroupResource]]:
        each = ((label, overrides.get(label) or _by_template(naming, label)) for label in sorted(found_labels))
        return [(label, named) for label, named in releasing_gil(each) if named is not None]

    by_label: dict[str, LabelMeaning] = {}
    all_named = names() if len(found_labels) <= _FEW else await asyncio.to_thread(names)
    async for label, named in in_slices(all_named):
        by_label[label] = LabelMeaning(label, named, await _look_up(label, named, mapper))
    found = next((label for label in overrides if by_label[label].resource == NAMESPACES), "")
    if not found and naming.template is not None:
        found = naming.template.label_for(group="", singular="namespace")
    return LabelMeanings(by_label, found)


def custom_uses(rule: Rule, found: Iterable[Series], meanings: LabelMeanings) -> Iterator[SeriesUse]:
    """Yield the metrics that a rule makes of each series; `meanings` covers all their labels."""
    rank = {label: number for number, (label, _) in enumerate(rule.resources.overrides)}
    by_label = meanings.by_label
    for series in found:
        metric, left_out_by = _name(rule, series)
        if left_out_by:
            yield SeriesUse(series, "", left_out_by)
            continue
        # If two labels name the same resource, overrides win, in the order of the file.
        named = sorted(by_label.keys() & series.labels, key=lambda label: (rank.get(label, len(rank)), label))
        label_of: dict[GroupResource, str] = {}
        for label in named:
            resource = by_label[label].resource
            if resource is not None:
                label_of.setdefault(resource, label)
        namespace_label = label_of.get(NAMESPACES) or meanings.namespace_label
        namespaced = not _CLUSTER_SCOPED.issuperset(label_of)
        sources = tuple(
            CustomSource(
                CustomMetricInfo(resource, metric, namespaced and resource not in _CLUSTER_SCOPED),
                rule,
                series.name,
                label,
                namespace_label,
            )
            for resource, label in label_of.items()
        )
        yield SeriesUse(series, metric, "", tuple(by_label[label] for label in named), sources)


def external_sources(rule: Rule, found: Iterable[Series], meanings: LabelMeanings | None) -> tuple[ExternalSource, ...]:
    """Return the external metrics of series; `meanings` is None if the namespace does not matter."""
    label = meanings.namespace_label if meanings is not None else ""
    uses = external_uses(rule, found)
    return tuple(ExternalSource(use.metric, rule, use.series.name, label) for use in uses if use.metric)


def external_uses(rule: Rule, found: Iterable[Series]) -> tuple[SeriesUse, ...]:
    """Return the metric that a rule of externalRules makes of each series."""
    return tuple(SeriesUse(series, *_name(rule, series)) for series in found)


async def custom_query_source(rule: QueryRule, mapper: ResourceLookup) -> CustomSource:
    """Return the custom metric of a short rule.

    Raises:
        NoMatchError: the cluster has no such resource.
        KubeUnreachable, StatusError: discovery of the API server's resources failed.
    """
    assert rule.resource is not None, "a short rule of externalRules"
    info = await mapper.resource_for(rule.resource.resource, rule.resource.group)
    namespaced = info.group_resource not in _CLUSTER_SCOPED and bool(rule.namespace_label)
    if rule.namespace:  # the whole result of a namespace's own rule counts for it if no label names the namespace
        namespaced = info.namespaced
    return CustomSource(
        CustomMetricInfo(info.group_resource, rule.metric, namespaced),
        rule,
        "",
        rule.resource_label,
        rule.namespace_label,
    )


def external_query_source(rule: QueryRule) -> ExternalSource:
    """Return the external metric of a short rule."""
    return ExternalSource(rule.metric, rule, "", rule.namespace_label)


def _name(rule: Rule, series: Series) -> tuple[str, str]:
    """Return the metric's name and why the series is left out; one of the two is empty."""
    metric = rule.metric_for(series.name)
    if metric is None or not rule.can_query(series.name):
        return "", rule.left_out_by(series.name)
    return metric, ""


async def _look_up(label: str, named: GroupResource, mapper: ResourceLookup) -> GroupResource | None:
    try:
        return (await mapper.resource_for(named.resource, named.group)).group_resource
    except NoMatchError:
        _log.debug("label %s: there is no resource %s", label, named)
        return None


def _by_template(naming: ResourceNaming, label: str) -> GroupResource | None:
    template = naming.template
    named = template.resource_in(label) if template is not None else None
    # Labels cannot contain dots: those of a group are written as underscores.
    return GroupResource(named.group.replace("_", "."), named.resource) if named is not None else None
