"""The page with the box in which to try a rule."""

from __future__ import annotations

import asyncio
from typing import Final

from adapter.diagnosis.report import Severity
from adapter.ui.rule_page import examples_of, series_view
from adapter.ui.trial import MAX_CHARACTERS, SECTIONS, Trial, TrialError, Trials
from kube.web.live import View

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


async def trial_view(trials: Trials, text: str, section: str, *, runs: bool) -> View:
    """Return the form, and for a text the result of its check if it `runs`."""
    section = section if section in SECTIONS else SECTIONS[0]
    text = text.replace("\r\n", "\n")
    trial: Trial | None = None
    problem = ""
    if text.strip() and not runs:
        problem = "this rule comes from a link, and was not checked yet: read it, and then check it"
    elif text.strip():
        try:
            trial = await trials.check(text, section)
        except TrialError as error:
            problem = str(error)
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


def _made(trial: Trial) -> str:
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
