"""`check`: lint the rules, list their series and metrics, query example values, and report the results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import (
    CustomSource,
    ExternalSource,
    SeriesUse,
    Source,
    custom_uses,
    external_uses,
)
from adapter.diagnosis.lint import about, in_order, lint
from adapter.diagnosis.probe import Probe, Selection
from adapter.diagnosis.query_notes import added_matcher
from adapter.diagnosis.report import Finding, MetricReport, Report, RuleReport, SeriesReport, advice, error, warning
from adapter.gil import releasing_gil
from adapter.metrics.resource_metrics import resource_sources
from adapter.planning.coalescer import Pause
from adapter.planning.metric_queries import coalesced_query
from adapter.prometheus import PrometheusError
from adapter.rules import AnyRule, Merge, ResourceRules, Rule
from adapter.rules.naming import NAMESPACES
from kube.api.mapping import GroupResource, ResourceLookup
from kube.values.durations import format_duration

_CONCURRENT_EXAMPLES = 8
# A query for all objects may cost as much as this many others, whose number is not known.
_FEW_VALUES = 50


async def check(
    catalog: Catalog, lookup: ResourceLookup, probe: Probe | None, *, knows_cluster: bool, examples: int
) -> Report:
    """Check all rules, with the series that the catalog has listed.

    Args:
        catalog: the rules.
        lookup: the API resources.
        probe: queries example values; None to check the file alone.
        knows_cluster: `lookup` knows all resources of the cluster.
        examples: number of metrics of each rule to query.

    Raises:
        KubeUnreachable, StatusError: the API server cannot list its resources.
    """
    rules = catalog.rules
    findings = await lint(rules, lookup, knows_cluster=knows_cluster)
    if probe is None:
        return Report(asked_prometheus=False, findings=findings)
    results = await asyncio.to_thread(rule_results, catalog)
    limit = asyncio.Semaphore(_CONCURRENT_EXAMPLES)
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(_with_examples(one, probe, examples, limit)) for one in results]
    reports = [task.result() for task in made]
    online = [one for pair in zip(results, reports, strict=True) for one in await _online_findings(*pair, probe)]
    if examples:
        resource = await resource_reports(rules.resource, probe)
        reports += resource
        online += chain.from_iterable(map(_example_findings, resource))
    # With series, rule_results reports the actual overlaps; what was seen replaces predictions of it.
    offline = unknown((one for one in findings if one.code != "may-overlap"), online)
    every = _failures_once(in_order((*offline, *online), rules))
    return Report(asked_prometheus=True, findings=tuple(every), rules=tuple(reports))


async def check_rule(
    catalog: Catalog, rule: AnyRule, probe: Probe, *, examples: int
) -> tuple[RuleReport, tuple[Finding, ...]]:
    """Return the series, metrics and example values of one rule, and the findings about these.

    `lint` has the findings about its text.
    """
    result = await asyncio.to_thread(rule_result, catalog, rule)
    report = await _with_examples(result, probe, examples, asyncio.Semaphore(1))
    return report, await _online_findings(result, report, probe)


async def _online_findings(result: RuleResult, report: RuleReport, probe: Probe) -> tuple[Finding, ...]:
    """Return the findings about a rule's series and the values of its examples."""
    merge = await _merge_finding(result, report, probe)
    found = (*result.findings, *_example_findings(report), *_several_values(report))
    return found if merge is None else (*found, merge)


def unknown(findings: Iterable[Finding], known: Iterable[Finding]) -> Iterator[Finding]:
    """Yield those findings of which no known one has the code and the place."""
    keys = {(one.code, one.where) for one in known}
    return (one for one in findings if (one.code, one.where) not in keys)


def _failures_once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings; of failures of a server to list series that have the same message, only the first."""
    failures = Counter(one.message for one in findings if one.code == "not-listed")
    for one in findings:
        others = failures.pop(one.message, 0) - 1 if one.code == "not-listed" else 0
        if others >= 0:
            more = f" (and those of {others} other rule{'s'[: others > 1]})" if others else ""
            yield msgspec.structs.replace(one, message=one.message + more)


def paused_findings(paused: Iterable[tuple[str, Pause]]) -> list[Finding]:
    """Return a finding per rule whose requests a running adapter cannot coalesce at the moment."""
    return [
        warning("merging-paused", rule, f"requests are sent alone for a while: {why.text}")
        for rule, why in sorted(set(paused), key=lambda one: (one[0], one[1].value))
        if why.is_problem
    ]


async def _with_examples(result: RuleResult, probe: Probe, count: int, limit: asyncio.Semaphore) -> RuleReport:
    """Return the rule's report with the values of some metrics."""
    metrics = list(result.report.metrics)
    for index in _example_metrics(result, count):
        async with limit:
            example = await probe.example(result.sources[index], Selection())
        metrics[index] = msgspec.structs.replace(metrics[index], example=example)
    return msgspec.structs.replace(result.report, metrics=tuple(metrics))


def _example_metrics(result: RuleResult, count: int) -> Sequence[int]:
    """Return the indexes of metrics that are not hidden: one per resource first, then further ones.

    Metrics of namespaces come last: every series with a namespace has one, but few rules are meant for them.
    """
    by_resource: dict[GroupResource | None, list[int]] = {}
    for index, (source, metric) in enumerate(zip(result.sources, result.report.metrics, strict=True)):
        if not metric.hidden_by:
            key = source.info.resource if isinstance(source, CustomSource) else None
            by_resource.setdefault(key, []).append(index)
    ordered = [by_resource[key] for key in sorted(by_resource, key=lambda resource: resource == NAMESPACES)]
    round_robin = [index for indexes in zip_longest(*ordered) for index in indexes if index is not None]
    return sorted(round_robin[:count])


async def resource_reports(rules: ResourceRules | None, probe: Probe) -> list[RuleReport]:
    """Return the queries of resourceRules with an example each; they have no series to list."""
    reports = []
    for source in resource_sources(rules) if rules is not None else ():
        if source.resource_label:
            metric = MetricReport(metric=str(source.info.resource), series="", example=await probe.usage(source))
            key = source.rule.key
            reports.append(RuleReport(rule=key, about=key.rpartition(".")[2], metrics=(metric,)))
    return reports


def _example_findings(rule: RuleReport) -> Iterator[Finding]:
    """Yield at most one finding about the values of a rule's examples, and one about their samples."""
    examples = [(metric.metric, metric.example) for metric in rule.metrics if metric.example is not None]
    impossible = [(metric, example) for metric, example in examples if example.impossible]
    failed = [(metric, example) for metric, example in examples if example.problem]
    if any(example.values for _, example in examples):
        failed = [(metric, example) for metric, example in failed if not metric.startswith(f"{NAMESPACES}/")]
    if impossible:
        metric, example = impossible[0]
        yield error("no-object-name", rule.rule, f"{metric}: {example.problem}")
    elif failed:
        metric, example = failed[0]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        # A missing value may be temporary; a query that Prometheus refuses is not.
        finding = error if "Prometheus" in example.problem else warning
        yield finding("no-value", rule.rule, f"{metric}{more} has no value: {'; '.join(example.reasons)}")
    for one in rule.metrics:
        if one.example is not None and one.example.long_range:
            path = "metricsQuery" if one.series else "query"
            yield advice("long-range", f"{rule.rule}.{path}", one.example.long_range)
            break


def _several_values(rule: RuleReport) -> Iterator[Finding]:
    """Yield at most one finding about an example that has several values.

    A query without an aggregation, which is right for pods, has several for a namespace: few rules are meant for it.
    """
    others = [metric for metric in rule.metrics if not metric.metric.startswith(f"{NAMESPACES}/")]
    for metric in others or rule.metrics:
        if metric.example is not None and metric.example.several:
            path = "metricsQuery" if metric.series else "query"
            yield error("several-values", f"{rule.rule}.{path}", f"{metric.metric}: {metric.example.several}")
            return


async def _merge_finding(result: RuleResult, report: RuleReport, probe: Probe) -> Finding | None:
    """Compare the coalesced query with the example's own, for the first metric that has an example."""
    for source, metric in zip(result.sources, report.metrics, strict=True):
        if metric.merges and metric.example is not None and metric.example.values and metric.example.queries:
            return await _merge_cost(source, metric.metric, metric.example.queries[-1], probe)
    return None


async def _merge_cost(source: Source, metric: str, alone: str, probe: Probe) -> Finding | None:
    query, destination = coalesced_query(source), source.rule.destination
    try:
        merged = await probe.instant(query, destination)
    except PrometheusError as failure:
        message = f"{metric}: the query for all objects fails, so every request is sent alone: {failure} ({query})"
        return warning("merge-fails", source.rule.key, message)
    try:
        own = await probe.instant(alone, destination)
    except PrometheusError:
        return None
    always = isinstance(source.rule, Rule) and source.rule.merge is Merge.ALWAYS
    if always or merged.seconds <= own.seconds * max(len(merged.samples), _FEW_VALUES):
        return None
    message = (
        f"{metric}: the query for all objects took {merged.seconds:.3g} s for {len(merged.samples)} values, one"
        f" object's {own.seconds:.3g} s; that costs more than it saves, so requests are sent alone ({query})"
    )
    return warning("merge-costs", source.rule.key, message)


_METRICS_AT_ONCE = 100  # without releasing the GIL, about a millisecond


@dataclass(frozen=True, slots=True)
class RuleResult:
    """A rule's report and findings, and the sources of its metrics in the order of the report's."""

    rule: AnyRule
    report: RuleReport
    sources: tuple[Source, ...]
    findings: tuple[Finding, ...]


def rule_results(catalog: Catalog) -> tuple[RuleResult, ...]:
    """Return the result of every rule, in the order of the file.

    Thousands of series take long: call it in a thread.
    """
    return tuple(rule_result(catalog, rule) for rule in releasing_gil(catalog.rules.all_rules, every=1))


def rule_result(catalog: Catalog, rule: AnyRule) -> RuleResult:
    """Return the result of one rule. Call it in a thread."""
    state = catalog.state(rule)
    is_listed, failure = state.listed_at is not None, state.failure
    sources = state.sources
    of_key = {_merge_key(source): source for source in sources}
    merges = {key: bool(coalesced_query(source)) for key, source in releasing_gil(of_key.items(), every=1)}
    uses: Sequence[SeriesUse] = ()
    if isinstance(rule, Rule) and rule.external:
        uses = external_uses(rule, state.series)
    elif isinstance(rule, Rule) and state.meanings is not None:
        uses = list(custom_uses(rule, state.series, state.meanings))
    metrics = tuple(
        MetricReport(
            metric=str(source),
            series=source.series,
            hidden_by=_winner(catalog, source),
            merges=merges[_merge_key(source)],
        )
        for source in releasing_gil(sources, every=_METRICS_AT_ONCE)
    )
    findings: list[Finding] = []
    if failure:
        findings.append(error("not-listed", rule.key, f"its series cannot be listed: {failure}"))
    if isinstance(rule, Rule) and is_listed:
        findings += _series_findings(rule, uses, max_age=catalog.max_age(rule))
    findings += _overlap_findings(rule, metrics)
    report = RuleReport(
        rule=rule.key,
        about=about(rule),
        failure=failure,
        listed=not isinstance(rule, Rule) or is_listed,
        series=tuple(map(_series_report, releasing_gil(uses, every=_METRICS_AT_ONCE))),
        metrics=metrics,
    )
    return RuleResult(rule, report, sources, tuple(findings))


def _merge_key(source: Source) -> tuple[object, ...]:
    """Return what decides whether a rule's metric has a coalesced query, which takes long to find out.

    It depends on the labels. If the template only inserts the series' name, it is the same for all series.
    """
    rule = source.rule
    series = "" if isinstance(rule, Rule) and rule.query.only_writes("Series") else source.series
    if isinstance(source, ExternalSource):
        return series, source.namespace_label
    return series, source.namespace_label, source.resource_label, source.group_by, source.info.namespaced


def _series_findings(rule: Rule, uses: Sequence[SeriesUse], *, max_age: float) -> Iterator[Finding]:
    """Yield the findings about the series of a rule; `max_age` is in seconds."""
    kept = [use for use in uses if use.metric]
    if not uses:
        age = format_duration(max_age)
        matcher = added_matcher(rule.destination)
        which = f"{matcher and f'{matcher} and '}a sample in the last {age}"
        yield warning("no-series", rule.key, f"its seriesQuery finds no series with {which}")
    elif not kept:
        keys = ", ".join(sorted({use.left_out_by for use in uses}))
        yield warning("all-left-out", rule.key, f"{keys} leaves out all {len(uses)} series that its seriesQuery finds")
    elif not rule.external:
        without = [use for use in kept if not use.sources]
        if without:
            # If the rule works for other series, the seriesQuery may find these unintentionally.
            finding = error if len(without) == len(kept) else warning
            more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
            yield finding(
                "no-resource", rule.key, f"series {without[0].series.name}{more}: {_why_no_resource(without[0])}"
            )


def _winner(catalog: Catalog, source: Source) -> str:
    """Return the rule, or this rule's other series, that makes the same metric and takes precedence; else ""."""
    winner = catalog.snapshot.by_key.get(source.key)
    if winner is None or (winner.rule.key, winner.series) == (source.rule.key, source.series):
        return ""
    return winner.rule.key if winner.rule.key != source.rule.key else f"{winner.rule.key} of {winner.series}"


def _overlap_findings(rule: AnyRule, metrics: Iterable[MetricReport]) -> Iterator[Finding]:
    # A query that does not use <<.Series>> is the same for each series.
    uses_series = isinstance(rule, Rule) and "Series" in rule.query.source
    hidden: dict[str, list[MetricReport]] = {}
    for metric in metrics:
        own = metric.hidden_by.startswith(f"{rule.key} ")
        if metric.hidden_by and (uses_series or not own):
            hidden.setdefault(metric.hidden_by, []).append(metric)
    for winner, (example, *others) in hidden.items():
        more = f" and {len(others)} more" if others else ""
        message = f"{example.metric}{more} of {example.series}: also made by {winner}, which wins"
        yield warning("overlap", rule.key, message)


def _series_report(use: SeriesUse) -> SeriesReport:
    mapped = {meaning.label for meaning in use.labels}
    return SeriesReport(
        name=use.series.name,
        left_out_by=use.left_out_by,
        metric=use.metric,
        labels={one.label: str(one.resource) for one in use.labels if one.resource is not None},
        unknown={one.label: str(one.named) for one in use.labels if one.resource is None},
        other_labels=tuple(sorted(use.series.labels - mapped)),
    )


def _why_no_resource(use: SeriesUse) -> str:
    unknown = [f"`{one.label}` means {one.named}, which the cluster does not have" for one in use.labels]
    if unknown:
        return f"{'; '.join(unknown[:3])}; add an override for the label with the object's name"
    labels = ", ".join(f"`{label}`" for label in sorted(use.series.labels)[:8])
    return f"none of its labels ({labels}) maps to a resource; add an override"
