"""The first page: all rules, what `check` finds in them, Prometheus, the rules file, cache and coalescing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from adapter.diagnosis.lint import about
from adapter.diagnosis.report import Finding, Severity
from adapter.planning.coalescer import Pause
from adapter.rules import AnyRule, Rule, ScheduleRule
from adapter.rules.model import shortened
from adapter.ui.figures import RuleFigures, rule_figures, server_figures
from adapter.ui.formatting import element_id, rounded_age, rule_title
from adapter.ui.reports import Reports
from adapter.ui.sources import ActiveRules, Sources
from kube.api.status import StatusError, not_found
from kube.web.live import Rows, View
from kube.web.templates import Templates

SECTIONS: Final = tuple(f"_overview_{name}.html" for name in ("summary", "findings", "servers", "file", "cache"))
"""The parts of the page that are replaced as a whole."""

_NO_ROWS: Final = '<tr id="no-rules" role="row"><td role="cell" colspan="6">No rule fits.</td></tr>'


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A row of the table of rules.

    Attributes:
        key: "rules[2]".
        about: the seriesQuery, or the metric of a short rule.
        short: it is a short rule or a schedule, which has no series.
        scheduled: it is a schedule.
        server: the name of its Prometheus; "" for the default one.
        title: the names of its first metrics; without any, its key.
        series, metrics: how many names of series it finds, and metrics it makes.
        age: seconds since the last good list; None: there was none.
        failure: why the last list failed; "" if it did not.
        errors, warnings: findings of `check`.
        paused: why requests are not coalesced for a while.
        figures: its counters.
    """

    key: str
    title: str
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
    figures: RuleFigures

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
        return bool(self.failure or self.errors or self.warnings) or not self.listed


class Overview:
    """Reads what the page shows; `findings_seconds`: see AdapterPages."""

    def __init__(self, sources: Sources, reports: Reports, templates: Templates, *, findings_seconds: float) -> None:
        self._sources = sources
        self._reports = reports
        self._templates = templates
        self._findings_seconds = findings_seconds

    async def view(self, digest: str, *, text: str, problems: bool) -> View:
        """Return the rules that contain a text in the key, the query or a metric's name, or only those with problems.

        Raises:
            StatusError: 404, the rules file is no longer that of the digest.
        """
        findings: Sequence[Finding] | None = ()
        problem = ""
        try:
            findings = await self._reports.findings(within=self._findings_seconds)
        except StatusError as error:
            problem = error.message
        if self._sources.active().rules.digest != digest:
            raise not_found("the rules were loaded again")
        rows = Rows(
            id="rules",
            states={row.id: row for row in self._rows(findings or (), text.lower(), problems=problems)},
            render=partial(self._templates.render, "_overview_row.html"),
            empty=_NO_ROWS,
        )
        values = {**self._values(findings, problem), "text": text, "problems": problems}
        return View(values=values, rows=rows)

    def _rows(self, findings: Sequence[Finding], wanted: str, *, problems: bool) -> list[RuleRow]:
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
            state = active.catalog.state(rule)
            row = RuleRow(
                key=rule.key,
                title=rule_title(rule.key, (source.metric for source in state.sources)),
                about=shortened(about(rule)),
                short=not isinstance(rule, Rule),
                scheduled=isinstance(rule, ScheduleRule),
                server=rule.prometheus,
                series=len(state.series),
                metrics=len(state.sources),
                age=None if state.listed_at is None else rounded_age(now - state.listed_at),
                failure=state.failure,
                errors=counts[rule.key, Severity.ERROR],
                warnings=counts[rule.key, Severity.WARNING],
                paused=tuple(sorted(paused.get(rule.key, ()), key=lambda why: why.value)),
                figures=figures.get(rule.key, RuleFigures()),
            )
            if (row.has_problem or not problems) and _contains(row, rule, active, wanted):
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


def _contains(row: RuleRow, rule: AnyRule, active: ActiveRules, wanted: str) -> bool:
    if wanted in row.key.lower() or wanted in row.about.lower():
        return True
    return any(wanted in source.metric.lower() for source in active.catalog.state(rule).sources)


def _place(rule: AnyRule) -> tuple[bool, int]:
    """Return the place of a rule in the file; `all_rules` are in the order in which they take precedence."""
    return rule.external, int(rule.key.partition("[")[2].rstrip("]"))
