"""Whether the queries that answer for all objects work, and whether they are worth their cost, as measured just now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.diagnosis.examine import Examined, Source
from adapter.diagnosis.probe import Probe
from adapter.diagnosis.report import Finding, RuleReport, Severity
from adapter.planning.merge_costs import BENEFIT_OF_THE_DOUBT, Pause
from adapter.planning.mergeable import merged_custom_query, merged_external_query
from adapter.prometheus import PrometheusError, Vector
from adapter.rules import Merge, Rule
from kube.selectors import LabelSelector

_EVERYTHING = LabelSelector()


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
        return merged_external_query(source, _EVERYTHING)
    return merged_custom_query(source, source.info.namespaced, _EVERYTHING)
