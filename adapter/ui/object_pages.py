"""The list of the objects with rules, such as MetricRules, and the page of one of them."""

from __future__ import annotations

from collections.abc import Sequence

from adapter.catalog.rule_states import Reason
from adapter.diagnosis.report import Finding, ObjectReport, RuleReport
from adapter.rules import AnyRule, QueryRule, Rule
from adapter.rules.objects import ObjectName
from adapter.serving.debug_pages import object_report, object_reports
from adapter.ui.reports import Reports
from adapter.ui.rule_page import ROWS, examples_of, paged
from adapter.ui.sources import Sources
from kube.api.status import StatusError, not_found
from kube.web.live import View


async def objects_view(sources: Sources, *, text: str, problems: bool, page: int) -> View:
    """Return the objects that contain a text, and with `problems` those that are not served."""
    everything = await object_reports(sources.rule_objects)
    wanted = text.lower()
    fitting = [one for one in everything if not (problems and one.reason == Reason.READY) and _contains(one, wanted)]
    return View(
        values={
            "view": paged(fitting, total=len(everything), text=text, page=page),
            "problems": problems,
            "enabled": sources.rule_objects.enabled,
        }
    )


def _contains(one: ObjectReport, wanted: str) -> bool:
    name = f"{one.kind} {one.namespace}/{one.name}"
    return not wanted or any(wanted in text.lower() for text in (name, one.reason, *one.metrics))


async def object_view(sources: Sources, reports: Reports, name: ObjectName, *, number: int) -> View:
    """Return what the page of an object shows, with what `check` says about its rule of a number.

    Raises:
        StatusError: 404.
    """
    state = sources.rule_objects.state(name)
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
