"""What the pages read, at each request, from the adapter that runs in this process, and reports about its rules.

Open pages request reports again and again, and each costs time and queries. So a report of `check` or `explain` is made
once for all pages that want it, it is valid for some seconds, and few are made at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, cast

from cachetools import TTLCache

from adapter.diagnosis.check import check_rule, paused_findings, resource_reports, unknown
from adapter.diagnosis.checker import CheckError, RuleChecker
from adapter.diagnosis.explain import Target
from adapter.diagnosis.lint import in_order, object_findings
from adapter.diagnosis.probe import Selection
from adapter.diagnosis.report import Finding, RuleReport
from adapter.prometheus import PrometheusOptions
from adapter.rules import AnyRule
from adapter.rules.objects import RuleObject
from adapter.serving.reload import RulesReloader
from adapter.serving.rule_sets import RuleSet, RuleSets, Shared
from kube.aio.tasks import SingleFlight
from kube.api.status import service_unavailable
from kube.web.explanation import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The adapter's state."""

    rule_sets: RuleSets
    """Have the active rules, and what all versions of the rules share."""
    rules_file: RulesReloader
    """The rules file."""
    default_server: PrometheusOptions
    """The Prometheus of --prometheus-url."""
    rule_checker: RuleChecker
    """Checks rules of objects, and those that are tried."""
    clock: Callable[[], float] = time.time
    """Returns seconds since the epoch."""

    @property
    def active(self) -> RuleSet:
        """The active rules."""
        return self.rule_sets.current

    @property
    def shared(self) -> Shared:
        """What all versions of the rules share."""
        return self.rule_sets.shared


_T = TypeVar("_T")
_Version: TypeAlias = tuple[str, Hashable]
"""The digest of the rules file, and the version of its catalog."""

_EXAMPLES: Final = 3  # of each rule
_AT_ONCE: Final = 2
_VALID_SECONDS: Final = 10.0
_CACHED: Final = 16


class Reports:
    """Makes reports. `clock` is monotonic, in seconds."""

    def __init__(self, sources: Sources, *, clock: Callable[[], float]) -> None:
        self._sources = sources
        self._cached: TTLCache[Hashable, object] = TTLCache(_CACHED, _VALID_SECONDS, timer=clock)
        self._flights: SingleFlight[Hashable, object] = SingleFlight()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        # The findings of the last version, with the version.
        self._findings: tuple[_Version | None, tuple[Finding, ...]] = (None, ())
        self._checks: SingleFlight[_Version, None] = SingleFlight(goes_on=True)

    async def findings(self, *, within: float | None = None) -> tuple[Finding, ...] | None:
        """Return what `check` finds in all rules without querying values, in the order of the file.

        They are made again when the file, the series or the failures of lists have changed. If that takes longer than
        `within` seconds, they are those before the change of series, or None if the file has changed.

        Raises:
            StatusError: 503, the API server cannot list its resources.
        """
        active = self._sources.active
        version: _Version = active.rules.digest, active.catalog.version  # all that the findings depend on
        if self._findings[0] != version:
            try:
                async with asyncio.timeout(within):
                    await self._checks.do(version, lambda: self._check(version, active))
            except TimeoutError:
                if self._findings[0] is None or self._findings[0][0] != version[0]:
                    return None
        paused = paused_findings(active.coalescer.paused())
        return in_order((*self._findings[1], *paused), active.rules) if paused else self._findings[1]

    async def rule(self, rule: AnyRule) -> tuple[RuleReport, tuple[Finding, ...]]:
        """Return a rule's series, metrics and example values, and all findings about it."""
        active = self._sources.active
        key, probe = (active.rules.digest, rule.key), active.debug.probe
        report, online = await self._valid(key, lambda: check_rule(active.catalog, rule, probe, examples=_EXAMPLES))
        found = [finding for finding in await self.findings() or () if finding.rule == rule.key]
        return report, (*found, *unknown(online, found))

    async def object_rule(self, one: RuleObject, rule: AnyRule) -> tuple[RuleReport, tuple[Finding, ...]]:
        """Return what `check` says about a rule of an object.

        Raises:
            StatusError: 503, the API server or Prometheus did not respond in time.
        """

        async def checked() -> tuple[RuleReport, tuple[Finding, ...]]:
            """Check the rule."""
            try:
                found = await self._sources.rule_checker.check(rule)
            except CheckError as error:
                raise service_unavailable(str(error)) from error
            return found.report, object_findings(rule, found.findings)

        return await self._valid((one.uid, one.generation, rule.key), checked)

    async def resource_rules(self) -> list[RuleReport]:
        """Return the queries of resourceRules, with an example of each."""
        active = self._sources.active
        key = active.rules.digest, "resourceRules"
        return await self._valid(key, lambda: resource_reports(active.rules.resource, active.debug.probe))

    async def explanation(self, target: Target, selection: Selection) -> Explanation:
        """Explain a metric.

        Raises:
            StatusError: 503, the API server cannot list its resources.
        """
        active = self._sources.active
        key = active.rules.digest, target, str(selection)
        return await self._valid(key, lambda: active.debug.explain(target, selection))

    async def _check(self, version: _Version, active: RuleSet) -> None:
        async with self._slots:
            report = await active.debug.check(examples=0)
        self._findings = version, report.findings

    async def _valid(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return a report that was made in the last seconds, or make it while few others are made."""

        async def limited() -> object:
            """Make the report."""
            async with self._slots:
                return await make()

        found = self._cached.get(key)
        if found is None:
            found = self._cached[key] = await self._flights.do(key, limited)
            # Reports can be large, and a page may not be requested again.
            asyncio.get_running_loop().call_later(2 * _VALID_SECONDS, self._cached.expire)
        return cast("_T", found)
