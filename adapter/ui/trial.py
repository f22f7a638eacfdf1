"""Check a rule that is not in the rules file, against the live Prometheus and cluster.

A rule that is tried is not trusted: it may find every series, or have a query that takes minutes. So one rule is tried
at a time, within a time limit, and the number of its series is limited. It has a catalog of its own; the active rules
are only read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import Source
from adapter.diagnosis.check import check
from adapter.diagnosis.probe import Probe
from adapter.diagnosis.report import Finding, MetricReport, RuleReport, warning
from adapter.prometheus import DEFAULT_DESTINATION, Destination, Series
from adapter.rules import RulesError, parse_rule
from adapter.ui.sources import ActiveRules, Prometheus, Sources
from kube.api.client import KubeError
from kube.api.mapping import GroupResource
from kube.api.status import StatusError

MAX_CHARACTERS: Final = 8_000
"""The longest text of a rule; with escapes it still fits into a URL."""

SECTIONS: Final = ("rules", "externalRules")
"""The sections of a rules file that a rule can be in."""

_SOURCE: Final = "the rule"
_SECONDS: Final = 20.0
_QUERY_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 5.0
_MAX_SERIES: Final = 1_000
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
    """Tries rules, one at a time.

    Args:
        sources: the adapter's state.
        seconds: the time limit.
        query_seconds: that of one query.
        wait_seconds: how long to wait for another trial to end.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        seconds: float = _SECONDS,
        query_seconds: float = _QUERY_SECONDS,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> None:
        self._sources = sources
        self._seconds = seconds
        self._query_seconds = query_seconds
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
            async with asyncio.timeout(self._seconds):
                return await self._check(text, section)
        except TimeoutError:
            raise TrialError(
                f"there was no result within {self._seconds:g} s: a query is too expensive, or Prometheus is slow"
            ) from None
        except RulesError as error:
            raise TrialError(_OWN_KEY.sub("", str(error).removeprefix(f"{_SOURCE}: "))) from error
        except (KubeError, StatusError) as error:
            raise TrialError("the API server, which knows the resources, does not respond") from error
        finally:
            self._lock.release()

    async def _check(self, text: str, section: str) -> Trial:
        sources, active = self._sources, self._sources.active()
        rules = await asyncio.to_thread(
            parse_rule, text, section=section, servers=active.rules.prometheus_servers, source=_SOURCE
        )
        limited = _LimitedSeries(sources.prometheus)
        catalog = Catalog(
            rules,
            limited,
            sources.lookup,
            relist_interval=sources.relist_interval,
            max_age=sources.max_age,
            logs=False,
        )
        await catalog.relist()
        probe = Probe(
            catalog, sources.prometheus, sources.objects, sources.lookup, seconds=self._query_seconds, logs=False
        )
        report = await check(catalog, sources.lookup, probe, knows_cluster=True, examples=_EXAMPLES)
        [rule] = report.rules
        overlaps = _overlaps(rule, active, external=bool(rules.external))
        findings = (*map(_without_key, report.findings), *overlaps)
        return Trial(_without_own_key(rule), findings, limited.left_out)


class _LimitedSeries:
    """Lists series, and leaves out those beyond the limit."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.left_out = 0

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        found = await self._prometheus.series(selector, start=start, end=end, destination=destination)
        self.left_out = max(len(found) - _MAX_SERIES, 0)
        return found[:_MAX_SERIES]


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
    source: Source | None
    for metric in report.metrics:
        if external:
            source = active.catalog.find_external(metric.metric)
        else:
            resource, _, name = metric.metric.partition("/")
            plural, _, group = resource.partition(".")
            source = active.catalog.find_custom(GroupResource(group, plural), name)
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
