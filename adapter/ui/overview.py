"""The first page: all rules, what `check` finds in them, Prometheus, the rules file, cache and coalescing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from prometheus_client import Histogram
from yarl import URL

from adapter.diagnosis.lint import about
from adapter.diagnosis.report import Finding, Severity
from adapter.planning.coalescer import Pause
from adapter.prometheus import PrometheusOptions
from adapter.rules import AnyRule, Rule
from adapter.rules.model import shortened
from adapter.telemetry import Numbers
from adapter.ui.formatting import element_id, rounded_age, rule_title
from adapter.ui.reports import Reports, Sources
from kube.api.status import StatusError, not_found
from kube.web.live import Rows, View
from kube.web.pages import Templates

SECTIONS: Final = tuple(f"_overview_{name}.html" for name in ("summary", "findings", "servers", "file", "cache"))
"""The parts of the page that are replaced as a whole."""

_NO_ROWS: Final = '<tr id="no-rules" role="row"><td role="cell" colspan="6">No rule fits.</td></tr>'


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A row of the table of rules."""

    rule: AnyRule
    """The rule."""
    title: str
    """The names of its first metrics; without any, its key."""
    about: str
    """The seriesQuery, or the metric of a short rule."""
    series: int
    """How many names of series it finds."""
    metrics: int
    """How many metrics it makes."""
    age: int | None
    """Seconds since the last good list; None: there was none."""
    failure: str
    """Why the last list failed; "" if it did not."""
    errors: int
    """How many errors `check` finds."""
    warnings: int
    """How many warnings `check` finds."""
    paused: tuple[Pause, ...]
    """Why requests are not coalesced for a while."""
    merged: float
    """See RuleTelemetry, as of the two below."""
    alone: float
    query_errors: float

    @property
    def id(self) -> str:
        """The id of the row's element."""
        return element_id(self.rule.key)

    @property
    def requests(self) -> float:
        """The requests that a coalesced query can serve."""
        return self.merged + self.alone

    @property
    def short(self) -> bool:
        """It is a short rule or a schedule, which has no series."""
        return not isinstance(self.rule, Rule)

    @property
    def listed(self) -> bool:
        """Its series are known; a short rule needs none."""
        return self.short or self.age is not None

    @property
    def has_problem(self) -> bool:
        """It cannot be listed, or has findings."""
        return bool(self.failure or self.errors or self.warnings) or not self.listed


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """A Prometheus server: its name and URL, and the requests that were sent, with their mean duration in seconds."""

    name: str
    url: str
    queries: int
    query_seconds: float | None
    lists: int
    list_seconds: float | None


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
        if self._sources.active.rules.digest != digest:
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
        active = self._sources.active
        # A rule that cannot be listed says so by itself.
        counts = Counter((one.rule, one.severity) for one in findings if one.code != "not-listed")
        paused: dict[str, set[Pause]] = {}
        for key, why in active.coalescer.paused():
            paused.setdefault(key, set()).add(why)
        telemetry, now = self._sources.shared.telemetry.rules, self._sources.clock()
        rows = []
        for rule in sorted(active.rules.all_rules, key=_place):
            key, state = rule.key, active.catalog.state(rule)
            row = RuleRow(
                rule=rule,
                title=rule_title(key, (source.metric for source in state.sources)),
                about=shortened(about(rule)),
                series=len(state.series),
                metrics=len(state.sources),
                age=None if state.listed_at is None else rounded_age(now - state.listed_at),
                failure=state.failure,
                errors=counts[key, Severity.ERROR],
                warnings=counts[key, Severity.WARNING],
                paused=tuple(sorted(paused.get(key, ()), key=lambda why: why.value)),
                merged=telemetry.requests[key, "merged"],
                alone=telemetry.requests[key, "alone"],
                query_errors=telemetry.query_errors[key,],
            )
            texts = chain((key, row.about), (source.metric for source in state.sources))
            if (row.has_problem or not problems) and any(wanted in text.lower() for text in texts):
                rows.append(row)
        return rows

    def _values(self, findings: Sequence[Finding] | None, problem: str) -> Mapping[str, Any]:
        """Return what the sections show."""
        active, sources, shared = self._sources.active, self._sources, self._sources.shared
        snapshot, rules = active.catalog.snapshot, active.rules
        telemetry = shared.telemetry.rules
        requests, queries = _sums(telemetry.requests), _sums(telemetry.coalesced_queries)
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
            "servers": list(_server_figures(telemetry.latency, servers)),
            "file": sources.rules_file,
            "applied_at": sources.rule_sets.applied_at,
            "gone": sources.rule_sets.gone,
            "cache": active.cache,
            "freshness": shared.freshness,
            "coalesces": active.cache.ttl > 0,
            "merged": requests["merged"],
            "alone": requests["alone"],
            "coalesced_queries": queries.total(),
            "failed_coalesced_queries": queries["failure"],
            "relist_interval": shared.relist_interval,
            "now": sources.clock(),
        }


def _place(rule: AnyRule) -> tuple[bool, int]:
    """Return the place of a rule in the file; `all_rules` are in the order in which they take precedence."""
    return rule.external, int(rule.key.partition("[")[2].rstrip("]"))


def _sums(numbers: Numbers) -> Counter[str]:
    """Return the sums of the numbers of all rules, by their other label."""
    sums: Counter[str] = Counter()
    for (_, label), number in list(numbers.items()):
        sums[label] += int(number)
    return sums


def _server_figures(latency: Histogram, servers: Iterable[PrometheusOptions]) -> Iterator[ServerFigures]:
    """Yield the figures of some servers. A URL is without the password that may be in it."""
    totals = {
        (sample.labels["server"], sample.labels["path"], sample.name.rpartition("_")[2]): sample.value
        for family in latency.collect()
        for sample in family.samples
    }

    def requests(server: str, path: str) -> tuple[int, float | None]:
        """Return the number of requests, and their mean duration."""
        count = totals.get((server, path, "count"), 0)
        return int(count), totals[server, path, "sum"] / count if count else None

    for server in servers:
        url = str(URL(server.url).with_user(None))
        yield ServerFigures(
            server.name, url, *requests(server.name, "/api/v1/query"), *requests(server.name, "/api/v1/series")
        )
