"""What each rule made of the series that the catalog has listed, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import (
    CustomSource,
    ExternalSource,
    SeriesUse,
    custom_query_source,
    custom_uses,
    external_query_source,
    external_sources,
    external_uses,
)
from adapter.diagnosis.lint import about
from adapter.diagnosis.report import Finding, MetricReport, RuleReport, SeriesReport, Severity
from adapter.planning.coalescible import can_coalesce
from adapter.prometheus import Series
from adapter.rules import AnyRule, QueryRule, Rule
from kube.durations import format_duration
from kube.mapping import NoMatchError, ResourceLookup

Source = CustomSource | ExternalSource


@dataclass(frozen=True, slots=True)
class Examined:
    """A rule, what is said of it, and the sources of its metrics, in the order of the report's."""

    rule: AnyRule
    report: RuleReport
    sources: tuple[Source, ...]
    findings: tuple[Finding, ...]


def metric_name(source: Source) -> str:
    """What people call a metric: pods/packets_per_second, or the name of an external one."""
    return str(source.info) if isinstance(source, CustomSource) else source.metric


async def examine(catalog: Catalog, lookup: ResourceLookup) -> tuple[Examined, ...]:
    """Examine every rule, in the order of the file.

    Raises:
        KubeUnreachable, StatusError: the API server did not say what its resources are.
    """
    external = {rule.key for rule in catalog.rules.external_rules}
    return tuple(
        [await _Rule(catalog, rule, external=rule.key in external).examine(lookup) for rule in catalog.rules.all_rules]
    )


class _Rule:
    def __init__(self, catalog: Catalog, rule: AnyRule, *, external: bool) -> None:
        self._catalog = catalog
        self._rule = rule
        self._external = external
        self._findings: list[Finding] = []

    async def examine(self, lookup: ResourceLookup) -> Examined:
        rule = self._rule
        uses: Sequence[SeriesUse] = ()
        sources: Sequence[Source]
        listing = self._catalog.listing(rule)
        if listing.failure:
            self._say(Severity.ERROR, "not-listed", f"its series cannot be listed: {listing.failure}")
        if isinstance(rule, QueryRule):
            sources = await self._of_short_rule(rule, lookup)
        elif self._external:
            uses = external_uses(rule, listing.series or ())
            sources = await external_sources(rule, listing.series or (), lookup)
        else:
            uses = [use async for use in custom_uses(rule, listing.series or (), lookup)]
            sources = [source for use in uses for source in use.sources]
        if isinstance(rule, Rule) and listing.series is not None:
            self._judge(rule, listing.series, uses, sources)
        metrics = [
            MetricReport(
                metric=metric_name(source),
                series=source.series,
                hidden_by=self._winner(source),
                merges=can_coalesce(source),
            )
            for source in sources
        ]
        self._overlaps(metrics)
        report = RuleReport(
            rule=rule.key,
            about=about(rule),
            failure=listing.failure,
            listed=isinstance(rule, QueryRule) or listing.series is not None,
            series=tuple(_series_report(use) for use in uses),
            metrics=tuple(metrics),
        )
        return Examined(rule, report, tuple(sources), tuple(self._findings))

    async def _of_short_rule(self, rule: QueryRule, lookup: ResourceLookup) -> Sequence[Source]:
        if self._external:
            return [external_query_source(rule)]
        try:
            return [await custom_query_source(rule, lookup)]
        except NoMatchError:
            return []  # which the file alone shows

    def _judge(self, rule: Rule, found: Sequence[Series], uses: Sequence[SeriesUse], sources: Sequence[Source]) -> None:
        taken = [use for use in uses if use.metric]
        if not found:
            age = format_duration(self._catalog.max_age(rule))
            self._say(Severity.WARNING, "no-series", f"its seriesQuery finds no series with a sample in the last {age}")
        elif not taken:
            keys = ", ".join(sorted({use.left_out_by for use in uses}))
            self._say(
                Severity.WARNING,
                "all-left-out",
                f"{keys} leaves out all {len(found)} series that its seriesQuery finds",
            )
        elif self._external:
            if rule.resources.namespaced and not all(source.namespace_label for source in _external(sources)):
                self._say(
                    Severity.ERROR,
                    "no-namespace-label",
                    "no label means namespaces, so every request fails; add one to resources.overrides, or set"
                    " resources.namespaced to false",
                )
        else:
            self._judge_labels(taken, sources)

    def _judge_labels(self, taken: Sequence[SeriesUse], sources: Sequence[Source]) -> None:
        without = [use for use in taken if not use.sources]
        if without:
            # Where the rule works for other series, these may just be caught along with them.
            severity = Severity.ERROR if len(without) == len(taken) else Severity.WARNING
            more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
            self._say(severity, "no-resource", f"series {without[0].series.name}{more}: {_why_no_resource(without[0])}")
        lost = [one for one in _custom(sources) if one.info.namespaced and not one.namespace_label]
        if lost:
            self._say(
                Severity.ERROR if len(lost) == len(sources) else Severity.WARNING,
                "no-namespace-label",
                f"{lost[0].info} can never be found, because no label means namespaces; add one to resources.overrides",
            )

    def _winner(self, source: Source) -> str:
        """Who makes the same metric and wins: another rule, or this one of another series."""
        winner: Source | None
        if isinstance(source, CustomSource):
            winner = self._catalog.find_custom(source.info.resource, source.info.metric)
        else:
            winner = self._catalog.find_external(source.metric)
        if winner is None or (winner.rule.key, winner.series) == (source.rule.key, source.series):
            return ""
        return winner.rule.key if winner.rule.key != source.rule.key else f"{winner.rule.key} of {winner.series}"

    def _overlaps(self, metrics: Iterable[MetricReport]) -> None:
        hidden: dict[str, list[MetricReport]] = {}
        for metric in metrics:
            # What does not name its series is the same of each.
            if metric.hidden_by and not (metric.hidden_by.startswith(f"{self._rule.key} ") and not self._names_series):
                hidden.setdefault(metric.hidden_by, []).append(metric)
        for winner, (example, *others) in hidden.items():
            more = f" and {len(others)} more" if others else ""
            self._say(
                Severity.WARNING,
                "overlap",
                f"{example.metric}{more} of {example.series}: also made by {winner}, which wins",
            )

    @property
    def _names_series(self) -> bool:
        return isinstance(self._rule, Rule) and "Series" in self._rule.query.source

    def _say(self, severity: Severity, code: str, message: str) -> None:
        self._findings.append(Finding(severity=severity, code=code, where=self._rule.key, message=message))


def _custom(sources: Iterable[Source]) -> list[CustomSource]:
    return [source for source in sources if isinstance(source, CustomSource)]


def _external(sources: Iterable[Source]) -> list[ExternalSource]:
    return [source for source in sources if isinstance(source, ExternalSource)]


def _series_report(use: SeriesUse) -> SeriesReport:
    meant = {meaning.label for meaning in use.labels}
    return SeriesReport(
        name=use.series.name,
        left_out_by=use.left_out_by,
        metric=use.metric,
        labels={one.label: str(one.resource) for one in use.labels if one.resource is not None},
        unknown={one.label: str(one.named) for one in use.labels if one.resource is None},
        other_labels=tuple(sorted(use.series.labels - meant)),
    )


def _why_no_resource(use: SeriesUse) -> str:
    unknown = [f"`{one.label}` means {one.named}, which the cluster does not have" for one in use.labels]
    if unknown:
        return f"{'; '.join(unknown[:3])}; add an override for the label with the object's name"
    labels = ", ".join(f"`{label}`" for label in sorted(use.series.labels)[:8])
    return f"none of its labels ({labels}) maps to a resource; add an override"
