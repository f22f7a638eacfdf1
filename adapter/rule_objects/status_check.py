"""Check one rule of an object against the live Prometheus and cluster.

The authors of objects are not trusted: a rule may find every series, or have a query that takes minutes. So a check has
a time limit, and the number of its series is limited. Its queries have the rule's destination, so the restrictions of
its namespace hold for them, too.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from adapter.catalog.catalog import Catalog, SeriesSource
from adapter.deadlines import NO_DEADLINE, Deadline
from adapter.diagnosis.check import check_rule
from adapter.diagnosis.lint import lint
from adapter.diagnosis.object_findings import object_findings
from adapter.diagnosis.probe import Probe
from adapter.diagnosis.report import Finding, RuleReport
from adapter.metrics.objects import ObjectNames
from adapter.planning.vector_cache import InstantQueries
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Scalar, Series, Vector
from adapter.rule_objects.status import QueryRecord, Verdict, verdict_of
from adapter.rules import AnyRule, RulesFile
from kube.api.client import KubeError
from kube.api.mapping import ResourceLookup
from kube.api.status import StatusError, service_unavailable

_SECONDS: Final = 20.0
_QUERY_SECONDS: Final = 5.0
_MAX_SERIES: Final = 1_000
_NO_API_SERVER: Final = "the API server, which knows the resources, does not respond"


class Prometheus(SeriesSource, InstantQueries, Protocol):
    """The Prometheus servers; see PrometheusServers."""


class RuleChecker:
    """Checks rules; see `check`.

    Args:
        prometheus: the servers.
        lookup: the cluster's resources.
        objects: the cluster's objects.
        max_age: how old a series may be, in seconds, unless the rule has its own maxAge.
        seconds: the time limit of a check.
        query_seconds: the time limit of one query.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        lookup: ResourceLookup,
        objects: ObjectNames,
        *,
        max_age: float,
        seconds: float = _SECONDS,
        query_seconds: float = _QUERY_SECONDS,
    ) -> None:
        self._prometheus = prometheus
        self._lookup = lookup
        self._objects = objects
        self._max_age = max_age
        self._seconds = seconds
        self._query_seconds = query_seconds

    async def check(self, rule: AnyRule) -> Verdict:
        """List the rule's series, query an example value, and return the verdict. It does not raise."""
        record = QueryRecord()
        try:
            report, findings = await self._report(rule, record)
        except TimeoutError:
            return Verdict(ready=None, reason="PrometheusUnavailable", message=self._too_slow)
        except (KubeError, StatusError):
            return Verdict(ready=None, reason="APIServerUnavailable", message=_NO_API_SERVER)
        return verdict_of(rule, report, findings, record)

    async def report(self, rule: AnyRule) -> tuple[RuleReport, tuple[Finding, ...]]:
        """Return the rule's series, metrics and an example value, and the findings.

        Raises:
            StatusError: 503, the API server or Prometheus did not respond in time.
        """
        try:
            return await self._report(rule, QueryRecord())
        except TimeoutError as error:
            raise service_unavailable(self._too_slow) from error
        except KubeError as error:
            raise service_unavailable(_NO_API_SERVER) from error

    async def _report(self, rule: AnyRule, record: QueryRecord) -> tuple[RuleReport, tuple[Finding, ...]]:
        recorder = _Recorder(self._prometheus, record)
        rules = RulesFile(external=(rule,)) if rule.external else RulesFile(custom=(rule,))
        catalog = Catalog(rules, recorder, self._lookup, relist_interval=0.0, max_age=self._max_age, logs=False)
        probe = Probe(
            catalog,
            recorder,
            self._objects,
            self._lookup,
            seconds=self._query_seconds,
            logs=False,
            existing=self._prometheus,
        )
        async with asyncio.timeout(self._seconds):
            await catalog.relist()
            found = await lint(rules, self._lookup, knows_cluster=True)
            report, more = await check_rule(catalog, rule, probe, examples=1)
        known = {(one.code, one.where) for one in found}
        more = tuple(one for one in more if (one.code, one.where) not in known)
        return report, object_findings(rule, (*found, *more))

    @property
    def _too_slow(self) -> str:
        return f"there was no result within {self._seconds:g} s: a query is too expensive, or Prometheus is slow"


class _Recorder:
    """Passes requests on, and records their results; leaves out series beyond the limit."""

    def __init__(self, prometheus: Prometheus, record: QueryRecord) -> None:
        self._prometheus = prometheus
        self.record = record

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """See PrometheusServers.series."""
        try:
            found = await self._prometheus.series(selector, start=start, end=end, destination=destination)
        except PrometheusError as error:
            self.record.error = error
            raise
        self.record.series = len(found)
        return found[:_MAX_SERIES]

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector | Scalar:
        """See PrometheusServers.instant."""
        try:
            result = await self._prometheus.instant(query, deadline=deadline, destination=destination)
        except PrometheusError as error:
            self.record.error = error
            raise
        count = len(result.samples) if isinstance(result, Vector) else 1
        self.record.samples = max(count, self.record.samples or 0)  # the second query of an activation finds fewer
        self.record.seconds = result.seconds
        return result
