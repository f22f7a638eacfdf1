"""Which metrics there are, kept up to date in memory.

Discovery and every request read the catalog without waiting; only its own tasks talk to Prometheus. Each distinct
seriesQuery is listed by a task of its own, so that one that fails or hangs delays no other: its rules keep what they
last had, and it is tried again soon. (prometheus-adapter lists all or nothing: one bad rule there stops discovery.)

Where two rules make the same metric of the same resource, the later rule in the file wins, as it does there, but every
time and with a warning. A short rule, which names its metric, wins over those that find theirs.

When the rules change, those that are as before keep their lists, whatever their place in the file is now, and
everything is listed anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from adapter.catalog.inventory import (
    CustomMetricInfo,
    CustomSource,
    ExternalSource,
    custom_query_source,
    custom_sources,
    external_query_source,
    external_sources,
)
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Series
from adapter.rules import AnyRule, QueryRule, Rule, RulesFile
from kube.backoff import Backoff
from kube.client import KubeError
from kube.mapping import GroupResource, NoMatchError, ResourceLookup
from kube.status import StatusError, service_unavailable

__all__ = ["Catalog", "CustomMetricInfo", "RuleListing", "SeriesSource"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T", CustomSource, ExternalSource)

_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0


class SeriesSource(Protocol):
    """Where series are listed; see PrometheusServers.series."""

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """The series that a selector finds between two times, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class RuleListing:
    """What is known of a rule's series: those of its last good list (None before one), and why a later list failed."""

    series: tuple[Series, ...] | None
    failure: str


@dataclass(frozen=True, slots=True)
class _Listing:
    """What is asked for at once, for all rules that want the same; a selector of "" asks for nothing."""

    selector: str
    destination: Destination
    max_age: float


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
        mapper: ResourceLookup,
        *,
        relist_interval: float,
        max_age: float,
        telemetry: RuleTelemetry | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is asked before `run`.

        Args:
            rules: the rules.
            prometheus: where the series are.
            mapper: which resources there are.
            relist_interval: the seconds between two listings of a seriesQuery.
            max_age: a series counts if it had a sample within these last seconds, unless its rule says otherwise.
            telemetry: is told how the listings go.
            clock: the time, in seconds since the epoch.
        """
        self._prometheus = prometheus
        self._mapper = mapper
        self._relist_interval = relist_interval
        self._max_age = max_age
        self._telemetry = telemetry
        self._clock = clock
        self._changed = asyncio.Event()
        # What each rule last made, and why a rule's last listing failed, by the rules' keys.
        self._custom: dict[str, tuple[CustomSource, ...]] = {}
        self._external: dict[str, tuple[ExternalSource, ...]] = {}
        self._failures: dict[str, str] = {}
        self._found: dict[str, tuple[Series, ...]] = {}
        self._remarked: set[str] = set()
        self._snapshot = _Snapshot({}, {}, (), ())
        self._loaded = asyncio.Event()
        self._rules = rules
        self._listings = self._grouped(rules)
        if not self._listings:
            self._loaded.set()

    def take_up(self, rules: RulesFile) -> None:
        """Go on with other rules. Those that are as before keep their lists; `run` lists everything anew."""
        before = self._rules
        self._custom = _carried_over(self._custom, before.custom_rules, rules.custom_rules)
        self._external = _carried_over(self._external, before.external_rules, rules.external_rules)
        self._failures.clear()
        self._found.clear()
        self._remarked.clear()
        self._rules = rules
        self._listings = self._grouped(rules)
        self._rebuild()
        self._changed.set()

    @property
    def rules(self) -> RulesFile:
        """The rules that are in force."""
        return self._rules

    def listing(self, rule: AnyRule) -> RuleListing:
        """What is known of the series of one of these rules."""
        return RuleListing(self._found.get(rule.key), self._failures.get(rule.key, ""))

    def max_age(self, rule: AnyRule) -> float:
        """How old the series of a rule may be, in seconds."""
        return (rule.max_age if isinstance(rule, Rule) else None) or self._max_age

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
        alone does not hold back the others: it is in the log. Once ready is ready for good, whatever the rules become.
        """
        return None if self._loaded.is_set() else self._problem()

    async def wait_loaded(self) -> None:
        """Return when it is, or has been, ready."""
        await self._loaded.wait()

    def require_loaded(self) -> None:
        """Refuse to say that a metric is not there while no list has come yet.

        Raises:
            StatusError: 503, with the reason.
        """
        problem = self._problem()
        if problem is not None:
            raise service_unavailable(f"it is not known yet which metrics there are: {problem}")

    def _problem(self) -> str | None:
        if not self._listings or (self._all_tried() and (self._custom or self._external)):
            return None
        if self._failures:
            key, why = next(iter(self._failures.items()))
            return f"no good relist yet of {key}: {why}"
        return "no good relist yet: the first one is under way"

    async def run(self) -> None:
        """Keep the catalog up to date, until cancelled."""
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as tasks:
                keeping = [
                    tasks.create_task(self._keep_listed(listing), name=f"relist {listing.selector}")
                    for listing in self._listings
                ]
                await self._changed.wait()
                for task in keeping:
                    task.cancel()

    async def relist(self) -> None:
        """List everything once, now."""
        async with asyncio.TaskGroup() as tasks:
            for listing in self._listings:
                tasks.create_task(self._list(listing), name=f"relist {listing.selector}")

    def _grouped(self, rules: RulesFile) -> dict[_Listing, list[AnyRule]]:
        listings: dict[_Listing, list[AnyRule]] = {}
        for rule in rules.all_rules:
            if isinstance(rule, QueryRule):
                listing = _Listing("", DEFAULT_DESTINATION, 0.0)
            else:
                listing = _Listing(rule.series_query, rule.destination, rule.max_age or self._max_age)
            listings.setdefault(listing, []).append(rule)
        return listings

    async def _keep_listed(self, listing: _Listing) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, min(_LAST_RETRY_SECONDS, max(self._relist_interval, 1.0)))
        while True:
            if await self._list(listing):
                backoff.reset()
                await asyncio.sleep(self._relist_interval)
            else:
                await asyncio.sleep(backoff.next())

    async def _list(self, listing: _Listing) -> bool:
        """List one seriesQuery for all rules that have it; whether that went well."""
        file, rules = self._rules, self._listings[listing]
        found: tuple[Series, ...] = ()
        end = self._clock()
        if listing.selector:
            try:
                found = await self._prometheus.series(
                    listing.selector, start=end - listing.max_age, end=end, destination=listing.destination
                )
            except PrometheusError as error:
                self._failed(rules, str(error))
                return False
        results = [await self._take(rule, found, file) for rule in rules]
        if file is self._rules:
            self._rebuild()
        return all(results)

    async def _take(self, rule: AnyRule, found: tuple[Series, ...], file: RulesFile) -> bool:
        """Let a rule of a file make its metrics of the series that were found; whether that went well."""
        custom: tuple[CustomSource, ...] = ()
        external: tuple[ExternalSource, ...] = ()
        is_custom = rule in file.custom_rules
        try:
            if is_custom:
                custom = await self._custom_made(rule, found)
            else:
                external = await self._external_made(rule, found)
        except (KubeError, StatusError) as error:
            self._failed([rule], f"the resources of the cluster cannot be listed: {error}")
            return False
        if file is not self._rules:
            return False  # the rules have changed meanwhile, and their keys mean others
        if is_custom:
            self._custom[rule.key] = custom
            self._remark_unusable(rule, custom)
        else:
            self._external[rule.key] = external
        self._found[rule.key] = found
        self._succeeded(rule)
        if self._telemetry is not None:
            metrics = len(custom) + len(external)
            self._telemetry.listed(rule.key, series=len(found), metrics=metrics, now=self._clock())
        return True

    async def _external_made(self, rule: AnyRule, found: tuple[Series, ...]) -> tuple[ExternalSource, ...]:
        if isinstance(rule, QueryRule):
            return (external_query_source(rule),)
        return await external_sources(rule, found, self._mapper)

    async def _custom_made(self, rule: AnyRule, found: tuple[Series, ...]) -> tuple[CustomSource, ...]:
        if not isinstance(rule, QueryRule):
            return await custom_sources(rule, found, self._mapper)
        try:
            return (await custom_query_source(rule, self._mapper),)
        except NoMatchError:
            self._remark(f"no resource for {rule.key}", f"{rule}: the cluster has no resource {rule.resource}")
            return ()

    def _rebuild(self) -> None:
        custom: dict[tuple[GroupResource, str], CustomSource] = {}
        for source in _in_order(self._rules.custom_rules, self._custom):
            key = (source.info.resource, source.info.metric)
            self._remark_overlap(str(source.info), custom.get(key), source)
            custom[key] = source
        external: dict[str, ExternalSource] = {}
        for found in _in_order(self._rules.external_rules, self._external):
            self._remark_overlap(found.metric, external.get(found.metric), found)
            external[found.metric] = found
        infos = sorted((source.info for source in custom.values()), key=lambda info: (info.metric, info.resource))
        self._snapshot = _Snapshot(custom, external, tuple(infos), tuple(sorted(external)))
        if self._problem() is None:
            self._loaded.set()

    def _all_tried(self) -> bool:
        return all(
            rule.key in self._failures or rule.key in self._custom or rule.key in self._external
            for rule in self._rules.all_rules
        )

    def _failed(self, rules: Iterable[AnyRule], why: str) -> None:
        """Note a failure. It is logged once for all the rules that have it."""
        for rule in rules:
            news = why not in self._failures.values()
            self._failures[rule.key] = why
            if self._telemetry is not None:
                self._telemetry.not_listed(rule.key)
            _log.log(
                logging.WARNING if news else logging.DEBUG,
                "%s cannot be listed, and keeps its last list: %s",
                rule,
                why,
            )

    def _succeeded(self, rule: AnyRule) -> None:
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

    def _remark_unusable(self, rule: AnyRule, sources: Iterable[CustomSource]) -> None:
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


def _in_order(rules: Iterable[AnyRule], made: Mapping[str, tuple[_T, ...]]) -> Iterable[_T]:
    """What the rules made, in the order of the file."""
    for rule in rules:
        yield from made.get(rule.key, ())


def _carried_over(
    made: Mapping[str, tuple[_T, ...]], before: Iterable[AnyRule], after: Iterable[AnyRule]
) -> dict[str, tuple[_T, ...]]:
    """What the rules made that are as they were, under the keys that they have now."""
    by_digest = {rule.digest: made[rule.key] for rule in before if rule.key in made}
    return {
        rule.key: tuple(replace(source, rule=rule) for source in by_digest[rule.digest])
        for rule in after
        if rule.digest in by_digest
    }
