"""Check a rule of an object for its status."""

from __future__ import annotations

from dataclasses import replace

from adapter.diagnosis.checker import CheckError, RuleChecker
from adapter.diagnosis.object_findings import object_findings
from adapter.forecasts.registry import Forecasts
from adapter.rule_objects.status import Verdict, verdict_of
from adapter.rules import AnyRule


async def checked_verdict(rule: AnyRule, checker: RuleChecker, forecasts: Forecasts | None = None) -> Verdict:
    """List the rule's series, query an example value, and return the verdict. It does not raise.

    `forecasts` are those of this replica; None: there are none.
    """
    try:
        checked = await checker.check(rule, ages=False)  # a status has no advice
    except CheckError as error:
        return Verdict(ready=None, reason=error.reason, message=str(error))
    verdict = verdict_of(rule, checked.report, object_findings(rule, checked.findings), checked.record)
    if rule.forecast is None or forecasts is None:
        return verdict
    return replace(verdict, forecast=forecasts.summary(rule.key), forecast_settled=forecasts.settled(rule.key))
