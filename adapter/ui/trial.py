"""The page with the box in which to try a rule: one at a time, within the limits of RuleChecker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from adapter.diagnosis.checker import CheckedRule, CheckError
from adapter.diagnosis.report import Finding, MetricReport, RuleReport, Severity, warning
from adapter.rules import RulesError, parse_rule
from adapter.serving.rule_sets import RuleSet
from adapter.ui.reports import Sources
from adapter.ui.rule_page import examples_of, series_view
from kube.api.mapping import GroupResource
from kube.web.live import View

MAX_CHARACTERS: Final = 8_000
"""The longest text of a rule; with escapes it still fits into a URL."""

SECTIONS: Final = ("rules", "externalRules")
"""The sections of a rules file that a rule can be in."""

_SOURCE: Final = "the rule"
_KEY: Final = "rule"
_WAIT_SECONDS: Final = 5.0
_EXAMPLES: Final = 3
_OWN_KEY: Final = re.compile(r"^(?:rules|externalRules)\[0\](?:\.|: )")
_ROWS: Final = 50  # of the table of series
_LONG_FORM: Final = """\
seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
resources: {template: <<.Resource>>}
name: {matches: ^(.*)_total$, as: '${1}_per_second'}
metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
"""
_SHORT_FORM: Final = """\
name: consumer_lag
query: sum(kafka_consumergroup_lag) by (namespace, deployment)
resources: {namespace: namespace, deployment: deployment.apps}
"""


class Trials:
    """Tries rules, one at a time; `wait_seconds` is how long to wait for another trial to end."""

    def __init__(self, sources: Sources, *, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._sources = sources
        self._wait_seconds = wait_seconds
        self._lock = asyncio.Lock()

    async def check(self, text: str, section: str) -> CheckedRule | str:
        """Check a rule; `section` is one of SECTIONS, unless the text says which. Its key in findings is `rule`.

        A text: the rule cannot be tried, and why.
        """
        if len(text) > MAX_CHARACTERS:
            return f"it is longer than {MAX_CHARACTERS} characters"
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._lock.acquire()
        except TimeoutError:
            return "another rule is being tried; try again in some seconds"
        try:
            return await self._check(text, section)
        except RulesError as error:
            return _OWN_KEY.sub("", str(error).removeprefix(f"{_SOURCE}: "))
        except CheckError as error:
            return str(error)
        finally:
            self._lock.release()

    async def _check(self, text: str, section: str) -> CheckedRule:
        active = self._sources.active
        servers = active.rules.prometheus_servers
        [rule] = (await asyncio.to_thread(parse_rule, text, section=section, servers=servers, source=_SOURCE)).all_rules
        # Its key in a file of its own, rules[0], is that of an active rule, too.
        checked = await self._sources.rule_checker.check(structs.replace(rule, key=_KEY), examples=_EXAMPLES)
        findings = (*checked.findings, *_overlaps(checked.report, active, external=rule.external))
        return replace(checked, findings=findings)


def _overlaps(report: RuleReport, active: RuleSet, *, external: bool) -> Sequence[Finding]:
    """Return a finding for each active rule that makes a metric of this rule, too."""
    shared: dict[str, list[MetricReport]] = {}
    for metric in report.metrics:
        resource, _, name = metric.metric.partition("/")
        plural, _, group = resource.partition(".")
        key = (None, metric.metric) if external else (GroupResource(group, plural), name)
        source = active.catalog.snapshot.by_key.get(key)
        if source is not None:
            shared.setdefault(source.rule.key, []).append(metric)
    return [
        warning(
            "overlap",
            "",
            f"{metrics[0].metric}{f' and {len(metrics) - 1} more' if len(metrics) > 1 else ''}: also made by {key} of"
            " the active file; in a file with both, the later one wins (a short rule wins over one with a seriesQuery)",
        )
        for key, metrics in shared.items()
    ]


async def trial_view(trials: Trials, text: str, section: str, *, runs: bool) -> View:
    """Return the form, and for a text the result of its check if it `runs`."""
    section = section if section in SECTIONS else SECTIONS[0]
    text = text.replace("\r\n", "\n")
    checked: CheckedRule | str = ""
    if text.strip() and not runs:
        checked = "this rule comes from a link, and was not checked yet: read it, and then check it"
    elif text.strip():
        checked = await trials.check(text, section)
    trial, problem = (None, checked) if isinstance(checked, str) else (checked, "")
    view = await asyncio.to_thread(series_view, trial.report, rows=_ROWS) if trial is not None else None
    findings = trial.findings if trial is not None else ()
    return View(
        values={
            "text": text[:MAX_CHARACTERS],
            "section": section,
            "sections": SECTIONS,
            "max_characters": MAX_CHARACTERS,
            "problem": problem,
            "trial": trial,
            "made": _made(trial) if trial is not None else "",
            "view": view,
            "findings": findings,
            "errors": sum(finding.severity is Severity.ERROR for finding in findings),
            "examples": examples_of(trial.report) if trial is not None else [],
            "links": False,
            "long_form": _LONG_FORM,
            "short_form": _SHORT_FORM,
        }
    )


def _made(trial: CheckedRule) -> str:
    """Return what a rule finds and makes, in a sentence."""
    report, left_out = trial.report, trial.series_left_out
    metrics = f"{len(report.metrics)} metric{'' if len(report.metrics) == 1 else 's'}"
    if report.series:
        if left_out:
            some = f"the first {len(report.series)} of {len(report.series) + left_out} series"
        else:
            some = "one series" if len(report.series) == 1 else f"{len(report.series)} series"
        return f"The rule makes {metrics} of {some}."
    if report.metrics:
        return f"The rule makes the metric {report.metrics[0].metric}."
    return "The rule makes no metric."
