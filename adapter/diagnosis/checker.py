"""Check one rule that is not trusted against the live Prometheus and cluster.

Authors of objects, and of rules that are tried on a page, are not trusted: a rule may find every series, or have a
query that takes minutes. So a check has a time limit, and the number of its series is limited. Its queries have the
rule's destination, so the restrictions of its namespace hold for them, too. It has a catalog of its own: the active
rules, the metrics and the log are not affected.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final, Protocol

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings, SeriesSource
from adapter.diagnosis.check import check_rule, unknown
from adapter.diagnosis.lint import in_order, lint
from adapter.diagnosis.probe import Probe
from adapter.diagnosis.report import Finding, RuleReport
from adapter.metrics.objects import ObjectNames
from adapter.planning.vectors import InstantQueries
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Series, Vector
from adapter.rules import AnyRule, RulesFile
from kube.api.client import KubeError
from kube.api.mapping import ResourceLookup
from kube.api.status import StatusError

_SECONDS: Final = 20.0
_QUERY_SECONDS: Final = 5.0
_MAX_SERIES: Final = 1_000


class Prometheus(SeriesSource, InstantQueries, Protocol):
    """The Prometheus servers; see PrometheusServers."""


class CheckError(Exception):
    """There is no result. `reason` is that of a condition: PrometheusUnavailable or APIServerUnavailable."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class QueryRecord:
    """Passes the requests of one check on, and records their results; leaves out series beyond the limit."""

    prometheus: Prometheus
    """The servers."""
    names: int | None = None
    """How many names of series the last list had, with those beyond the limit."""
    samples: int | None = None
    """How many samples the result of the last query had."""
    seconds: float | None = None
    """The duration of that query."""
    error: PrometheusError | None = None
    """The last error."""

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """Return the series up to the limit."""
        try:
            found = await self.prometheus.series(selector, start=start, end=end, destination=destination)
        except PrometheusError as error:
            self.error = error
            raise
        self.names = len(found)
        return found[:_MAX_SERIES]

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Return the result of a query."""
        try:
            result = await self.prometheus.instant(query, deadline=deadline, destination=destination)
        except PrometheusError as error:
            self.error = error
            raise
        self.samples = max(len(result.samples), self.samples or 0)  # the second query of an activation finds fewer
        self.seconds = result.seconds
        return result


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule's series, metrics and example values, the findings about it, and the requests that were sent for it."""

    report: RuleReport
    findings: tuple[Finding, ...]
    record: QueryRecord

    @property
    def series_left_out(self) -> int:
        """How many names of series were not looked at."""
        return max((self.record.names or 0) - _MAX_SERIES, 0)


class RuleChecker:
    """Checks rules; see `check`.

    Args:
        prometheus: the servers.
        lookup: the cluster's resources.
        objects: the cluster's objects.
        max_age: how old a series may be, in seconds, unless the rule has its own maxAge.
        seconds: the time limit of a check.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        lookup: ResourceLookup,
        objects: ObjectNames,
        *,
        max_age: float,
        seconds: float = _SECONDS,
    ) -> None:
        self._prometheus = prometheus
        self._lookup = lookup
        self._objects = objects
        self._max_age = max_age
        self._seconds = seconds

    async def check(self, rule: AnyRule, *, examples: int = 1, ages: bool = True) -> CheckedRule:
        """List the rule's series, query the values of some metrics and with `ages` how old they are; see `check`.

        Raises:
            CheckError: the API server or Prometheus did not respond in time.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._check(rule, examples, ages)
        except TimeoutError as error:
            message = f"there was no result within {self._seconds:g} s: a query is too expensive, or Prometheus is slow"
            raise CheckError("PrometheusUnavailable", message) from error
        except (KubeError, StatusError) as error:
            message = "the API server, which knows the resources, does not respond"
            raise CheckError("APIServerUnavailable", message) from error

    async def _check(self, rule: AnyRule, examples: int, ages: bool) -> CheckedRule:
        record = QueryRecord(self._prometheus)
        rules = RulesFile(external=(rule,)) if rule.external else RulesFile(custom=(rule,))
        catalog = Catalog(rules, Listings(record, self._lookup, max_age=self._max_age), self._lookup, logs=False)
        probe = Probe(
            catalog,
            record,
            self._objects,
            self._lookup,
            seconds=_QUERY_SECONDS,
            existing=self._prometheus,
            ages=ages,
        )
        await catalog.relist()
        found = await lint(rules, self._lookup, knows_cluster=True)
        report, more = await check_rule(catalog, rule, probe, examples=examples)
        return CheckedRule(report, in_order((*more, *unknown(found, more)), rules), record)
