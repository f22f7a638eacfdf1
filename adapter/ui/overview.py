"""The first page: all rules, what `check` finds in them, Prometheus, the rules file, cache and coalescing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapter.diagnosis.lint import about
from adapter.diagnosis.report import Finding, Severity
from adapter.planning.coalescer import Pause
from adapter.rules import AnyRule, Rule, ScheduleRule
from adapter.rules.model import shortened
from adapter.ui.figures import RuleFigures, rule_figures, server_figures
from adapter.ui.formatting import element_id, rounded_age
from adapter.ui.live import CheckAccess
from adapter.ui.reports import Reports
from adapter.ui.sources import ActiveRules, Sources
from kube.api.status import StatusError
from kube.web.event_stream import ServerEvent
from kube.web.templates import Templates

SECTIONS: Final = ("summary", "findings", "servers", "file", "cache")
"""The parts of the page that are replaced as a whole; their templates are `_overview_NAME.html`."""

_ROWS_AT_ONCE: Final = 50  # rendered without a break


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A row of the table of rules.

    Attributes:
        key: "rules[2]".
        about: the seriesQuery, or the metric of a short rule.
        short: it is a short rule or a schedule, which has no series.
        scheduled: it is a schedule.
        server: the name of its Prometheus; "" for the default one.
        series, metrics: how many names of series it finds, and metrics it makes.
        age: seconds since the last good list; None: there was none.
        failure: why the last list failed; "" if it did not.
        errors, warnings: findings of `check`.
        paused: why requests are not coalesced for a while.
        merged, alone, query_errors: see RuleFigures.
    """

    key: str
    about: str
    short: bool
    scheduled: bool
    server: str
    series: int
    metrics: int
    age: int | None
    failure: str
    errors: int
    warnings: int
    paused: tuple[Pause, ...]
    merged: int
    alone: int
    query_errors: int

    @property
    def id(self) -> str:
        """The id of the row's element."""
        return element_id(self.key)

    @property
    def listed(self) -> bool:
        """Its series are known; a short rule needs none."""
        return self.short or self.age is not None

    @property
    def has_problem(self) -> bool:
        """It cannot be listed, or has findings."""
        return bool(self.failure or self.errors or self.warnings or self.paused) or not self.listed


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """The rows to show: those that contain a text in the key, the query or a metric's name; those with problems."""

    text: str = ""
    problems: bool = False

    def shows(self, row: RuleRow, rule: AnyRule, active: ActiveRules) -> bool:
        """Return whether a row is shown."""
        if self.problems and not row.has_problem:
            return False
        wanted = self.text.lower()
        if not wanted or wanted in row.key.lower() or wanted in row.about.lower():
            return True
        return any(wanted in source.metric.lower() for source in active.catalog.state(rule).sources)


class Overview:
    """Renders the page and its events."""

    def __init__(
        self,
        sources: Sources,
        reports: Reports,
        templates: Templates,
        *,
        tick_seconds: float,
        findings_seconds: float,
    ) -> None:
        self._sources = sources
        self._reports = reports
        self._templates = templates
        self._tick_seconds = tick_seconds
        self._findings_seconds = findings_seconds

    async def page(self, rule_filter: RuleFilter, *, events: str) -> str:
        """Return the page; `events` is the URL of its event stream."""
        try:
            async with asyncio.timeout(self._findings_seconds):
                findings, problem = await self._found()
        except TimeoutError:
            findings, problem = None, ""
        values = self._values(findings, problem)
        rows = self._rows(rule_filter, findings or ())
        return await asyncio.to_thread(
            self._templates.render, "overview.html", rows=rows, filter=rule_filter, events=events, **values
        )

    async def events(self, rule_filter: RuleFilter, check_access: CheckAccess) -> AsyncIterator[ServerEvent]:
        """Yield what changes, from the present state on."""
        digest = self._sources.active().rules.digest
        shown: dict[str, str] = {}
        keys: list[str] | None = None
        rows_before: dict[str, RuleRow] = {}
        while True:
            await check_access()
            findings, problem = await self._found()
            if self._sources.active().rules.digest != digest:
                yield ServerEvent("reload", "")
                return
            rows = self._rows(rule_filter, findings)
            if [row.key for row in rows] != keys:
                keys = [row.key for row in rows]
                yield ServerEvent("replace", await self._table(rows))
            else:
                changed = [row for row in rows if rows_before.get(row.key) != row]
                if changed:
                    yield ServerEvent("replace", await self._table_rows(changed))
            rows_before = {row.key: row for row in rows}
            values = self._values(findings, problem)
            sections = {name: self._templates.render(f"_overview_{name}.html", **values) for name in SECTIONS}
            new = [html for name, html in sections.items() if shown.get(name) != html]
            if new:
                yield ServerEvent("replace", "\n".join(new))
            shown = sections
            await asyncio.sleep(self._tick_seconds)

    async def _found(self) -> tuple[tuple[Finding, ...], str]:
        """Return the findings of `check`, or why there are none."""
        try:
            return await self._reports.findings(), ""
        except StatusError as error:
            return (), error.message

    async def _table(self, rows: Sequence[RuleRow]) -> str:
        return f'<tbody id="rules">{await self._table_rows(rows)}</tbody>'

    async def _table_rows(self, rows: Sequence[RuleRow]) -> str:
        made = []
        for start in range(0, len(rows) or 1, _ROWS_AT_ONCE):
            made.append(self._templates.render("_overview_rows.html", rows=rows[start : start + _ROWS_AT_ONCE]))
            await asyncio.sleep(0)
        return "".join(made)

    def _rows(self, rule_filter: RuleFilter, findings: Sequence[Finding]) -> list[RuleRow]:
        active = self._sources.active()
        # A rule that cannot be listed says so by itself.
        counts = Counter((one.rule, one.severity) for one in findings if one.code != "not-listed")
        paused: dict[str, set[Pause]] = {}
        for key, why in active.coalescer.paused() if active.coalescer is not None else ():
            paused.setdefault(key, set()).add(why)
        figures = rule_figures(self._sources.telemetry)
        now = self._sources.clock()
        rows = []
        for rule in sorted(active.rules.all_rules, key=_place):
            row = _row(
                active,
                rule,
                now=now,
                errors=counts[rule.key, Severity.ERROR],
                warnings=counts[rule.key, Severity.WARNING],
                paused=tuple(sorted(paused.get(rule.key, ()), key=lambda why: why.value)),
                figures=figures.get(rule.key, RuleFigures()),
            )
            if rule_filter.shows(row, rule, active):
                rows.append(row)
        return rows

    def _values(self, findings: Sequence[Finding] | None, problem: str) -> Mapping[str, Any]:
        """Return what the sections show."""
        active, sources = self._sources.active(), self._sources
        snapshot, rules = active.catalog.snapshot, active.rules
        figures = rule_figures(sources.telemetry)
        servers = [sources.default_server, *rules.prometheus_servers.values()]
        return {
            "rules": rules,
            "custom_metrics": len(snapshot.custom),
            "external_metrics": len(snapshot.external),
            "forwarder": active.forwarder,
            "failing": sum(bool(active.catalog.state(rule).failure) for rule in rules.all_rules),
            "readiness": active.catalog.readiness(),
            "findings": findings,
            "findings_problem": problem,
            "errors": sum(finding.severity is Severity.ERROR for finding in findings or ()),
            "servers": server_figures(sources.telemetry, servers),
            "file": sources.rules_file(),
            "cache": active.cache.figures,
            "freshness": sources.freshness,
            "coalesces": active.coalescer is not None,
            "merged": sum(one.merged for one in figures.values()),
            "alone": sum(one.alone for one in figures.values()),
            "coalesced_queries": sum(one.coalesced_queries for one in figures.values()),
            "failed_coalesced_queries": sum(one.failed_coalesced_queries for one in figures.values()),
            "relist_interval": sources.relist_interval,
            "now": sources.clock(),
        }


def _place(rule: AnyRule) -> tuple[bool, int]:
    """Return the place of a rule in the file; `all_rules` are in the order in which they take precedence."""
    return rule.external, int(rule.key.partition("[")[2].rstrip("]"))


def _row(
    active: ActiveRules,
    rule: AnyRule,
    *,
    now: float,
    errors: int,
    warnings: int,
    paused: tuple[Pause, ...],
    figures: RuleFigures,
) -> RuleRow:
    state = active.catalog.state(rule)
    return RuleRow(
        key=rule.key,
        about=shortened(about(rule)),
        short=not isinstance(rule, Rule),
        scheduled=isinstance(rule, ScheduleRule),
        server=rule.prometheus,
        series=len(state.series),
        metrics=len(state.sources),
        age=None if state.listed_at is None else rounded_age(now - state.listed_at),
        failure=state.failure,
        errors=errors,
        warnings=warnings,
        paused=paused,
        merged=figures.merged,
        alone=figures.alone,
        query_errors=figures.query_errors,
    )
