"""`check`: lint the rules, list their series, query example values, and report the results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, Source
from adapter.diagnosis.lint import in_order, lint
from adapter.diagnosis.probe import Probe, Selection
from adapter.diagnosis.report import Finding, MetricReport, Report, RuleReport, advice, error, warning
from adapter.diagnosis.rule_results import RuleResult, rule_result, rule_results
from adapter.metrics.resource_metrics import resource_sources
from adapter.planning.coalescer import Pause
from adapter.planning.metric_queries import coalesced_query
from adapter.prometheus import PrometheusError
from adapter.rules import AnyRule, Merge, ResourceRules, Rule
from adapter.rules.naming import NAMESPACES
from kube.api.mapping import GroupResource, ResourceLookup

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
