"""Check a rule of an object for its status."""

from __future__ import annotations

from adapter.diagnosis.checker import CheckError, RuleChecker
from adapter.diagnosis.object_findings import object_findings
from adapter.rule_objects.status import Verdict, verdict_of
from adapter.rules import AnyRule


async def checked_verdict(rule: AnyRule, checker: RuleChecker) -> Verdict:
    """List the rule's series, query an example value, and return the verdict. It does not raise."""
    try:
        checked = await checker.check(rule)
    except CheckError as error:
        return Verdict(ready=None, reason=error.reason, message=str(error))
    return verdict_of(rule, checked.report, object_findings(rule, checked.findings), checked.record)
