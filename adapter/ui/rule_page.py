"""The pages of rules: of one in the rules file, the list of the objects with rules, and of one object."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from adapter.catalog.rule_states import Reason
from adapter.diagnosis.report import Finding, MetricReport, ObjectReport, RuleReport, SeriesReport
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.objects import ObjectName
from adapter.serving.debug_pages import object_report, object_reports
from adapter.ui.formatting import rule_title, rule_yaml
from adapter.ui.reports import Reports, Sources
from kube.api.status import StatusError, not_found
from kube.web.live import View

_T = TypeVar("_T")

ROWS: Final = 100
"""Of a page."""

RESOURCE_RULES: Final = "resourceRules"
"""The key of the page about resourceRules, which have no series."""


@dataclass(frozen=True, slots=True)
class Paged(Generic[_T]):
    """A page of the rows that contain `text`; the first page is 1."""

    rows: Sequence[_T]
    text: str
    page: int
    pages: int
    fitting: int
    total: int


def paged(fitting: Sequence[_T], *, total: int, text: str, page: int, rows: int = ROWS) -> Paged[_T]:
    """Return a page of the rows that fit, of a total; the last one if there are fewer pages."""
    pages = max(math.ceil(len(fitting) / rows), 1)
    page = min(max(page, 1), pages)
    return Paged(fitting[(page - 1) * rows : page * rows], text, page, pages, len(fitting), total)


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """A series with its metrics. For a short rule, which has none, `series` is None."""

    series: SeriesReport | None
    metrics: tuple[MetricReport, ...]


def series_view(report: RuleReport, *, text: str = "", page: int = 1, rows: int = ROWS) -> Paged[SeriesRow]:
    """Return a page of a rule's series. Thousands of series take some milliseconds: call it in a thread."""
    metrics: dict[str, list[MetricReport]] = {}
    for metric in report.metrics:
        metrics.setdefault(metric.series, []).append(metric)
    everything = [SeriesRow(one, tuple(metrics.get(one.name, ()))) for one in report.series]
    if "" in metrics:
        everything.append(SeriesRow(None, tuple(metrics[""])))
    wanted = text.lower()
    fitting = [row for row in everything if not wanted or _contains(row, wanted)]
    return paged(fitting, total=len(everything), text=text, page=page, rows=rows)


def _contains(row: SeriesRow, wanted: str) -> bool:
    names = [row.series.name] if row.series is not None else []
    return any(wanted in name.lower() for name in (*names, *(one.metric for one in row.metrics)))


async def rule_view(sources: Sources, reports: Reports, key: str, *, text: str, page: int) -> View:
    """Return what the page of a rule shows. Raises StatusError (404)."""
    active = sources.active
    rule = next((rule for rule in active.rules.all_rules if rule.key == key), None)
    if rule is None:
        raise not_found(f"there is no rule {key}; the rules file may have been reloaded")
    problem, report = "", RuleReport(key, "")
    findings: Sequence[Finding] = ()
    try:
        report, findings = await reports.rule(rule)
    except StatusError as error:
        problem = error.message
    listed_at, entry = active.catalog.state(rule).listed_at, active.rules.entries.get(key, {})
    paused = active.coalescer.paused()
    return View(
        values={
            "key": key,
            "title": rule_title(key, (one.metric.rpartition("/")[2] for one in report.metrics)),
            "rule": rule,
            "short": not isinstance(rule, Rule),
            "report": report,
            "problem": problem,
            "findings": findings,
            "examples": examples_of(report),
            "view": await asyncio.to_thread(series_view, report, text=text, page=page),
            "written": rule_yaml(entry),
            "has_headers": "headers" in entry,
            "telemetry": sources.shared.telemetry.rules,
            "paused": sorted({why for one, why in paused if one == key}, key=lambda why: why.value),
            "age": None if listed_at is None else sources.clock() - listed_at,
            "links": True,
        }
    )


async def resource_rules_view(sources: Sources, reports: Reports) -> View:
    """Return what the page of resourceRules shows. Raises StatusError (404)."""
    if sources.active.rules.resource is None:
        raise not_found("the rules file has no resourceRules")
    examples = [(report.rule, metric) for report in await reports.resource_rules() for metric in report.metrics]
    return View(
        values={
            "key": RESOURCE_RULES,
            "title": RESOURCE_RULES,
            "rule": None,
            "problem": "",
            "resource_examples": examples,
            "examples": (),
            "links": False,
        }
    )


def examples_of(report: RuleReport) -> list[MetricReport]:
    """Return the metrics whose values were queried."""
    return [metric for metric in report.metrics if metric.example is not None]


async def objects_view(sources: Sources, *, text: str, problems: bool, page: int) -> View:
    """Return the objects that contain a text, and with `problems` those that are not served."""
    everything = await object_reports(sources.shared.rule_objects)
    wanted = text.lower()
    fitting = [one for one in everything if not (problems and one.reason == Reason.READY) and _has_text(one, wanted)]
    return View(
        values={
            "view": paged(fitting, total=len(everything), text=text, page=page),
            "problems": problems,
            "enabled": sources.shared.rule_objects.enabled,
        }
    )


def _has_text(one: ObjectReport, wanted: str) -> bool:
    name = f"{one.kind} {one.namespace}/{one.name}"
    return not wanted or any(wanted in text.lower() for text in (name, one.reason, *one.metrics))


async def object_view(sources: Sources, reports: Reports, name: ObjectName, *, number: int) -> View:
    """Return what the page of an object shows, with what `check` says about its rule of a number.

    Raises:
        StatusError: 404.
    """
    state = sources.shared.rule_objects.state(name)
    if state is None:
        raise not_found(f"there is no {name} with rules")
    rules = state.object.rules
    rule = rules[number] if number < len(rules) else None
    report, problem = RuleReport("", ""), ""
    findings: Sequence[Finding] = ()
    if rule is not None:
        try:
            report, findings = await reports.object_rule(state.object, rule)
        except StatusError as error:
            problem = error.message
    return View(
        values={
            "key": str(name),
            "object": object_report(state),
            "created": state.object.created,
            "rules": [one.key for one in rules[:ROWS]],
            "number": number,
            "rule": rule,
            "query": _query(rule),
            "problem": problem or (state.message if rule is None else ""),
            "findings": findings,
            "examples": examples_of(report),
            "links": False,
        }
    )


def _query(rule: AnyRule | None) -> str:
    """Return the PromQL of a rule; "" if it has none."""
    if isinstance(rule, Rule):
        return rule.query.source
    return rule.query if isinstance(rule, QueryRule) else ""
