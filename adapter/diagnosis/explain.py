"""`explain`: where one metric comes from and its value, or why it is missing."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from yarl import URL

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import Source
from adapter.content.values import EXTERNAL_GROUP
from adapter.diagnosis.check import RuleResult, rule_results
from adapter.diagnosis.lint import SeriesNames
from adapter.diagnosis.probe import Probe, Selection
from adapter.diagnosis.report import RuleReport, SeriesReport
from adapter.gil import releasing_gil
from adapter.rules import Rule
from kube.api.mapping import NoMatchError, ResourceLookup
from kube.values.durations import format_duration
from kube.values.printable import on_one_line
from kube.web.explanation import Example, Explanation

EXTERNAL = "external"
_SUGGESTIONS = 3
_SOURCES_AT_ONCE = 200  # without releasing the GIL
# What rules usually append to the name of a counter.
_SUFFIX = re.compile(r"_(per_second|per_minute|rate)$")


class TargetError(ValueError):
    """A text names no metric."""


@dataclass(frozen=True, slots=True)
class Target:
    """A metric of a resource, with its group as in "deployments.apps"; or an external one, with the resource ""."""

    resource: str
    metric: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse "pods/packets_per_second" or "external/queue_depth".

        Raises:
            TargetError: it is neither.
        """
        resource, slash, metric = text.partition("/")
        if not slash or not resource or not metric or "/" in metric:
            raise TargetError(f"{text!r} names no metric; write RESOURCE/METRIC or {EXTERNAL}/METRIC")
        return cls("" if resource == EXTERNAL else resource, metric)

    def __str__(self) -> str:
        return f"{self.resource or EXTERNAL}/{self.metric}"


Problems = Callable[[str], Iterable[str]]
"""Returns why objects with rules that could serve a namespace ("" for any) serve nothing."""

FindForecasts = Callable[[Source, Selection], Awaitable[tuple[str, ...]]]
"""Returns what is expected of a metric whose rule has `forecast`."""


async def explain(
    target: Target,
    selection: Selection,
    *,
    catalog: Catalog,
    lookup: ResourceLookup,
    probe: Probe,
    problems: Problems = lambda _: (),
    forecasts: FindForecasts | None = None,
) -> Explanation:
    """Explain a metric, with the series that the catalog has listed.

    A metric that only objects of some namespaces make is explained for the first of these, if `selection` has none.
    `problems` is about objects with rules.

    Raises:
        KubeUnreachable, StatusError: the API server cannot list its resources.
    """
    resource = None
    if target.resource:
        name, _, group = target.resource.partition(".")
        try:
            resource = (await lookup.resource_for(name, group)).group_resource
        except NoMatchError:
            reason = f"there is no resource {target.resource}"
            suggestions = await asyncio.to_thread(_suggestions, target, catalog)
            return Explanation(target=str(target), reasons=(reason,), suggestions=suggestions)
        target = Target(str(resource), target.metric)
    makers = catalog.makers(selection.namespace, (resource, target.metric))
    if not makers:
        return await _missing(target, selection, catalog, probe, problems)
    source, *others = makers
    if source.rule.namespace:
        others = [other for other in others if other.rule.namespace in ("", source.rule.namespace)]
    example = await probe.over_last_scrapes(source, selection, await probe.example(source, selection))
    return Explanation(
        target=str(target),
        rule=source.rule.key,
        series=source.series,
        hidden=await asyncio.to_thread(_hidden, source, catalog),
        hidden_objects=tuple(other.rule.key for other in others),
        example=example,
        graphs=probe.graphs(source, example.queries),
        reasons=example.reasons,
        forecasts=await forecasts(source, selection) if forecasts and source.rule.forecast is not None else (),
    )


async def _missing(
    target: Target, selection: Selection, catalog: Catalog, probe: Probe, problems: Problems
) -> Explanation:
    """Explain a metric that no rule makes: the adapter of forwardExternal may have it."""
    forwarded = await probe.forwarded(target.metric, selection) if not target.resource else None
    if forwarded is not None and forwarded.values:
        return Explanation(target=str(target), forwarded_to=_other_adapter(target, catalog), example=forwarded)
    # In a thread, because there may be tens of thousands of metrics.
    suggestions = await asyncio.to_thread(_suggestions, target, catalog)
    reasons = await asyncio.to_thread(_reasons, target, catalog)
    if not reasons:
        reasons = await _unrelated_series(target, probe)
    reasons += problems(selection.namespace)
    if forwarded is not None:
        reasons += _why_not_forwarded(target, catalog, forwarded)
    return Explanation(target=str(target), reasons=tuple(reasons), suggestions=suggestions)


def _same_section(target: Target, results: Iterable[RuleResult]) -> list[RuleResult]:
    """Return the results of `rules` or of `externalRules`."""
    section = "rules[" if target.resource else "externalRules["
    return [one for one in results if one.rule.key.startswith(section)]


def _hidden(source: Source, catalog: Catalog) -> tuple[str, ...]:
    """Return the rules, with their series, that make the same metric as `source`, which takes precedence."""
    return tuple(
        f"{one.rule.key} (of {one.series})" if one.series else one.rule.key
        for one in _sources(catalog)
        if one.key == source.key and (one.rule.key, one.series) != (source.rule.key, source.series)
    )


def _sources(catalog: Catalog) -> Iterator[Source]:
    """Yield the sources of all metrics, in the order of the rules. Call it in a thread."""
    return releasing_gil((source for part in catalog.snapshot.parts for source in part), every=_SOURCES_AT_ONCE)


def _reasons(target: Target, catalog: Catalog) -> list[str]:
    return list(dict.fromkeys(_why_missing(target, catalog, _same_section(target, rule_results(catalog)))))


def _why_missing(target: Target, catalog: Catalog, results: Sequence[RuleResult]) -> Iterator[str]:
    if not results:
        yield f"the rules file has no {'rules' if target.resource else 'externalRules'}"
    for one in results:
        if isinstance(one.rule, Rule):
            yield from _why_not_by(one.rule, one.report, target, format_duration(catalog.max_age(one.rule)))


def _why_not_by(rule: Rule, report: RuleReport, target: Target, age: str) -> Iterator[str]:
    """Yield why one rule does not make the metric; nothing if the rule is unrelated."""
    names = SeriesNames.of(rule.series_query).names or ()
    if report.failure:
        yield f"{rule.key} cannot be listed: {report.failure}"
    elif not report.listed:
        yield f"{rule.key} has not been listed yet"
    elif not report.series and target.metric in map(rule.metric_for, names):
        about = on_one_line(report.about)
        yield f"{rule.key} would make it, but finds no series with a sample in the last {age}: {about}"
    for series in report.series:
        yield from _why_not_of(rule, series, target)


def _why_not_of(rule: Rule, series: SeriesReport, target: Target) -> Iterator[str]:
    """Yield why a rule does not make the metric from one of its series; nothing if the series is unrelated."""
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
    mapped = ", ".join(f"`{label}` ({resource})" for label, resource in series.labels.items()) or "none"
    others = ", ".join(f"`{label}`" for label in series.other_labels) or "none"
    yield (
        f"{where}, but no label maps to {target.resource}: those that map to resources are {mapped},"
        f" the others {others}; add an override for the label with the object's name"
    )


async def _unrelated_series(target: Target, probe: Probe) -> list[str]:
    """Return the reason if Prometheus has a series of a similar name that no rule finds."""
    stem = _SUFFIX.sub("", target.metric)
    candidates = dict.fromkeys([target.metric, f"{target.metric}_total", stem, f"{stem}_total"])
    names = await probe.existing_series(candidates)
    found = [f"Prometheus has series {name}, but no seriesQuery finds it" for name in names]
    return found or [f"no rule makes a metric called {target.metric}"]


def _why_not_forwarded(target: Target, catalog: Catalog, forwarded: Example) -> Iterator[str]:
    namespace = forwarded.of
    yield f"the adapter {_other_adapter(target, catalog)}, in namespace {namespace}: {forwarded.problem}"
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1/namespaces/{quote(namespace, safe='')}/{quote(target.metric, safe='')}"
    yield f"its response in the cluster: kubectl get --raw {path}"


def _other_adapter(target: Target, catalog: Catalog) -> str:
    """Name the adapter of forwardExternal for a metric, with its address, but no password that may be in it."""
    options = next(one for one in catalog.rules.forward if one.takes(target.metric))
    name = f"{options.name} of forwardExternal" if options.name else "of forwardExternal"
    return f"{name} ({URL(options.base).with_user(None)})"


def _suggestions(target: Target, catalog: Catalog) -> tuple[str, ...]:
    """Return metrics of the same name first, then similar ones."""
    existing: dict[str, str] = {}
    for source in _sources(catalog):
        name = str(source)
        name = name if "/" in name else f"{EXTERNAL}/{name}"
        existing.setdefault(name, name.partition("/")[2])
    same = [name for name, metric in existing.items() if metric == target.metric]
    close = difflib.get_close_matches(str(target), existing, n=_SUGGESTIONS, cutoff=0.7)
    return tuple(dict.fromkeys([*same, *close]))[:_SUGGESTIONS]
