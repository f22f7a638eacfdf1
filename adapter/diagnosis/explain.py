"""Why one metric is there, or is not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from yarl import URL

from adapter.catalog.catalog import Catalog
from adapter.catalog.groups import EXTERNAL_GROUP
from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.diagnosis.probe import Probe, Wanted
from adapter.diagnosis.report import Example, Explanation, SeriesReport
from adapter.diagnosis.rule_results import Examined, examine, metric_name
from adapter.diagnosis.series_names import SeriesNames
from adapter.rules import Rule
from adapter.rules.model import on_one_line
from kube.durations import format_duration
from kube.mapping import NoMatchError, ResourceLookup

EXTERNAL = "external"
_SUGGESTIONS = 3
# What rules usually add to the name of a counter.
_SUFFIX = re.compile(r"_(per_second|per_minute|rate)$")


class TargetError(ValueError):
    """A text names no metric."""


@dataclass(frozen=True, slots=True)
class Target:
    """A metric: of a resource (with its group, as "deployments.apps"), or external with the resource ""."""

    resource: str
    metric: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read "pods/packets_per_second" or "external/queue_depth".

        Raises:
            TargetError: it is neither.
        """
        resource, slash, metric = text.partition("/")
        if not slash or not resource or not metric or "/" in metric:
            raise TargetError(f"{text!r} names no metric; write RESOURCE/METRIC or {EXTERNAL}/METRIC")
        return cls("" if resource == EXTERNAL else resource, metric)

    def __str__(self) -> str:
        return f"{self.resource or EXTERNAL}/{self.metric}"


async def explain(
    target: Target, wanted: Wanted, *, catalog: Catalog, lookup: ResourceLookup, probe: Probe
) -> Explanation:
    """Explain a metric with what the catalog knows now.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    examined = await examine(catalog, lookup)
    source: CustomSource | ExternalSource | None
    if not target.resource:
        source = catalog.find_external(target.metric)
    else:
        name, _, group = target.resource.partition(".")
        try:
            info = await lookup.resource_for(name, group)
        except NoMatchError:
            return Explanation(
                target=str(target),
                reasons=(f"there is no resource {target.resource}",),
                suggestions=_suggestions(target, examined),
            )
        target = Target(str(info.group_resource), target.metric)
        source = catalog.find_custom(info.group_resource, target.metric)
    if source is None:
        forwarded = await probe.forwarded(target.metric, wanted) if not target.resource else None
        if forwarded is not None and forwarded.values:
            return Explanation(target=str(target), forwarded_to=_other_adapter(catalog), example=forwarded)
        reasons = tuple(dict.fromkeys(_why_not(target, catalog, _of_api(target, examined))))
        if not reasons:
            reasons = await _nothing_known(target, probe)
        if forwarded is not None:
            reasons += tuple(_why_not_forwarded(target, catalog, forwarded))
        return Explanation(target=str(target), reasons=reasons, suggestions=_suggestions(target, examined))
    if isinstance(source, CustomSource):
        example = await probe.custom(source, wanted)
    else:
        example = await probe.external(source, wanted)
    return Explanation(
        target=str(target),
        rule=source.rule.key,
        series=source.series,
        hidden=tuple(_hidden(target, examined)),
        example=example,
        reasons=(example.problem,) if example.problem else (),
    )


def _of_api(target: Target, examined: Iterable[Examined]) -> list[Examined]:
    key = "rules[" if target.resource else "externalRules["
    return [one for one in examined if one.rule.key.startswith(key)]


def _hidden(target: Target, examined: Iterable[Examined]) -> Iterator[str]:
    name = str(target) if target.resource else target.metric
    for one in _of_api(target, examined):
        for metric in one.report.metrics:
            if metric.metric == name and metric.hidden_by:
                yield f"{one.rule.key} (of {metric.series})" if metric.series else one.rule.key


def _why_not(target: Target, catalog: Catalog, examined: Sequence[Examined]) -> Iterator[str]:
    if not examined:
        section = "rules" if target.resource else "externalRules"
        yield f"the rules file has no {section}"
    for one in examined:
        rule, report = one.rule, one.report
        if not isinstance(rule, Rule):
            continue
        if report.failure:
            yield f"{rule.key} cannot be listed: {report.failure}"
        elif not report.listed:
            yield f"{rule.key} has not been listed yet"
        elif not report.series and target.metric in _possible(rule):
            age = format_duration(catalog.max_age(rule))
            about = on_one_line(report.about)
            yield f"{rule.key} would make it, but finds no series with a sample in the last {age}: {about}"
        for series in report.series:
            yield from _why_not_of(target, rule, series)


async def _nothing_known(target: Target, probe: Probe) -> tuple[str, ...]:
    """What can be said where no rule has to do with the metric: whether Prometheus knows such a series."""
    stem = _SUFFIX.sub("", target.metric)
    names = await probe.series_called(dict.fromkeys([target.metric, f"{target.metric}_total", stem, f"{stem}_total"]))
    found = tuple(f"Prometheus has series {name}, but no seriesQuery finds it" for name in names)
    return found or (f"no rule makes a metric called {target.metric}",)


def _why_not_forwarded(target: Target, catalog: Catalog, asked: Example) -> Iterator[str]:
    """What the adapter of forwardExternal said, and how to see what the running adapter gets of it."""
    yield f"the adapter of forwardExternal ({_other_adapter(catalog)}), asked in namespace {asked.of}: {asked.problem}"
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1/namespaces/{quote(asked.of, safe='')}/{quote(target.metric, safe='')}"
    yield f"what it answers in the cluster: kubectl get --raw {path}"


def _other_adapter(catalog: Catalog) -> str:
    """Its address, without a password that may be in it."""
    return str(URL(catalog.rules.forward.base).with_user(None)) if catalog.rules.forward is not None else ""


def _why_not_of(target: Target, rule: Rule, series: SeriesReport) -> Iterator[str]:
    """What one series has to do with the metric."""
    where = f"series {series.name} is found by {rule.key}"
    if series.left_out_by:
        if target.metric in (series.name, rule.naming.metric_for(series.name)):
            yield f"{where} and left out by its {series.left_out_by}"
        return
    if series.metric != target.metric:
        if series.name == target.metric:
            yield f"{where} and called {series.metric} in the API"
        return
    if not target.resource or target.resource in series.labels.values():
        return
    for label, named in series.unknown.items():
        yield f"{where}, but its label `{label}` means {named}, which the cluster does not have"
    meant = ", ".join(f"`{label}` ({resource})" for label, resource in series.labels.items()) or "none"
    others = ", ".join(f"`{label}`" for label in series.other_labels) or "none"
    yield (
        f"{where}, but no label maps to {target.resource}: those that map to resources are {meant},"
        f" the others {others}; add an override for the label with the object's name"
    )


def _possible(rule: Rule) -> set[str | None]:
    """The metrics of the names that a seriesQuery lists."""
    return {rule.metric_for(name) for name in SeriesNames.of(rule.series_query).names or ()}


def _suggestions(target: Target, examined: Iterable[Examined]) -> tuple[str, ...]:
    there: dict[str, str] = {}
    for one in examined:
        for source in one.sources:
            name = metric_name(source)
            if isinstance(source, ExternalSource):
                name = f"{EXTERNAL}/{name}"
            there.setdefault(name, name.partition("/")[2])
    same = [name for name, metric in there.items() if metric == target.metric]
    close = difflib.get_close_matches(str(target), there, n=_SUGGESTIONS, cutoff=0.7)
    return tuple(dict.fromkeys([*same, *close]))[:_SUGGESTIONS]
