"""The status of a MetricRule or ClusterMetricRule: what `check` says about it, as a `Ready` condition."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from adapter.catalog.rule_states import Reason, message_of, without_addresses
from adapter.diagnosis.checker import CheckError, QueryRecord, RuleChecker
from adapter.diagnosis.lint import object_findings
from adapter.diagnosis.report import Finding, RuleReport, Severity
from adapter.forecasts.registry import Forecasts
from adapter.prometheus import PrometheusQueryError
from adapter.rule_objects.state import ObjectState
from adapter.rules import AnyRule, Rule
from kube.values.printable import on_one_line, printable
from kube.web.explanation import Example

_MAX_NAMES: Final = 10
# The API server takes conditions with up to 32,768 characters; a person reads much less.
_MAX_MESSAGE: Final = 1_000
_SEVERAL_VALUES: Final = "several-values"
# Shorter queries vary by this much without a cause.
_SHORT_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is known about a rule object."""

    ready: bool | None
    """True, False, or None if it is not known."""
    reason: str
    """A word in CamelCase, as docs/metric-rules.md lists them."""
    message: str
    """A sentence for people."""
    metrics: tuple[str, ...] = ()
    """The names of its metrics, sorted."""
    series: int | None = None
    """How many names of series it finds; for the short form, how many samples its query's result has. None if that is
    not known."""
    value: str = ""
    """An example value, as a quantity; "" for none."""
    query_seconds: float | None = None
    """The duration of the last query; None if there was none."""
    forecast: str = ""
    """Whether forecasts are served, or why not; "" for a rule without `forecast`."""
    forecast_settled: bool = True
    """False if that probably changes soon."""

    @property
    def settled(self) -> bool:
        """False if the next check probably has another result."""
        return self.ready is not None and self.reason not in ("NoValue", "NoSeries") and self.forecast_settled


def not_served(state: ObjectState) -> Verdict:
    """Return the verdict on an object whose rule is not checked, because its metrics are not served, or not yet."""
    unknown = state.reason in (Reason.PENDING, Reason.PROMETHEUS_UNAVAILABLE)
    return Verdict(
        ready=None if unknown else False,
        reason=state.reason.value,
        message=_limited(state.message),
        metrics=tuple(sorted(state.metrics)),
    )


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


def verdict_of(rule: AnyRule, report: RuleReport, findings: Iterable[Finding], record: QueryRecord) -> Verdict:
    """Return the verdict on a rule that was checked.

    Args:
        rule: the rule.
        report: its metrics and example values.
        findings: what `lint` and `check_rule` found, with the paths in the object.
        record: the requests that were sent for it.
    """
    found = [(one.severity, one.code, _text(one)) for one in findings]
    examples = [metric.example for metric in report.metrics if metric.example is not None]
    values = [value.value for example in examples for value in example.values]
    metrics = tuple(sorted({metric.metric.rpartition("/")[2] for metric in report.metrics}))
    if not metrics and not isinstance(rule, Rule):
        metrics = (rule.metric,)
    ready, reason, message = _condition(report, found, record, metrics=metrics, has_value=bool(values))
    return Verdict(
        ready=ready,
        reason=reason,
        message=_limited(message),
        metrics=metrics,
        series=record.names if isinstance(rule, Rule) else record.samples,
        value=values[0] if values else "",
        query_seconds=record.seconds,
    )


def _condition(
    report: RuleReport,
    findings: Sequence[tuple[Severity, str, str]],
    record: QueryRecord,
    *,
    metrics: tuple[str, ...],
    has_value: bool,
) -> tuple[bool | None, str, str]:
    """Return whether it is ready, the reason and the message."""
    errors = [(code, text) for severity, code, text in findings if severity is Severity.ERROR]
    several = [text for code, text in errors if code == _SEVERAL_VALUES]
    own = [text for code, text in errors if code not in ("not-listed", "no-value", _SEVERAL_VALUES)]
    warnings = {code: text for severity, code, text in findings if severity is Severity.WARNING}
    if own:
        return False, "Invalid", _joined(own)
    if several:  # served, but too low
        return False, "SeveralValues", _joined(several)
    if record.error is not None and not has_value:
        if isinstance(record.error, PrometheusQueryError):
            return False, "QueryFailed", message_of(record.error)
        return None, "PrometheusUnavailable", message_of(record.error)
    if errors:  # a list that failed because of the API server's discovery
        return None, "APIServerUnavailable", _joined(text for _, text in errors)
    for code in ("no-series", "all-left-out"):
        if code in warnings:
            return True, "NoSeries", warnings[code]
    if not has_value:
        failed = next((one.example for one in report.metrics if one.example and one.example.problem), Example())
        why = [without_addresses(failed.problem) or "there is no series now", failed.existing]
        if failed.queries:
            why.append(f"the query was sent as {on_one_line(failed.queries[-1])}")
        return True, "NoValue", f"{metrics[0] if metrics else 'it'} has no value: {_joined(filter(None, why))}"
    made = f"makes {metrics[0]}" if len(metrics) == 1 else f"makes {len(metrics)} metrics"
    return True, "Ready", _joined([made, *(f"warning: {text}" for text in warnings.values())])


def status_of(verdict: Verdict, *, generation: int, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the `status` of an object.

    Args:
        verdict: what is known about it.
        generation: the metadata.generation that the verdict is about.
        before: the present status, whose lastTransitionTime stays while the condition's status is the same.
        now: seconds since the epoch.
    """
    status = {True: "True", False: "False", None: "Unknown"}[verdict.ready]
    earlier = ready_condition(before)
    since = earlier.get("lastTransitionTime") if earlier.get("status") == status else None
    condition = {
        "type": "Ready",
        "status": status,
        "reason": verdict.reason,
        "message": verdict.message,
        "observedGeneration": generation,
        "lastTransitionTime": since if isinstance(since, str) and since else _time_text(now),
    }
    return {
        "observedGeneration": generation,
        "conditions": [condition],
        "metrics": list(verdict.metrics[:_MAX_NAMES]),
        "metricsCount": len(verdict.metrics),
        "series": verdict.series,
        "value": verdict.value or None,
        "forecast": _limited(without_addresses(verdict.forecast)) or None,
        "queryDuration": None if verdict.query_seconds is None else duration_text(verdict.query_seconds),
    }


def ready_condition(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the Ready condition of a status that may be anything; an empty mapping if it has none."""
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("type") == "Ready":
            return one
    return {}


def must_write(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a status differs from the present one; a similar duration of the query is no difference."""
    for key, value in status.items():
        if key != "queryDuration" and value != before.get(key):
            return True
    new, old = (_seconds(one.get("queryDuration")) for one in (status, before))
    if new is None or old is None:
        return new is not old
    slow, quick = max(new, old), min(new, old)
    return slow > _SHORT_SECONDS and slow > 2 * quick


def duration_text(seconds: float) -> str:
    """Return "12ms", "1.5s"; a short query has at least 1ms."""
    milliseconds = max(1, math.ceil(seconds * 1000))
    return f"{milliseconds}ms" if milliseconds < 1000 else f"{seconds:.3g}s"


def _seconds(text: object) -> float | None:
    match = re.fullmatch(r"([0-9.]{1,10})(m?)s", text) if isinstance(text, str) else None
    try:
        return float(match[1]) / (1000 if match[2] else 1) if match is not None else None
    except ValueError:
        return None


def _text(finding: Finding) -> str:
    return f"{finding.path}: {finding.message}" if finding.path else finding.message


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _limited(message: str) -> str:
    """Return a message without control characters, which a terminal would obey, and of a limited length."""
    message = printable(message[: 2 * _MAX_MESSAGE])
    return message if len(message) <= _MAX_MESSAGE else f"{message[: _MAX_MESSAGE - 3]}..."


def _time_text(now: float) -> str:
    """RFC 3339 in whole seconds, as metav1.Time."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
