"""All metrics that the rules make: those of one version of the rules file first, then those of objects.

Requests, discovery and reports read the catalog without waiting; only Listings query Prometheus. A rule whose list
fails keeps its last series. (prometheus-adapter lists all or nothing: one bad rule there stops discovery.)

Where two rules of the file make the same metric of the same resource, the later rule in the file wins, as in
prometheus-adapter, but every time and with a warning. A short rule, which names its metric, wins over rules that have a
seriesQuery. MetricIndex says which object wins.

A reload makes another catalog. It starts with the series that were found for the same seriesQueries, and only the
others are listed at once (adapter.catalog.listings); requests in flight keep the catalog that they began with.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import cast

from msgspec import structs

from adapter.catalog.inventory import CustomMetricInfo, CustomSource, ExternalSource, MetricKey, Source
from adapter.catalog.listings import Listing, Listings
from adapter.catalog.metric_index import MetricIndex, Snapshot, snapshot_of
from adapter.catalog.rule_states import (
    NOT_LISTED,
    Reason,
    RuleState,
    after_list,
    with_series_of,
)
from adapter.rules import AnyRule, QueryRule, Rule, RulesFile
from adapter.rules.objects import ObjectName
from adapter.telemetry import RuleTelemetry
from kube.aio.tasks import Pace
from kube.api.mapping import GroupResource, ResourceLookup
from kube.api.status import service_unavailable
from kube.values.selectors import EVERYTHING, LabelSelector

_log = logging.getLogger(__name__)


class Catalog:
    """The metrics of one version of the rules file, and of objects.

    Attributes:
        rules: the rules of the file.
        objects: the metrics of the rules in objects.
        snapshot: the metrics of the rules file at this moment.
        version: grows whenever the series or metrics of the rules file, or the failures of its lists, change.
        loaded: set once it is, or has been, ready.
        tried: set once every rule of the file has been listed, with success or not.
        limited: False; see RuleStates.
    """

    limited = False

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
        self._failures: Counter[str] = Counter()
        # Thousands of lists can end at once: each is compared with these, not with all rules.
        self._tries_left = len(self._states)
        self._has_list = not self._states
        self._changes = self._published = 0
        self.version = 0
        self._logged: set[str] = set()
        self.snapshot = Snapshot()
        self._publishing = asyncio.Lock()
        # Catalogs of later versions share `loaded`.
        self.loaded = asyncio.Event()
        self.tried = asyncio.Event()
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
        found = self.objects.find(namespace, key, name, selector)
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

    def maker_instead(self, name: ObjectName, source: Source) -> str:
        """Return the rule that makes a metric instead of the object's own rule, and why; "" if no other rule does."""
        of_file = self.snapshot.by_key.get(source.key)
        if of_file is not None:
            return f"{of_file.rule.key} of the rules file"
        winner = self.objects.winner(source)
        return "" if winner in (None, name) else f"{winner}, which comes first: the older object, then by name"

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
        return None if self.loaded.is_set() else self._problem()

    def _problem(self) -> str | None:
        if not self._tries_left and self._has_list:
            return None
        failed = next((state for state in self._states.values() if state.failure), None) if self._failures else None
        if failed is not None:
            return f"no good relist yet of {failed.rule.key}: {failed.failure}"
        return "no good relist yet: the first one is under way"

    async def start(self, previous: Catalog | None = None) -> None:
        """Keep the catalog up to date until `stop`, from the series on that another version's catalog has."""
        if previous is not None:
            # Lists that end meanwhile are for this version, too.
            self._listings.use(self, self, self._states.values(), now=False)
            await self._carry_over(previous)
        self._listings.use(self, self, self._states.values())

    def stop(self) -> None:
        """Keep it as it is from now on."""
        self._listings.use(self, self, ())

    def list_again(self) -> None:
        """List everything at once, though the interval is not over."""
        self._listings.list_again(self)

    async def relist(self) -> None:
        """List everything once, now."""
        await self.start()
        await self._listings.list_now(self)

    async def _carry_over(self, previous: Catalog) -> None:
        if self.loaded.is_set():
            previous.loaded.set()
        self.loaded = previous.loaded
        known: dict[Listing, list[tuple[Rule, RuleState]]] = {}
        for before in previous._states.values():
            if isinstance(before.rule, Rule) and before.listed_at is not None:
                known.setdefault(self._listings.listing(before.rule, limited=False), []).append((before.rule, before))
        others: list[tuple[Rule, RuleState]] = []
        pace = Pace()
        for rule in self.rules.all_rules:
            if isinstance(rule, Rule) and (listed := known.get(self._listings.listing(rule, limited=False))):
                of = (rule.external, rule.resources)
                same = next((state for one, state in listed if (one.external, one.resources) == of), None)
                if same is not None:
                    self._set_carried(await with_series_of(rule, same), same)
                else:
                    others.append((rule, listed[0][1]))
            await pace.pause()
        await self.publish(self)  # before the API server is needed, which may be down
        for rule, before in others:
            after = await after_list(self._states[rule.key], before.series, self._mapper, limited=False)
            self._set_carried(after, before)
        await self.publish(self)

    def _set_carried(self, state: RuleState, before: RuleState) -> None:
        """Set the state of a rule that has the series of the version before, and the failure of their list."""
        if self._states[state.rule.key].problem is not NOT_LISTED:  # a list was faster
            return
        if state.problem is None:
            of_rule = before.problem is not None and before.problem.reason is Reason.INVALID
            state = structs.replace(state, problem=None if of_rule else before.problem, listed_at=before.listed_at)
        self._set(state)

    def rule_state(self, _: Catalog, rule: AnyRule) -> RuleState | None:
        """See RuleStates."""
        return self._states[rule.key]

    def set_rule_state(self, _: Catalog, state: RuleState) -> None:
        """See RuleStates."""
        if state.problem is None:
            state = structs.replace(state, listed_at=self._listings.clock())
        elif self._telemetry is not None:
            self._telemetry.relist_errors[state.rule.key,] += 1
        self._set(state)

    def _set(self, state: RuleState) -> None:
        rule, before = state.rule, self._states[state.rule.key]
        self._states[rule.key] = state
        self._tries_left -= before.problem is NOT_LISTED and state.problem is not NOT_LISTED
        self._has_list = self._has_list or state.listed_at is not None
        self._changes += before.sources is not state.sources
        self.version += before.problem != state.problem or before.series is not state.series
        self._note_failure(rule, before.failure, state.failure)
        if self._telemetry is not None and state.listed_at is not None:
            self._telemetry.series[rule.key,] = len(state.series)
            self._telemetry.metrics[rule.key,] = len(state.sources)
            self._telemetry.relisted[rule.key,] = state.listed_at
        self._log_state(state)

    async def publish(self, _: Catalog) -> None:
        """Make another snapshot, if the metrics of a rule are new. See RuleStates."""
        async with self._publishing:
            if self._changes != self._published:
                changes = self._changes
                self.snapshot = await snapshot_of(tuple(state.sources for state in self._states.values()))
                self._published = changes
                self.version += 1
                self._log_overlaps()
        self._set_events()

    def _set_events(self) -> None:
        if not self._tries_left:
            self.tried.set()
            if self._has_list:
                self.loaded.set()

    def _note_failure(self, rule: AnyRule, before: str, now: str) -> None:
        """Log a failure, or its end, once for all rules that have it."""
        if now == before:
            return
        if before:
            self._failures[before] -= 1
            if not self._failures[before]:
                del self._failures[before]
                if self._logs and not now:
                    _log.info("%s is listed again", rule)
        if now:
            self._failures[now] += 1
            if self._logs:
                level = logging.WARNING if self._failures[now] == 1 else logging.DEBUG
                _log.log(level, "%s cannot be listed, and keeps its last list: %s", rule, now)

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
