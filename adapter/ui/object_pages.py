"""The list of the objects with rules, such as MetricRules, and the page of one of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapter.catalog.rule_states import Reason
from adapter.diagnosis.report import Finding, ObjectReport, RuleReport
from adapter.rule_objects.reports import object_report, object_reports
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.objects import ObjectName
from adapter.ui.live import CheckAccess, changed_parts
from adapter.ui.reports import Reports
from adapter.ui.sources import Sources
from kube.api.status import StatusError, not_found
from kube.web.event_stream import ServerEvent
from kube.web.templates import Templates

_ROWS: Final = 100  # of a page
_PARTS: Final = ("facts", "findings", "examples")


@dataclass(frozen=True, slots=True)
class ObjectFilter:
    """The objects to show: those that contain a text, those that are not served; the first page is 1."""

    text: str = ""
    problems: bool = False
    page: int = 1

    def shows(self, one: ObjectReport) -> bool:
        """Return whether an object is shown."""
        if self.problems and one.reason == Reason.READY:
            return False
        wanted = self.text.lower()
        name = f"{one.kind} {one.namespace}/{one.name}"
        return not wanted or any(wanted in text.lower() for text in (name, one.reason, *one.metrics))


class ObjectsPage:
    """Renders the list and its events."""

    def __init__(self, sources: Sources, templates: Templates, *, tick_seconds: float) -> None:
        self._sources = sources
        self._templates = templates
        self._tick_seconds = tick_seconds

    async def page(self, shown: ObjectFilter, *, events: str) -> str:
        """Return the page."""
        return self._templates.render("objects.html", events=events, **await self._values(shown))

    async def events(self, shown: ObjectFilter, *, check_access: CheckAccess) -> AsyncIterator[ServerEvent]:
        """Yield what changes, from the present state on."""

        async def parts() -> Mapping[str, str]:
            """Return the table."""
            return {"objects": self._templates.render("_objects.html", **await self._values(shown))}

        async for event in changed_parts(parts, check_access, tick_seconds=self._tick_seconds):
            yield event

    async def _values(self, shown: ObjectFilter) -> Mapping[str, Any]:
        everything = await object_reports(self._sources.rule_objects)
        fitting = [one for one in everything if shown.shows(one)]
        pages = max(math.ceil(len(fitting) / _ROWS), 1)
        page = min(max(shown.page, 1), pages)
        return {
            "filter": shown,
            "rows": fitting[(page - 1) * _ROWS : page * _ROWS],
            "page_number": page,
            "pages": pages,
            "fitting": len(fitting),
            "total": len(everything),
            "enabled": self._sources.rule_objects.enabled,
        }


class ObjectPage:
    """Renders the page of one object and its events. Of an object with several rules, one is checked."""

    def __init__(self, sources: Sources, reports: Reports, templates: Templates, *, tick_seconds: float) -> None:
        self._sources = sources
        self._reports = reports
        self._templates = templates
        self._tick_seconds = tick_seconds

    async def page(self, name: ObjectName, *, number: int, events: str) -> str:
        """Return the page, with what `check` says about the rule of a number. Raises StatusError (404)."""
        return self._templates.render("object.html", events=events, **await self._values(name, number))

    async def events(self, name: ObjectName, *, number: int, check_access: CheckAccess) -> AsyncIterator[ServerEvent]:
        """Yield what changes, from the present state on. Raises StatusError (404)."""

        async def parts() -> Mapping[str, str]:
            """Return the present parts of the page, {name: HTML}."""
            values = await self._values(name, number)
            templates = {"facts": "_object_facts.html"}
            return await asyncio.to_thread(
                lambda: {
                    part: self._templates.render(templates.get(part, f"_rule_{part}.html"), **values) for part in _PARTS
                }
            )

        async for event in changed_parts(parts, check_access, tick_seconds=self._tick_seconds):
            yield event

    async def _values(self, name: ObjectName, number: int) -> Mapping[str, Any]:
        state = self._sources.rule_objects.state(name)
        if state is None:
            raise not_found(f"there is no {name} with rules")
        rules = state.object.rules
        rule = rules[number] if number < len(rules) else None
        report, problem = RuleReport("", ""), ""
        findings: Sequence[Finding] = ()
        if rule is not None:
            try:
                report, findings = await self._reports.object_rule(state.object, rule)
            except StatusError as error:
                problem = error.message
        return {
            "key": str(name),
            "object": object_report(state),
            "created": state.object.created,
            "rules": [one.key for one in rules[:_ROWS]],
            "number": number,
            "rule": rule,
            "query": _query(rule),
            "problem": problem or (state.message if rule is None else ""),
            "findings": findings,
            "examples": [metric for metric in report.metrics if metric.example is not None],
            "links": False,
        }


def _query(rule: AnyRule | None) -> str:
    """Return the PromQL of a rule; "" if it has none."""
    if isinstance(rule, Rule):
        return rule.query.source
    return rule.query if isinstance(rule, QueryRule) else ""
