"""A report of all rules: what their file shows by itself, and what they made of the series in Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.diagnosis.lint import in_order, lint
from adapter.diagnosis.probe import Probe, Wanted
from adapter.diagnosis.report import Example, Finding, MetricReport, Report, RuleReport, Severity
from adapter.diagnosis.rule_results import Examined, Source, examine
from adapter.metrics.resource_metrics import resource_sources
from adapter.planning.coalescible import coalesced_custom_query, coalesced_external_query
from adapter.planning.coalescing_costs import BENEFIT_OF_THE_DOUBT, Pause
from adapter.prometheus import PrometheusError, Vector
from adapter.rules import Merge, ResourceRules, Rule
from kube.mapping import GroupResource, ResourceLookup
from kube.selectors import LabelSelector

_AT_ONCE = 8
_NAMESPACES = GroupResource("", "namespaces")
_EVERYTHING = LabelSelector()


async def check_file(catalog: Catalog, lookup: ResourceLookup, *, knows_cluster: bool) -> Report:
    """The findings that need no Prometheus; for the arguments see adapter.diagnosis.lint.lint."""
    return Report(asked_prometheus=False, findings=await lint(catalog.rules, lookup, knows_cluster=knows_cluster))


async def check(
    catalog: Catalog, lookup: ResourceLookup, probe: Probe, *, knows_cluster: bool, examples: int
) -> Report:
    """All findings, with what the catalog has listed.

    Args:
        catalog: what the rules made.
        lookup: which resources there are.
        probe: asks for example values.
        knows_cluster: whether `lookup` knows all resources of the cluster.
        examples: for how many metrics of each rule a value is asked.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    suspected = await lint(catalog.rules, lookup, knows_cluster=knows_cluster)
    # Where the file only shows that rules may overlap, the series show whether they do.
    findings = [one for one in suspected if one.code != "may-overlap"]
    examined = await examine(catalog, lookup)
    free = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        reports = [tasks.create_task(_with_examples(one, probe, examples, free)) for one in examined]
    rules = [task.result() for task in reports]
    findings += await merge_findings(examined, rules, probe)
    rules += await _resource_rules(catalog.rules.resource, probe) if examples else []
    # What the file shows is not said again for what came of it.
    said = {(finding.code, finding.where) for finding in findings if finding.code != "overlap"}
    for one in examined:
        findings += [finding for finding in one.findings if (finding.code, finding.where) not in said]
    for rule in rules:
        findings += _of_examples(rule)
    return Report(asked_prometheus=True, findings=in_order(findings, catalog.rules), rules=tuple(rules))


async def _with_examples(one: Examined, probe: Probe, count: int, free: asyncio.Semaphore) -> RuleReport:
    metrics = list(one.report.metrics)
    for index in _chosen(one, count):
        async with free:
            example = await _example(probe, one.sources[index])
        metrics[index] = msgspec.structs.replace(metrics[index], example=example)
    return msgspec.structs.replace(one.report, metrics=tuple(metrics))


async def _resource_rules(rules: ResourceRules | None, probe: Probe) -> list[RuleReport]:
    """The queries of resourceRules, which have no series to list."""
    reports = []
    for source in resource_sources(rules) if rules is not None else ():
        if source.resource_label:
            metric = MetricReport(metric=str(source.info.resource), series="", example=await probe.usage(source))
            key = source.rule.key
            reports.append(RuleReport(rule=key, about=key.rpartition(".")[2], metrics=(metric,)))
    return reports


def _chosen(one: Examined, count: int) -> Sequence[int]:
    """Metrics that are not hidden: of each resource one, before there is a second; of namespaces last."""
    by_resource: dict[GroupResource | None, list[int]] = {}
    for index, (source, metric) in enumerate(zip(one.sources, one.report.metrics, strict=True)):
        if not metric.hidden_by:
            key = source.info.resource if isinstance(source, CustomSource) else None
            by_resource.setdefault(key, []).append(index)
    # Every series with a namespace has a metric of namespaces, which is seldom what the rule is for.
    by_resource = dict(sorted(by_resource.items(), key=lambda item: item[0] == _NAMESPACES))
    rounds = max(map(len, by_resource.values()), default=0)
    in_turn = [indexes[number] for number in range(rounds) for indexes in by_resource.values() if number < len(indexes)]
    return sorted(in_turn[:count])


async def _example(probe: Probe, source: Source) -> Example:
    if isinstance(source, CustomSource):
        return await probe.custom(source, Wanted())
    return await probe.external(source, Wanted())


def _of_examples(rule: RuleReport) -> Sequence[Finding]:
    for metric in rule.metrics:
        if metric.example is not None and metric.example.impossible:
            message = f"{metric.metric}: {metric.example.problem}"
            return [Finding(severity=Severity.ERROR, code="no-object-name", where=rule.rule, message=message)]
    failed = [metric for metric in rule.metrics if metric.example is not None and metric.example.problem]
    if any(metric.example is not None and metric.example.values for metric in rule.metrics):
        # Every series with a namespace has a metric of namespaces, also where the query is meant for other objects.
        failed = [metric for metric in failed if not metric.metric.startswith(f"{_NAMESPACES}/")]
    if not failed or failed[0].example is None:
        return []
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    message = f"{failed[0].metric}{more} has no value: {failed[0].example.problem}"
    # Values come and go; a query that Prometheus refuses stays wrong.
    severity = Severity.ERROR if "Prometheus" in failed[0].example.problem else Severity.WARNING
    return [Finding(severity=severity, code="no-value", where=rule.rule, message=message)]


async def merge_findings(examined: Sequence[Examined], reports: Iterable[RuleReport], probe: Probe) -> list[Finding]:
    """Send the merged query and the example's own for one metric of each rule that has an example."""
    findings = []
    for one, report in zip(examined, reports, strict=False):
        for source, metric in zip(one.sources, report.metrics, strict=True):
            if metric.merges and metric.example is not None and metric.example.values and metric.example.queries:
                finding = await _of_metric(source, metric.metric, metric.example.queries[-1], probe)
                findings += [finding] if finding is not None else []
                break
    return findings


def paused_findings(paused: Iterable[tuple[str, str, Pause]]) -> list[Finding]:
    """What a running adapter has learned: rules whose requests are sent alone for a while, and why."""
    seen = {(rule, why) for rule, _, why in paused}
    return [
        Finding(
            severity=Severity.WARNING,
            code="merging-paused",
            where=rule,
            message=f"requests are sent alone for a while: {why.text}",
        )
        for rule, why in sorted(seen, key=lambda one: (one[0], one[1].value))
    ]


async def _of_metric(source: Source, metric: str, alone: str, probe: Probe) -> Finding | None:
    query, destination = _merged_query(source), source.rule.destination
    try:
        merged = await probe.instant(query, destination)
    except PrometheusError as error:
        message = f"{metric}: the query for all objects fails, so every request is sent alone: {error} ({query})"
        return Finding(severity=Severity.WARNING, code="merge-fails", where=source.rule.key, message=message)
    try:
        own = await probe.instant(alone, destination)
    except PrometheusError:
        return None
    count = len(merged.samples) if isinstance(merged, Vector) else 1
    wanted = isinstance(source.rule, Rule) and source.rule.merge is Merge.ALWAYS
    if wanted or merged.seconds <= own.seconds * max(count, BENEFIT_OF_THE_DOUBT):
        return None
    message = (
        f"{metric}: the query for all objects took {merged.seconds:.3g} s for {count} values, one object's"
        f" {own.seconds:.3g} s; that costs more than it saves, so requests are sent alone ({query})"
    )
    return Finding(severity=Severity.WARNING, code="merge-costs", where=source.rule.key, message=message)


def _merged_query(source: CustomSource | ExternalSource) -> str:
    if isinstance(source, ExternalSource):
        return coalesced_external_query(source, _EVERYTHING)
    return coalesced_custom_query(source, source.info.namespaced, _EVERYTHING)
