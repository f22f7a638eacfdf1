"""The metrics that the rules of one file make, kept up to date in memory.

Discovery and requests read the catalog without waiting; only its own tasks query Prometheus. Each distinct seriesQuery
is listed by its own task, so one that fails or hangs delays no other: its rules keep their last series, and it is
retried soon. (prometheus-adapter lists all or nothing: one bad rule there stops discovery.)

Where two rules make the same metric of the same resource, the later rule in the file wins, as in prometheus-adapter,
but every time and with a warning. A short rule, which names its metric, wins over rules that have a seriesQuery.

A catalog belongs to one version of the rules file. The catalog of the next version starts with the series that were
found for the same seriesQueries, so a reload does not empty discovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.catalog.snapshot import RulePart, Snapshot, carried_part, part_of, snapshot_of
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Series
from adapter.rules import AnyRule, QueryRule, Rule, RulesFile
from kube.api.client import KubeError
from kube.api.mapping import GroupResource, ResourceLookup
from kube.api.retries import Backoff
from kube.api.status import StatusError, service_unavailable

_log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0


class SeriesSource(Protocol):
    """Lists series; see PrometheusServers.series."""

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """Return the series that a selector finds between two times, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """One list of series for all rules with the same seriesQuery; a selector of "" lists nothing."""

    selector: str
    destination: Destination
    max_age: float


class Catalog:
    """The metrics that the rules of one file make of the series in Prometheus.

    Attributes:
        version: grows whenever the metrics, or the failures of lists, change.
    """

    def __init__(
        self,
        rules: RulesFile,
        prometheus: SeriesSource,
        mapper: ResourceLookup,
        *,
        relist_interval: float,
        max_age: float,
        telemetry: RuleTelemetry | None = None,
        logs: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """List nothing before `run`.

        Args:
            rules: the rules.
            prometheus: lists the series.
            mapper: knows the cluster's resources.
            relist_interval: seconds.
            max_age: seconds; series without a sample in this period are ignored, unless the rule has its own maxAge.
            telemetry: counts lists and failures.
            logs: log problems; False for rules that are only tried.
            clock: returns seconds since the epoch.
        """
        self._rules = rules
        self._prometheus = prometheus
        self._mapper = mapper
        self._relist_interval = relist_interval
        self._max_age = max_age
        self._telemetry = telemetry
        self._logs = logs
        self._clock = clock
        self._listings = self._grouped()
        # The metrics of each rule, and why a rule's last list failed, by the rules' keys.
        self._parts: dict[str, RulePart] = {}
        self._failures: dict[str, str] = {}
        self._listed_at: dict[str, float] = {}
        self.version = 0
        self._logged: set[str] = set()
        self._snapshot = Snapshot()
        self._building = asyncio.Lock()
        # Catalogs of later versions share `_loaded`.
        self._loaded = asyncio.Event()
        self._tried = asyncio.Event()
        self._set_events()

    @property
    def rules(self) -> RulesFile:
        """The rules."""
        return self._rules

    @property
    def snapshot(self) -> Snapshot:
        """All metrics at this moment."""
        return self._snapshot

    def part(self, rule: AnyRule) -> RulePart | None:
        """Return the series and metrics of a rule as of its last successful list; None before the first."""
        return self._parts.get(rule.key)

    def failure(self, rule: AnyRule) -> str:
        """Return why the last list of a rule failed; "" if it did not."""
        return self._failures.get(rule.key, "")

    def listed_at(self, rule: AnyRule) -> float | None:
        """Return when a rule was last listed with success, in seconds since the epoch; None: not yet."""
        return self._listed_at.get(rule.key)

    def max_age(self, rule: AnyRule) -> float:
        """Return how old the series of a rule may be, in seconds."""
        return (rule.max_age if isinstance(rule, Rule) else None) or self._max_age

    @property
    def custom(self) -> tuple[CustomMetricInfo, ...]:
        """The custom metrics, sorted."""
        return self._snapshot.custom_infos

    @property
    def custom_resources(self) -> frozenset[str]:
        """The resources that have custom metrics, as in requests."""
        return self._snapshot.custom_resources

    @property
    def external(self) -> tuple[str, ...]:
        """The external metrics, sorted."""
        return self._snapshot.external_names

    def find_custom(self, resource: GroupResource, metric: str) -> CustomSource | None:
        """Return the source of a metric of a resource (in the plural); None if there is no such metric."""
        return self._snapshot.custom.get((resource, metric))

    def find_external(self, metric: str) -> ExternalSource | None:
        """Return the source of an external metric; None if there is no such metric."""
        return self._snapshot.external.get(metric)

    def readiness(self) -> str | None:
        """Return None if ready, else the reason.

        Ready means that every rule has been listed once, and at least one of them successfully. Failed rules do not
        affect readiness; they are logged. Once ready, the catalog stays ready.
        """
        return None if self._loaded.is_set() else self._problem()

    async def wait_loaded(self) -> None:
        """Wait until it is, or has been, ready."""
        await self._loaded.wait()

    def require_loaded(self) -> None:
        """Raise before the first relist, when it is not known yet whether a metric exists.

        Raises:
            StatusError: 503, with the reason.
        """
        problem = self._problem()
        if problem is not None:
            raise service_unavailable(f"it is not known yet which metrics there are: {problem}")

    async def wait_tried(self) -> None:
        """Wait until every rule has been listed, with success or not."""
        await self._tried.wait()

    def _all_tried(self) -> bool:
        return all(rule.key in self._failures or rule.key in self._parts for rule in self._rules.all_rules)

    def _problem(self) -> str | None:
        if not self._listings or (self._all_tried() and self._parts):
            return None
        if self._failures:
            key, why = next(iter(self._failures.items()))
            return f"no good relist yet of {key}: {why}"
        return "no good relist yet: the first one is under way"

    async def carry_over(self, previous: Catalog) -> None:
        """Start with the series that another version's catalog has listed for the same seriesQueries."""
        if self._loaded.is_set():
            previous._loaded.set()
        self._loaded = previous._loaded
        known = {
            (listing, rule.external, rule.resources): part
            for listing, rules in previous._listings.items()
            for rule in rules
            if isinstance(rule, Rule) and (part := previous.part(rule)) is not None
        }
        series = {listing: part.series for (listing, _, _), part in known.items()}
        others: list[tuple[AnyRule, tuple[Series, ...]]] = []
        for listing, rule in [(listing, rule) for listing, rules in self._listings.items() for rule in rules]:
            part = known.get((listing, rule.external, rule.resources)) if isinstance(rule, Rule) else None
            if isinstance(rule, Rule) and part is not None:
                self._set_part(await carried_part(rule, part))
            elif not isinstance(rule, Rule) or listing in series:
                others.append((rule, series.get(listing, ())))
        await self._build()  # before the await: the API server may be down
        for rule, found in others:
            with contextlib.suppress(KubeError, StatusError):
                await self._update(rule, found)
        await self._build()

    async def run(self) -> None:
        """Keep the catalog up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for listing in self._listings:
                tasks.create_task(self._keep_listed(listing), name=f"relist {listing.selector}")

    async def relist(self) -> None:
        """List everything once, now."""
        async with asyncio.TaskGroup() as tasks:
            for listing in self._listings:
                tasks.create_task(self._list(listing), name=f"relist {listing.selector}")

    def _grouped(self) -> dict[_Listing, list[AnyRule]]:
        listings: dict[_Listing, list[AnyRule]] = {}
        for rule in self._rules.all_rules:
            if not isinstance(rule, Rule):
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
        """List one seriesQuery for all rules that have it; return whether all succeeded."""
        rules = self._listings[listing]
        found: tuple[Series, ...] = ()
        end = self._clock()
        if listing.selector:
            try:
                found = await self._prometheus.series(
                    listing.selector, start=end - listing.max_age, end=end, destination=listing.destination
                )
            except PrometheusError as error:
                self._record_failure(rules, str(error))
                return False
        well = True
        for rule in rules:
            try:
                await self._update(rule, found)
            except (KubeError, StatusError) as error:
                self._record_failure([rule], f"the resources of the cluster cannot be listed: {error}")
                well = False
            else:
                self._record_success(rule)
        await self._build()
        return well

    async def _update(self, rule: AnyRule, found: tuple[Series, ...]) -> None:
        """Make a rule's metrics of the series that were found."""
        self._set_part(await part_of(rule, found, self._parts.get(rule.key), self._mapper))

    def _set_part(self, part: RulePart) -> None:
        self._parts[part.rule.key] = part
        if self._telemetry is not None:
            self._telemetry.series.labels(part.rule.key).set(len(part.series))
            self._telemetry.metrics.labels(part.rule.key).set(len(part.sources))
        self._log_part(part)

    async def _build(self) -> None:
        """Rebuild the snapshot, if a part is new."""
        async with self._building:
            parts = tuple(self._parts[rule.key] for rule in self._rules.all_rules if rule.key in self._parts)
            if not self._snapshot.is_made_of(parts):
                self._snapshot = await snapshot_of(parts)
                self.version += 1
                self._log_overlaps(self._snapshot)
        self._set_events()

    def _set_events(self) -> None:
        if self._problem() is None:
            self._loaded.set()
        if self._all_tried():
            self._tried.set()

    def _record_failure(self, rules: Iterable[AnyRule], why: str) -> None:
        """Record a failure, which is logged once for all rules that have it."""
        for rule in rules:
            is_new = why not in self._failures.values()
            self.version += self._failures.get(rule.key) != why
            self._failures[rule.key] = why
            if self._telemetry is not None:
                self._telemetry.relist_errors.labels(rule.key).inc()
            if self._logs:
                _log.log(
                    logging.WARNING if is_new else logging.DEBUG,
                    "%s cannot be listed, and keeps its last list: %s",
                    rule,
                    why,
                )
        self._set_events()

    def _record_success(self, rule: AnyRule) -> None:
        why = self._failures.pop(rule.key, None)
        self.version += why is not None
        if why is not None and why not in self._failures.values() and self._logs:
            _log.info("%s is listed again", rule)
        self._listed_at[rule.key] = now = self._clock()
        if self._telemetry is not None:
            self._telemetry.relisted.labels(rule.key).set(now)

    def _log_overlaps(self, snapshot: Snapshot) -> None:
        for loses, wins in snapshot.overlaps:
            self._log_once(
                f"overlap of {loses.rule.key} and {wins.rule.key}",
                f"{wins} is made twice: of {wins.series} by {wins.rule}, which wins,"
                f" and of {loses.series} by {loses.rule}",
            )

    def _log_part(self, part: RulePart) -> None:
        rule = part.rule
        if isinstance(rule, QueryRule) and not rule.external and not part.custom:
            self._log_once(f"no resource for {rule.key}", f"{rule}: the cluster has no resource {rule.resource}")
        if part.unreachable is not None:
            self._log_once(
                f"no namespaces for {rule.key}",
                f"{rule}: {part.unreachable.info} can never be found, because no label maps to namespaces;"
                " add one to resources.overrides",
            )

    def _log_once(self, subject: str, text: str) -> None:
        """Log a warning once for a subject: of a hundred metrics with the same problem, one is named."""
        if self._logs and subject not in self._logged:
            self._logged.add(subject)
            _log.warning("%s", text)
