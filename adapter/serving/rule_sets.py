"""The active rules, as one object for each version of the rules file.

A rule set has everything that belongs to one version: the rules, the catalog of their metrics, the caches of plans and
vectors, and the router. Other versions never modify it. A request uses the rule set that is active at its start until
its end. Clients of Prometheus and the API server, and watched objects, are shared by all versions.

A new version becomes active once its seriesQueries have been listed, or after some seconds, so that existing metrics
stay available. The background tasks of the previous version end at once: it sends only the queries of requests that are
still in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass

import aiohttp

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.catalog.metric_index import Snapshot
from adapter.content.values import CUSTOM_GROUP, EXTERNAL_GROUP
from adapter.diagnosis.probe import Probe
from adapter.forecasts.registry import Forecasts
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forecasts import ForecastValues
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import WatchedObjects
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.slow_queries import SlowQueries
from adapter.planning.vectors import VectorCache
from adapter.prometheus import PrometheusServers
from adapter.rule_objects.controller import RuleObjects
from adapter.rules import RulesFile
from adapter.serving.debug_pages import DebugPages
from adapter.serving.discovery import Discovery
from adapter.serving.routes import Router
from adapter.serving.usage_routes import usage_response
from adapter.settings import Settings
from adapter.telemetry import Telemetry
from kube.api.mapping import RestMapper
from kube.process.config_page import ConfigPage
from kube.serving.health import Health

_log = logging.getLogger(__name__)

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The parts that all versions share."""

    settings: Settings
    """See Settings."""
    relist_interval: float
    """How often series are listed, in seconds."""
    freshness: float
    """The TTL of the vector cache, in seconds; 0: there is none."""
    listings: Listings
    """List the series."""
    prometheus: PrometheusServers
    """The Prometheus servers."""
    http: aiohttp.ClientSession
    """Connections to another adapter."""
    mapper: RestMapper
    """The cluster's resources."""
    objects: WatchedObjects
    """The cluster's objects."""
    rule_objects: RuleObjects
    """The objects of the cluster that have rules."""
    forecasts: Forecasts
    """The forecasts of metrics."""
    slow_queries: SlowQueries
    """Limits how long requests wait for slow queries."""
    telemetry: Telemetry
    """The adapter's own metrics."""
    health: Health
    """The health endpoints."""
    port: int
    """The listener's port."""
    config_page: Callable[[], Awaitable[ConfigPage]] | None = None
    """Returns /debug/config."""
    prometheus_external_url: str | None = None
    """See ServeOptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """One version of the rules, and everything that belongs to it."""

    rules: RulesFile
    catalog: Catalog
    cache: VectorCache
    forwarder: Forwarder
    coalescer: MetricsQueryCoalescer
    router: Router
    debug: DebugPages

    @classmethod
    def of(cls, rules: RulesFile, shared: Shared) -> RuleSet:
        """Build the rule set. Send nothing yet."""
        telemetry = shared.telemetry.rules
        catalog = Catalog(
            rules, shared.listings, shared.mapper, objects=shared.rule_objects.catalog, telemetry=telemetry
        )
        forwarder = Forwarder(
            rules.forward,
            relist_interval=shared.relist_interval,
            ttl=shared.freshness,
            session=shared.http,
            settings=shared.settings.forward,
        )
        cache = VectorCache(
            shared.prometheus,
            ttl=shared.freshness,
            max_bytes=shared.settings.caches.results_bytes,
            slow_queries=shared.slow_queries,
        )
        coalescer = MetricsQueryCoalescer(cache, telemetry=telemetry)
        queries = RuleQueries(cache, telemetry=telemetry, coalescer=coalescer)
        probe = Probe(
            catalog,
            shared.prometheus,
            shared.objects,
            shared.mapper,
            forwarder=forwarder,
            external_url=shared.prometheus_external_url,
        )
        debug = DebugPages(
            catalog,
            shared.mapper,
            probe,
            shared.rule_objects,
            shared.forecasts,
            paused=coalescer.paused,
            config=shared.config_page,
        )
        forecasts = ForecastValues(shared.forecasts, shared.prometheus)
        router = Router(
            discovery=Discovery(
                catalog,
                custom=bool(rules.custom) or shared.rule_objects.enabled,
                external=bool(rules.external or rules.forward) or shared.rule_objects.enabled,
                resource=rules.resource is not None,
                port=shared.port,
                forwarded=lambda: forwarder.names,
            ),
            custom=CustomMetrics(catalog, queries, shared.objects, shared.mapper, forecasts=forecasts),
            external=ExternalMetrics(catalog, queries, forwarder=forwarder, forecasts=forecasts),
            usage=functools.partial(usage_response, ResourceMetrics(rules.resource, queries, shared.objects)),
            debug=debug,
            health=shared.health,
            telemetry=shared.telemetry,
        )
        return cls(
            rules=rules,
            catalog=catalog,
            cache=cache,
            forwarder=forwarder,
            coalescer=coalescer,
            router=router,
            debug=debug,
        )

    async def run(self, running: asyncio.Event, *, previous: RuleSet | None = None) -> None:
        """Keep it up to date until cancelled. Start with the lists of the previous version.

        Set `running` once requests can be served.
        """
        async with self.forwarder, self.cache:  # the cache of a former version closes at once
            running.set()
            if previous is not None:
                await self.forwarder.carry_over(previous.forwarder)
            try:
                await self.catalog.start(None if previous is None else previous.catalog)
                previous = None  # else it stays in memory as long as this version
                await self.forwarder.run()
                await asyncio.Event().wait()
            finally:
                self.catalog.stop()

    async def wait_tried(self) -> None:
        """Wait until everything has been listed, with success or not."""
        await self.catalog.tried.wait()
        await self.forwarder.wait_tried()


class RuleSets:
    """The active rule set, and its replacement by the next one.

    Attributes:
        shared: the parts that all versions share.
        current: the active rule set. Requests get its router when they begin.
        applied_at: when the active rule set became active, in seconds since the epoch.
        gone: the metrics that the last reload removed, by API group.
    """

    def __init__(self, rules: RulesFile, shared: Shared) -> None:
        """Start with these rules; send nothing before `run`."""
        self.shared = shared
        self._settings = shared.settings.rules
        self.current = RuleSet.of(rules, shared)
        self.applied_at = 0.0
        self.gone: dict[str, list[str]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._background: list[asyncio.Task[None]] = []
        self._has_listed = False
        self._begin(self.current)
        for group in (CUSTOM_GROUP, EXTERNAL_GROUP):
            shared.telemetry.rules.gone.labels(group).set(0)

    def first_lists(self) -> str | None:
        """Return None once everything has been listed, with success or not, or takes too long; else the reason."""
        return None if self._has_listed else "the series of the rules are being listed"

    async def run(self) -> None:
        """Run the background tasks of the active rules, until cancelled."""
        servers = self.current.rules.prometheus_servers.values()
        await self.shared.prometheus.close_others(servers)  # and keeps those open
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._background = [await self._started(self.current)]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.start_seconds):
                    await self.current.wait_tried()
            self._has_listed = True
            await asyncio.Event().wait()

    async def apply(self, rules: RulesFile) -> None:
        """Activate other rules. Requests in flight keep the rules and servers that they started with."""
        before = self.current
        new = RuleSet.of(rules, self.shared)
        servers = (*before.rules.prometheus_servers.values(), *rules.prometheus_servers.values())
        await self.shared.prometheus.close_others(servers)
        background = await self._started(new, previous=before)
        try:
            async with asyncio.timeout(self._settings.reload_seconds):
                await new.wait_tried()
        except TimeoutError:
            _log.warning(
                "the new rules' series could not be listed within %g s; they are listed in the background",
                self._settings.reload_seconds,
            )
        # No await from here until the tasks of the previous version are cancelled.
        self.current = new
        self._begin(new)
        for task in self._background:
            task.cancel()
        comparing = self._create_task(self._log_gone(before.catalog.snapshot, new), name="compare metrics")
        self._background = [background, comparing]
        await self.shared.prometheus.close_others(rules.prometheus_servers.values())

    async def _started(self, rule_set: RuleSet, *, previous: RuleSet | None = None) -> asyncio.Task[None]:
        running = asyncio.Event()
        task = self._create_task(rule_set.run(running, previous=previous), name="rule set")
        await running.wait()
        return task

    def _create_task(self, work: Coroutine[None, None, None], *, name: str) -> asyncio.Task[None]:
        assert self._tasks is not None, "rule sets need `run`"
        task = self._tasks.create_task(work, name=name)
        task.add_done_callback(_drop_cancelled_error)
        return task

    def _begin(self, rule_set: RuleSet) -> None:
        rules, coalescer = rule_set.rules, rule_set.coalescer
        self.applied_at, self.gone = time.time(), {}
        self.shared.rule_objects.use_file(rules.prometheus_servers, rule_set.catalog)
        self.shared.telemetry.rules.begin(
            [rule.key for rule in rules.all_rules],
            others=frozenset(self.shared.rule_objects.rule_keys),
            digest=rules.digest,
            now=self.applied_at,
            paused=lambda: [(rule, why.label) for rule, why in coalescer.paused()],
            forwards=rule_set.forwarder.states,
        )

    async def _log_gone(self, old: Snapshot, after: RuleSet) -> None:
        """Log which metrics a reload removed, once all rules are listed: the file may have been truncated."""
        await after.catalog.tried.wait()
        new = after.catalog.snapshot
        gone: dict[str, list[str]] = {CUSTOM_GROUP: [], EXTERNAL_GROUP: []}
        for key, source in old.by_key.items():
            if key not in new.by_key:
                gone[CUSTOM_GROUP if key[0] is not None else EXTERNAL_GROUP].append(str(source))
        self.gone = {group: sorted(names) for group, names in gone.items() if names}
        counts = {CUSTOM_GROUP: len(old.custom), EXTERNAL_GROUP: len(old.external)}
        for group, names in gone.items():
            self.shared.telemetry.rules.gone.labels(group).set(len(names))
            if names:
                _log.warning(
                    "the reload removed %d of %d metrics of %s: %s; if this was not intended, the file may have been"
                    " read while it was written",
                    *(len(names), counts[group], group, _some(names)),
                )


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more


def _drop_cancelled_error(task: asyncio.Task[None]) -> None:
    """Have a task drop its CancelledError, so that what its coroutine used is freed without garbage collection.

    The traceback has the frames, these have a TaskGroup, and before Python 3.13.1 a TaskGroup keeps its task. What
    `gc.freeze` has excluded from collection would stay for ever.
    """
    if task.cancelled():
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
