"""Which metrics there are, kept up to date in memory.

Discovery and every request read the catalog without waiting; only its own tasks talk to Prometheus. Each distinct
seriesQuery is listed by a task of its own, so that one that fails or hangs delays no other: its rules keep what they
last had, and it is tried again soon. (prometheus-adapter lists all or nothing: one bad rule there stops discovery.)

Where two rules make the same metric of the same resource, the later rule in the file wins, as it does there, but every
time and with a warning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from adapter.inventory import CustomMetricInfo, CustomSource, ExternalSource, custom_sources, external_sources
from adapter.prometheus import PrometheusError, Series
from adapter.rules import Rule, RulesFile
from kube.backoff import Backoff
from kube.client import KubeError
from kube.mapping import GroupResource, RestMapper
from kube.status import StatusError, service_unavailable

__all__ = ["Catalog", "CustomMetricInfo", "SeriesSource"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0


class SeriesSource(Protocol):
    """Where series are listed; see PrometheusClient.series."""

    async def series(self, selector: str, *, start: float, end: float) -> tuple[Series, ...]:
        """The series that a selector finds between two times, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All metrics at one moment. Replaced, never changed."""

    custom: Mapping[tuple[GroupResource, str], CustomSource]
    external: Mapping[str, ExternalSource]
    custom_infos: tuple[CustomMetricInfo, ...]
    external_names: tuple[str, ...]


class Catalog:
    """The metrics that the rules make of the series in Prometheus."""

    def __init__(
        self,
        rules: RulesFile,
        prometheus: SeriesSource,
        mapper: RestMapper,
        *,
        relist_interval: float,
        max_age: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is asked before `run`.

        Args:
            rules: the rules.
            prometheus: where the series are.
            mapper: which resources there are.
            relist_interval: the seconds between two listings of a seriesQuery.
            max_age: a series counts if it had a sample within these last seconds.
            clock: the time, in seconds since the epoch.
        """
        self._rules = rules
        self._prometheus = prometheus
        self._mapper = mapper
        self._relist_interval = relist_interval
        self._max_age = max_age
        self._clock = clock
        self._by_query: dict[str, list[Rule]] = {}
        for rule in (*rules.custom, *rules.external):
            self._by_query.setdefault(rule.series_query, []).append(rule)
        self._custom_keys = frozenset(rule.key for rule in rules.custom)
        # What each rule last made, and why a rule's last listing failed, by the rules' keys.
        self._custom: dict[str, tuple[CustomSource, ...]] = {}
        self._external: dict[str, tuple[ExternalSource, ...]] = {}
        self._failures: dict[str, str] = {}
        self._remarked: set[str] = set()
        self._snapshot = _Snapshot({}, {}, (), ())

    @property
    def custom(self) -> tuple[CustomMetricInfo, ...]:
        """The custom metrics that can be asked for now, sorted."""
        return self._snapshot.custom_infos

    @property
    def external(self) -> tuple[str, ...]:
        """The external metrics that can be asked for now, sorted."""
        return self._snapshot.external_names

    def find_custom(self, resource: GroupResource, metric: str) -> CustomSource | None:
        """Where a metric of a resource (in the plural) comes from; None if there is no such metric."""
        return self._snapshot.custom.get((resource, metric))

    def find_external(self, metric: str) -> ExternalSource | None:
        """Where an external metric comes from; None if there is no such metric."""
        return self._snapshot.external.get(metric)

    def readiness(self) -> str | None:
        """None when ready; else why not.

        Ready means that every rule has been listed once, and one of them with success. A rule that goes on failing
        alone does not hold back the others: it is in the log.
        """
        if not self._by_query or (self._all_tried() and (self._custom or self._external)):
            return None
        if self._failures:
            key, why = next(iter(self._failures.items()))
            return f"no good relist yet of {key}: {why}"
        return "no good relist yet: the first one is under way"

    def require_loaded(self) -> None:
        """Refuse to say that a metric is not there while no list has come yet.

        Raises:
            StatusError: 503, with the reason that readiness gives.
        """
        problem = self.readiness()
        if problem is not None:
            raise service_unavailable(f"it is not known yet which metrics there are: {problem}")

    async def run(self) -> None:
        """Keep the catalog up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for query in self._by_query:
                tasks.create_task(self._keep_listed(query), name=f"relist {query}")

    async def relist(self) -> None:
        """List everything once, now."""
        async with asyncio.TaskGroup() as tasks:
            for query in self._by_query:
                tasks.create_task(self._list(query), name=f"relist {query}")

    async def _keep_listed(self, query: str) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, min(_LAST_RETRY_SECONDS, max(self._relist_interval, 1.0)))
        while True:
            if await self._list(query):
                backoff.reset()
                await asyncio.sleep(self._relist_interval)
            else:
                await asyncio.sleep(backoff.next())

    async def _list(self, query: str) -> bool:
        """List one seriesQuery for all rules that have it; whether that went well."""
        rules = self._by_query[query]
        end = self._clock()
        try:
            found = await self._prometheus.series(query, start=end - self._max_age, end=end)
        except PrometheusError as error:
            self._failed(rules, str(error))
            return False
        results = [await self._take(rule, found) for rule in rules]
        self._rebuild()
        return all(results)

    async def _take(self, rule: Rule, found: tuple[Series, ...]) -> bool:
        """Let a rule make its metrics of the series that were found; whether that went well."""
        try:
            if rule.key in self._custom_keys:
                self._custom[rule.key] = await custom_sources(rule, found, self._mapper)
                self._remark_unusable(rule, self._custom[rule.key])
            else:
                self._external[rule.key] = await external_sources(rule, found, self._mapper)
        except (KubeError, StatusError) as error:
            self._failed([rule], f"the resources of the cluster cannot be listed: {error}")
            return False
        self._succeeded(rule)
        return True

    def _rebuild(self) -> None:
        custom: dict[tuple[GroupResource, str], CustomSource] = {}
        for source in _in_order(self._rules.custom, self._custom):
            key = (source.info.resource, source.info.metric)
            self._remark_overlap(str(source.info), custom.get(key), source)
            custom[key] = source
        external: dict[str, ExternalSource] = {}
        for found in _in_order(self._rules.external, self._external):
            self._remark_overlap(found.metric, external.get(found.metric), found)
            external[found.metric] = found
        infos = sorted((source.info for source in custom.values()), key=lambda info: (info.metric, info.resource))
        self._snapshot = _Snapshot(custom, external, tuple(infos), tuple(sorted(external)))

    def _all_tried(self) -> bool:
        return all(
            rule.key in self._failures or rule.key in self._custom or rule.key in self._external
            for rules in self._by_query.values()
            for rule in rules
        )

    def _failed(self, rules: Iterable[Rule], why: str) -> None:
        """Note a failure. It is logged once for all the rules that have it."""
        for rule in rules:
            news = why not in self._failures.values()
            self._failures[rule.key] = why
            _log.log(
                logging.WARNING if news else logging.DEBUG,
                "%s cannot be listed, and keeps its last list: %s",
                rule,
                why,
            )

    def _succeeded(self, rule: Rule) -> None:
        why = self._failures.pop(rule.key, None)
        if why is not None and why not in self._failures.values():
            _log.info("%s is listed again", rule)

    def _remark_overlap(
        self, name: str, before: CustomSource | ExternalSource | None, after: CustomSource | ExternalSource
    ) -> None:
        if before is not None:
            self._remark(
                f"overlap of {before.rule.key} and {after.rule.key}",
                f"{name} is made twice: of {after.series} by {after.rule}, which wins,"
                f" and of {before.series} by {before.rule}",
            )

    def _remark_unusable(self, rule: Rule, sources: Iterable[CustomSource]) -> None:
        lost = next((source for source in sources if source.info.namespaced and not source.namespace_label), None)
        if lost is not None:
            self._remark(
                f"no namespaces for {rule.key}",
                f"{rule}: {lost.info} can never be found, because no label means namespaces;"
                " add one to resources.overrides",
            )

    def _remark(self, subject: str, text: str) -> None:
        """Warn of something, once for a subject: of a hundred metrics with the same trouble, one is named."""
        if subject not in self._remarked:
            self._remarked.add(subject)
            _log.warning("%s", text)


def _in_order(rules: Iterable[Rule], made: Mapping[str, tuple[_T, ...]]) -> Iterable[_T]:
    """What the rules made, in the order of the file."""
    for rule in rules:
        yield from made.get(rule.key, ())
