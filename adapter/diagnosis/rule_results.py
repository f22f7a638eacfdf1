"""The metrics that each rule makes of the listed series, and the findings about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import (
    CustomSource,
    SeriesUse,
    Source,
    custom_uses,
    external_uses,
)
from adapter.diagnosis.lint import about
from adapter.diagnosis.query_notes import added_matcher
from adapter.diagnosis.report import Finding, MetricReport, RuleReport, SeriesReport, error, warning
from adapter.gil import releasing_gil
from adapter.planning.metric_queries import coalesced_query
from adapter.rules import AnyRule, Rule
from kube.values.durations import format_duration

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
    sources, merges = state.sources, _Merges()
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
            merges=merges.of(source),
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


class _Merges:
    """Whether a rule's metrics have a coalesced query, which takes long to find out for each of them.

    It depends on the labels. If the template only inserts the series' name, it is the same for all series.
    """

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}

    def of(self, source: Source) -> bool:
        rule = source.rule
        series = "" if isinstance(rule, Rule) and rule.query.only_writes("Series") else source.series
        labels: tuple[object, ...] = (source.namespace_label,)
        if isinstance(source, CustomSource):
            labels += (source.resource_label, source.group_by, source.info.namespaced)
        known = self._known.get((series, labels))
        if known is None:
            known = self._known[series, labels] = bool(coalesced_query(source))
        return known


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
