"""Check a rule that is not in the rules file: one at a time, within the limits of RuleChecker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from adapter.diagnosis.checker import CheckError
from adapter.diagnosis.report import Finding, MetricReport, RuleReport, warning
from adapter.rules import RulesError, parse_rule
from adapter.ui.sources import ActiveRules, Sources
from kube.api.mapping import GroupResource

MAX_CHARACTERS: Final = 8_000
"""The longest text of a rule; with escapes it still fits into a URL."""

SECTIONS: Final = ("rules", "externalRules")
"""The sections of a rules file that a rule can be in."""

_SOURCE: Final = "the rule"
_WAIT_SECONDS: Final = 5.0
_EXAMPLES: Final = 3
_OWN_KEY: Final = re.compile(r"^(?:rules|externalRules)\[0\](?:\.|: )")
_OWN_SERIES: Final = re.compile(r"\b(?:rules|externalRules)\[0\] of ")


class TrialError(Exception):
    """The rule cannot be tried; the message says why."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What `check` says about a rule.

    Attributes:
        report: its series, metrics and examples.
        findings: what is wrong with it, or may be; `where` is the path in the rule.
        series_left_out: how many names of series were not looked at, because there are too many.
    """

    report: RuleReport
    findings: tuple[Finding, ...]
    series_left_out: int


class Trials:
    """Tries rules, one at a time; `wait_seconds` is how long to wait for another trial to end."""

    def __init__(self, sources: Sources, *, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._sources = sources
        self._wait_seconds = wait_seconds
        self._lock = asyncio.Lock()

    async def check(self, text: str, section: str) -> Trial:
        """Check a rule; `section` is one of SECTIONS, unless the text says which.

        Raises:
            TrialError: the text is not one valid rule, or there was no result in time.
        """
        if len(text) > MAX_CHARACTERS:
            raise TrialError(f"it is longer than {MAX_CHARACTERS} characters")
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._lock.acquire()
        except TimeoutError:
            raise TrialError("another rule is being tried; try again in some seconds") from None
        try:
            return await self._check(text, section)
        except RulesError as error:
            raise TrialError(_OWN_KEY.sub("", str(error).removeprefix(f"{_SOURCE}: "))) from error
        except CheckError as error:
            raise TrialError(str(error)) from error
        finally:
            self._lock.release()

    async def _check(self, text: str, section: str) -> Trial:
        active = self._sources.active()
        servers = active.rules.prometheus_servers
        [rule] = (await asyncio.to_thread(parse_rule, text, section=section, servers=servers, source=_SOURCE)).all_rules
        checked = await self._sources.rule_checker.check(rule, examples=_EXAMPLES)
        findings = (*map(_without_key, checked.findings), *_overlaps(checked.report, active, external=rule.external))
        return Trial(_without_own_key(checked.report), findings, checked.series_left_out)


def _without_key(finding: Finding) -> Finding:
    """Return a finding without the rule's key, which is that of an active rule, too."""
    where = finding.where.partition(".")[2]
    return msgspec.structs.replace(finding, where=where, message=_OWN_SERIES.sub("its series ", finding.message))


def _without_own_key(report: RuleReport) -> RuleReport:
    """Return a report where metrics that are hidden by another series of the rule do not show its key."""
    metrics = tuple(
        msgspec.structs.replace(metric, hidden_by=_OWN_SERIES.sub("series ", metric.hidden_by))
        for metric in report.metrics
    )
    return msgspec.structs.replace(report, metrics=metrics)


def _overlaps(report: RuleReport, active: ActiveRules, *, external: bool) -> Sequence[Finding]:
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
