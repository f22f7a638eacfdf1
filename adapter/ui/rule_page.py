"""The page of one rule: its text, series, metrics, examples and findings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapter.diagnosis.report import Finding, MetricReport, RuleReport, SeriesReport
from adapter.rules import AnyRule, Rule
from adapter.ui.figures import RuleFigures, rule_figures
from adapter.ui.formatting import rule_yaml
from adapter.ui.live import CheckAccess, changed_parts
from adapter.ui.reports import Reports
from adapter.ui.sources import Sources
from kube.api.status import StatusError, not_found
from kube.web.event_stream import ServerEvent
from kube.web.templates import Templates

RESOURCE_RULES: Final = "resourceRules"
"""The key of the page about resourceRules, which have no series."""

_ROWS: Final = 100  # of a page
_PARTS: Final = ("facts", "findings", "examples", "series")
_RESOURCE_PARTS: Final = ("examples",)


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """A series with its metrics. For a short rule, which has none, `series` is None."""

    series: SeriesReport | None
    metrics: tuple[MetricReport, ...]


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A page of rows: those that contain `text` in the name of the series or of a metric; the first page is 1."""

    rows: tuple[SeriesRow, ...]
    text: str
    page: int
    pages: int
    fitting: int
    total: int


def series_view(report: RuleReport, *, text: str = "", page: int = 1, rows: int = _ROWS) -> SeriesView:
    """Return a page of a rule's series. Thousands of series take some milliseconds: call it in a thread."""
    metrics: dict[str, list[MetricReport]] = {}
    for metric in report.metrics:
        metrics.setdefault(metric.series, []).append(metric)
    everything = [SeriesRow(one, tuple(metrics.get(one.name, ()))) for one in report.series]
    if "" in metrics:
        everything.append(SeriesRow(None, tuple(metrics[""])))
    wanted = text.lower()
    fitting = [row for row in everything if not wanted or _contains(row, wanted)]
    pages = max(math.ceil(len(fitting) / rows), 1)
    page = min(max(page, 1), pages)
    shown = tuple(fitting[(page - 1) * rows : page * rows])
    return SeriesView(shown, text, page, pages, len(fitting), len(everything))


def _contains(row: SeriesRow, wanted: str) -> bool:
    names = [row.series.name] if row.series is not None else []
    return any(wanted in name.lower() for name in (*names, *(one.metric for one in row.metrics)))


class RulePage:
    """Renders the page and its events."""

    def __init__(self, sources: Sources, reports: Reports, templates: Templates, *, tick_seconds: float) -> None:
        self._sources = sources
        self._reports = reports
        self._templates = templates
        self._tick_seconds = tick_seconds

    async def page(self, key: str, *, text: str, page: int, events: str) -> str:
        """Return the page. Raises StatusError (404)."""
        values = await self._values(key, text, page)
        return await asyncio.to_thread(self._templates.render, "rule.html", events=events, **values)

    async def events(self, key: str, *, text: str, page: int, check_access: CheckAccess) -> AsyncIterator[ServerEvent]:
        """Yield what changes, from the present state on. Raises StatusError (404)."""
        names = _RESOURCE_PARTS if key == RESOURCE_RULES else _PARTS

        async def parts() -> Mapping[str, str]:
            """Return the present parts of the page, {name: HTML}."""
            values = await self._values(key, text, page)
            return await asyncio.to_thread(
                lambda: {name: self._templates.render(f"_rule_{name}.html", **values) for name in names}
            )

        async for event in changed_parts(parts, check_access, tick_seconds=self._tick_seconds):
            yield event

    async def _values(self, key: str, text: str, page: int) -> Mapping[str, Any]:
        if key == RESOURCE_RULES:
            return await self._resource_values()
        active = self._sources.active()
        rule = next((rule for rule in active.rules.all_rules if rule.key == key), None)
        if rule is None:
            raise not_found(f"there is no rule {key}; the rules file may have been reloaded")
        problem, report = "", None
        findings: Sequence[Finding] = ()
        try:
            report, findings = await self._reports.rule(rule)
        except StatusError as error:
            problem = error.message
        view = await asyncio.to_thread(series_view, report or RuleReport(rule.key, ""), text=text, page=page)
        listed_at = active.catalog.state(rule).listed_at
        return {
            "key": key,
            "rule": rule,
            "short": not isinstance(rule, Rule),
            "report": report,
            "problem": problem,
            "findings": findings,
            "examples": _examples(report.metrics if report is not None else ()),
            "view": view,
            "written": rule_yaml(active.rules.entries.get(key, {})),
            "has_headers": "headers" in active.rules.entries.get(key, {}),
            "figures": rule_figures(self._sources.telemetry).get(key, RuleFigures()),
            "paused": self._paused(rule),
            "age": None if listed_at is None else self._sources.clock() - listed_at,
            "links": True,
        }

    async def _resource_values(self) -> Mapping[str, Any]:
        if self._sources.active().rules.resource is None:
            raise not_found("the rules file has no resourceRules")
        reports = await self._reports.resource_rules()
        metrics = [(report.rule, metric) for report in reports for metric in report.metrics]
        return {
            "key": RESOURCE_RULES,
            "rule": None,
            "problem": "",
            "resource_examples": metrics,
            "examples": (),
            "links": False,
        }

    def _paused(self, rule: AnyRule) -> list[str]:
        coalescer = self._sources.active().coalescer
        return sorted({why.text for key, why in coalescer.paused() if key == rule.key}) if coalescer is not None else []


def _examples(metrics: Sequence[MetricReport]) -> tuple[MetricReport, ...]:
    return tuple(metric for metric in metrics if metric.example is not None)
