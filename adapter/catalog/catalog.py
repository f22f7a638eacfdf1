"""All metrics that the rules make: those of one version of the rules file first, then those of objects.

Requests, discovery and reports read the catalog without waiting; only Listings query Prometheus. A rule whose list
fails keeps its last series. (prometheus-adapter lists all or nothing: one bad rule there stops discovery.)

Where two rules of the file make the same metric of the same resource, the later rule in the file wins, as in
prometheus-adapter, but every time and with a warning. A short rule, which names its metric, wins over rules that have a
seriesQuery. MetricIndex says which object wins.

A reload makes another catalog. It starts with the series that were found for the same seriesQueries, and only the
others are listed; requests in flight keep the catalog that they began with.
"""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from msgspec import structs

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource, MetricKey, Source
from adapter.catalog.listings import Found, Listing, Listings
from adapter.catalog.metric_index import MetricIndex
from adapter.catalog.rule_states import (
    NOT_LISTED,
    Problem,
    Reason,
    RuleState,
    after_list,
    have_same_resources,
    with_series_of,
)
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.catalog.snapshot import Snapshot, snapshot_of
from adapter.prometheus import PrometheusError
from adapter.rules import AnyRule, QueryRule, Rule, RulesFile
from kube.api.mapping import GroupResource, ResourceLookup
from kube.api.status import service_unavailable
from kube.values.selectors import EVERYTHING, LabelSelector

_log = logging.getLogger(__name__)

_OWNER = "the rules file"


class Catalog:
    """The metrics of one version of the rules file, and of objects.

    Attributes:
        rules: the rules of the file.
        objects: the metrics of the rules in objects.
        snapshot: the metrics of the rules file at this moment.
        version: grows whenever the metrics of the rules file, or the failures of its lists, change.
    """

    def __init__(
        self,
        rules: RulesFile,
        listings: Listings,
        mapper: ResourceLookup,
        *,
        objects: MetricIndex | None = None,
        telemetry: RuleTelemetry | None = None,
        logs: bool = True,
    ) -> None:
        """List nothing before `start` or `relist`.

        Args:
            rules: the rules of the file.
            listings: list the series.
            mapper: knows the cluster's resources.
            objects: the metrics of the rules in objects.
            telemetry: counts lists and failures.
            logs: log problems; False for rules that are only tried.
        """
        self.rules = rules
        self.objects = objects or MetricIndex()
        self._listings = listings
        self._mapper = mapper
        self._telemetry = telemetry
        self._logs = logs
        self._states = {rule.key: RuleState(rule, problem=NOT_LISTED) for rule in rules.all_rules}
        self._rules_of: dict[Listing, list[str]] = {}
        for rule in rules.all_rules:
            self._rules_of.setdefault(listings.listing(rule, owner=_OWNER), []).append(rule.key)
        self.version = 0
        self._logged: set[str] = set()
        self.snapshot = Snapshot()
        self._publishing = asyncio.Lock()
        # Catalogs of later versions share `_loaded`.
        self._loaded = asyncio.Event()
        self._tried = asyncio.Event()
        self._set_events()

    def find_custom(
        self,
        resource: GroupResource,
        metric: str,
        *,
        namespace: str = "",
        name: str = "",
        selector: LabelSelector = EVERYTHING,
    ) -> CustomSource | None:
        """Return the source of a metric of a resource (in the plural); None if there is no such metric.

        `namespace` is that of the objects; for a metric of a namespace itself, its name; else "". `name` is that of the
        object, or "" for any; `selector` selects the metric's series.

        Raises:
            StatusError: 503, an object makes the metric, and it is not known yet whether the rules file does.
        """
        found = self._find((resource, metric), namespace, selector, name)
        return cast("CustomSource | None", found)

    def find_external(
        self, metric: str, *, namespace: str = "", selector: LabelSelector = EVERYTHING
    ) -> ExternalSource | None:
        """Return the source of an external metric in a namespace; None if there is none. See `find_custom`."""
        return cast("ExternalSource | None", self._find((None, metric), namespace, selector, ""))

    def _find(self, key: MetricKey, namespace: str, selector: LabelSelector, name: str) -> Source | None:
        found = self.snapshot.by_key.get(key)
        if found is not None:
            return found
        found = self.objects.find(
            namespace,
            key,
            lambda source, labels: (
                (not name or name == labels.get(cast("CustomSource", source).resource_label))
                and selector.matches(labels)
            ),
        )
        if found is not None:
            _require_none(self._problem())
        return found

    def require_known(self) -> None:
        """Raise while it is not known yet whether a metric exists: before the first lists of series and of objects.

        Raises:
            StatusError: 503, with the reason.
        """
        _require_none(self._problem() or self.objects.problem())

    def makers(self, namespace: str, key: MetricKey) -> list[Source]:
        """Return all sources of a metric for a namespace, the winner first; with "" those for any namespace.

        Of the rules of the file, only the one that wins.
        """
        found = self.snapshot.by_key.get(key)
        return [*([] if found is None else [found]), *self.objects.makers(namespace, key)]

    @property
    def custom(self) -> tuple[tuple[CustomMetricInfo, ...], ...]:
        """The custom metrics of the file, and those of objects; sorted. The same tuples until they change."""
        return self.snapshot.custom, self.objects.custom

    @property
    def external(self) -> tuple[tuple[str, ...], ...]:
        """The external metrics, likewise."""
        return self.snapshot.external, self.objects.external

    def has_custom(self, resource: str) -> bool:
        """Return whether a resource, written as in requests, has custom metrics."""
        return resource in self.snapshot.custom_resources or resource in self.objects.custom_resources

    def state(self, rule: AnyRule) -> RuleState:
        """Return the series and metrics of a rule of the file, as of its last successful list."""
        return self._states[rule.key]

    def max_age(self, rule: AnyRule) -> float:
        """Return how old the series of a rule may be, in seconds."""
        return self._listings.max_age(rule)

    def readiness(self) -> str | None:
        """Return None if ready, else the reason.

        Ready means that every rule of the file has been listed once, and at least one of them successfully. Failed
        rules do not affect readiness; they are logged. Once ready, the catalog stays ready.
        """
        return None if self._loaded.is_set() else self._problem()

    async def wait_loaded(self) -> None:
        """Wait until it is, or has been, ready."""
        await self._loaded.wait()

    async def wait_tried(self) -> None:
        """Wait until every rule of the file has been listed, with success or not."""
        await self._tried.wait()

    def _problem(self) -> str | None:
        states = self._states.values()
        if not states or (self._all_tried() and any(state.listed_at is not None for state in states)):
            return None
        failed = next((state for state in states if state.failure), None)
        if failed is not None:
            return f"no good relist yet of {failed.rule.key}: {failed.failure}"
        return "no good relist yet: the first one is under way"

    def _all_tried(self) -> bool:
        return all(state.problem is not NOT_LISTED for state in self._states.values())

    async def start(self, previous: Catalog | None = None) -> None:
        """Keep the catalog up to date until `stop`, from the series on that another version's catalog has."""
        if previous is not None:
            await self._carry_over(previous)
        missing = {key for key, state in self._states.items() if state.listed_at is None}
        now = {listing for listing, keys in self._rules_of.items() if not missing.isdisjoint(keys)}
        self._listings.use(self, self._rules_of, self._listed, now=now)

    def stop(self) -> None:
        """Keep it as it is from now on."""
        self._listings.use(self, (), self._listed)

    async def relist(self) -> None:
        """List everything once, now."""
        await self.start()
        await self._listings.list_now(self)

    async def _carry_over(self, previous: Catalog) -> None:
        if self._loaded.is_set():
            previous._loaded.set()
        self._loaded = previous._loaded
        others: list[tuple[RuleState, RuleState]] = []
        for listing, keys in self._rules_of.items():
            known = [previous._states[key] for key in previous._rules_of.get(listing, ())]
            known = [state for state in known if isinstance(state.rule, Rule) and state.listed_at is not None]
            for key in keys if known else ():
                state = self._states[key]
                same = next((one for one in known if have_same_resources(one.rule, state.rule)), None)
                if same is None:
                    others.append((state, known[0]))
                else:
                    self._set(await with_series_of(state.rule, same))
        await self._publish()  # before the API server is needed, which may be down
        for state, before in others:
            after = await after_list(state, before.series, self._mapper, limited=False)
            self._set(after if after.problem is not None else structs.replace(after, listed_at=before.listed_at))
        await self._publish()

    async def _listed(self, _: Catalog, listing: Listing, found: Found) -> bool:
        """Set the metrics of the rules that a list is for; return False if it is needed again soon."""
        series = Problem(Reason.PROMETHEUS_UNAVAILABLE, str(found)) if isinstance(found, PrometheusError) else found
        well, now = True, self._listings.clock()
        for key in self._rules_of[listing]:
            state = await after_list(self._states[key], series, self._mapper, limited=False)
            well = well and state.problem is None
            self._set(state if state.problem is not None else structs.replace(state, listed_at=now))
        await self._publish()
        return well

    def _set(self, state: RuleState) -> None:
        rule, before = state.rule, self._states[state.rule.key]
        self._log_change(rule, before.failure, state.failure)
        self.version += before.failure != state.failure
        self._states[rule.key] = state
        if self._telemetry is not None:
            if state.problem is not None:
                self._telemetry.relist_errors.labels(rule.key).inc()
            else:
                self._telemetry.series.labels(rule.key).set(len(state.series))
                self._telemetry.metrics.labels(rule.key).set(len(state.sources))
                self._telemetry.relisted.labels(rule.key).set(state.listed_at or 0.0)
        self._log_state(state)

    async def _publish(self) -> None:
        """Make another snapshot, if the metrics of a rule are new."""
        async with self._publishing:
            parts = tuple(state.sources for state in self._states.values())
            if not self.snapshot.is_made_of(parts):
                self.snapshot = await snapshot_of(parts)
                self.version += 1
                self._log_overlaps()
        self._set_events()

    def _set_events(self) -> None:
        if self._problem() is None:
            self._loaded.set()
        if self._all_tried():
            self._tried.set()

    def _log_change(self, rule: AnyRule, before: str, now: str) -> None:
        """Log a failure, or its end, once for all rules that have it."""
        if not self._logs or now == before:
            return
        others = {state.failure for state in self._states.values() if state.rule is not rule}
        if now:
            level = logging.DEBUG if now in others else logging.WARNING
            _log.log(level, "%s cannot be listed, and keeps its last list: %s", rule, now)
        elif before not in others:
            _log.info("%s is listed again", rule)

    def _log_overlaps(self) -> None:
        for loses, wins in self.snapshot.overlaps:
            self._log_once(
                f"overlap of {loses.rule.key} and {wins.rule.key}",
                f"{wins} is made twice: of {wins.series} by {wins.rule}, which wins,"
                f" and of {loses.series} by {loses.rule}",
            )

    def _log_state(self, state: RuleState) -> None:
        rule = state.rule
        if isinstance(rule, QueryRule) and not state.sources and state.problem is None:
            self._log_once(f"no resource for {rule.key}", f"{rule}: the cluster has no resource {rule.resource}")
        lost = None if rule.namespace else next(filter(_is_lost, state.sources), None)
        if lost is not None:
            self._log_once(
                f"no namespaces for {rule.key}",
                f"{rule}: {lost} can never be found, because no label maps to namespaces;"
                " add one to resources.overrides",
            )

    def _log_once(self, subject: str, text: str) -> None:
        """Log a warning once for a subject: of a hundred metrics with the same problem, one is named."""
        if self._logs and subject not in self._logged:
            self._logged.add(subject)
            _log.warning("%s", text)


def _require_none(problem: str | None) -> None:
    if problem is not None:
        raise service_unavailable(f"it is not known yet which metrics there are: {problem}")


def _is_lost(source: Source) -> bool:
    """Return whether no request can find a custom metric, because no label maps to namespaces."""
    return isinstance(source, CustomSource) and source.info.namespaced and not source.namespace_label
