"""The running adapter: the parts that live as long as the process.

    DelegatedAuth  keeps CAs and the serving certificate current, and decides on the rights of users
    rules file     is reloaded when it changes
    rule sets      one per version of the rules: catalog, queries and router
    objects        watches pods and other objects that requests select
    rule objects   watches MetricRules and other objects that have rules
    statuses       of MetricRules are written by the replica that holds a Lease
    listener       serves requests with the current rule set
    pages          serve what the other parts know to browsers (--ui-address)

All parts start concurrently: the listener serves at once, discovery lists the catalog's present metrics, and readyz
names the parts that are not ready. One TaskGroup owns the tasks: if one fails, the process ends and is restarted.

After SIGTERM or Ctrl-C the Lease is released, readyz fails, and requests are still served for the shutdown delay, so
that the Service's endpoints can be updated. Then the listener closes, requests in flight finish, and the tasks are
cancelled. A second signal ends the delay.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import click

from adapter.catalog.listings import Listings
from adapter.commands.flags import ServeOptions
from adapter.diagnosis.checker import RuleChecker
from adapter.forecasts.registry import Forecasts
from adapter.metrics.objects import WatchedObjects
from adapter.planning.slow_queries import SlowQueries
from adapter.prometheus import MemoryBudget, PrometheusServers
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.status import checked_verdict
from adapter.rule_objects.status_writer import LEASE, StatusWriter
from adapter.rules import RulesError, RulesFile, strictyaml
from adapter.rules.reading import decode_rules, read_text
from adapter.serving.reload import RulesReloader
from adapter.serving.rule_sets import RuleSets, Shared
from adapter.serving.server import RequestServer, error_response
from adapter.telemetry import Telemetry, condition_counts, rule_object_counts
from adapter.upstream import upstream_session
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.api.retries import RetryMetrics
from kube.controller.election import ElectionSettings
from kube.process.config_page import CONFIG_PATH, ConfigPage, Flags, given_flags, without_secrets
from kube.process.runtime import freeze_gc, stopped_by_signals, watch_loop
from kube.serving.connection import overload_check
from kube.serving.delegated import DelegatedAuth
from kube.serving.health import Health
from kube.serving.listener import Listener, bind

_log = logging.getLogger(__name__)

_DROP_TELEMETRY_SECONDS = 60.0


async def serve(options: ServeOptions, rules: RulesFile) -> None:
    """Serve the metrics of `rules` until SIGTERM or SIGINT.

    Raises:
        ListenError: the address is taken, or is not one of this host.
        TLSError: the serving certificate cannot be used or made.
        TrustError: a CA file cannot be used.
        KubeConfigError: there is no usable configuration for the API server.
        PrometheusConfigError: the credentials for Prometheus cannot be used.
    """
    stop = asyncio.Event()
    with stopped_by_signals(stop) as again:
        async with AsyncExitStack() as stack:
            clients = await _connect(options, stack)
            telemetry = Telemetry()
            telemetry.registry.register(RetryMetrics((each.host, each.retries) for each in clients.values()))
            prometheus = await stack.enter_async_context(
                PrometheusServers(
                    await options.prometheus.authorized(),
                    observe=telemetry.rules.queried,
                    on_gone=telemetry.rules.server_gone,
                    budget=MemoryBudget(options.prometheus.response_memory),
                    settings=options.settings.prometheus,
                )
            )
            http = await stack.enter_async_context(upstream_session())  # of forwardExternal
            listening = stack.enter_context(closing(bind(options.serving.bind_address, options.serving.port)))
            adapter = _Adapter(options, rules, clients, prometheus, http, listening, telemetry)
            await adapter.run(stop, again)


class _Adapter:
    """All parts of the process."""

    def __init__(
        self,
        options: ServeOptions,
        rules: RulesFile,
        clients: Mapping[Path | None, KubeClient],
        prometheus: PrometheusServers,
        http: aiohttp.ClientSession,
        listening: socket.socket,
        telemetry: Telemetry,
    ) -> None:
        serving, settings = options.serving, options.settings
        limits = replace(options.limits, connection=settings.connections)
        lister, authentication, authorization = (clients[kubeconfig] for kubeconfig in options.kubernetes.purposes)
        self._auth = DelegatedAuth(
            options.auth,
            authentication_client=authentication,
            authorization_client=authorization,
            settings=settings.reviews,
        )
        self._objects = WatchedObjects(
            lister, pods=bool(rules.custom) or rules.resource is not None, settings=settings.objects
        )
        self._stopping = False
        self._shutdown_delay = serving.shutdown_delay
        self._socket = listening
        self._telemetry = telemetry
        mapper = RestMapper(lister)
        self._listings = Listings(
            prometheus,
            mapper,
            max_age=options.catalog.max_age,
            relist_interval=options.catalog.relist_interval,
            of_objects_at_once=settings.rule_objects.lists,
        )
        self._forecasts = Forecasts(settings.forecasts)
        telemetry.registry.register(self._forecasts)
        self._rule_objects = RuleObjects(
            options.rule_objects.sources(options.prometheus.options.url),
            lister,
            self._listings,
            mapper,
            tenancy=options.rule_objects.tenancy,
            settings=settings.rule_objects,
            forget=self._forget,
        )
        slow_queries = SlowQueries(seconds=options.catalog.slow_query_seconds)
        telemetry.registry.register(slow_queries)
        shared = Shared(
            settings=settings,
            relist_interval=options.catalog.relist_interval,
            freshness=options.catalog.freshness,
            listings=self._listings,
            prometheus=prometheus,
            http=http,
            mapper=mapper,
            objects=self._objects,
            rule_objects=self._rule_objects,
            forecasts=self._forecasts,
            slow_queries=slow_queries,
            telemetry=telemetry,
            health=self._health(),
            port=listening.getsockname()[1],
            config_page=functools.partial(config_page, options),
            prometheus_external_url=options.prometheus_external_url,
        )
        self._rule_sets = RuleSets(rules, shared)
        checker = RuleChecker(prometheus, mapper, self._objects, max_age=options.catalog.max_age)
        self._statuses: StatusWriter | None = None
        if self._rule_objects.enabled:
            self._statuses = StatusWriter(
                lister,
                self._rule_objects,
                functools.partial(checked_verdict, checker=checker, forecasts=self._forecasts),
                election=ElectionSettings(namespace=options.rule_objects.tenancy.own_namespace, name=LEASE),
                statuses=options.rule_objects.metric_rules,
                settings=settings.rule_objects,
            )
            self._rule_objects.on_change(self._statuses.changed)
            telemetry.registry.register(rule_object_counts(self._rule_objects.counts))
            telemetry.registry.register(condition_counts(self._statuses.counts))
        self._rules_file = RulesReloader(
            options.config,
            rules,
            self._rule_sets.apply,
            list_again=lambda: self._rule_sets.current.catalog.list_again(),
            telemetry=telemetry.rules,
            poll_seconds=settings.rules.poll_seconds,
        )
        server = RequestServer(
            authenticator=self._auth.authenticator,
            authorizer=self._auth.authorizer,
            rule_sets=self._rule_sets,
            telemetry=telemetry,
            limits=limits,
            is_overloaded=overload_check(limits),
            cache_bytes=settings.caches.requests_bytes,
            local_paths=frozenset({CONFIG_PATH} if options.debug_endpoints == "local" else ()),
        )
        self._listener = Listener(
            server.respond,
            self._auth.tls.context,
            error_response=error_response,
            limits=limits,
            registry=telemetry.registry,
            metrics_prefix="milliscale_adapter",
        )
        self._pages = self._pages_served(options, checker)

    async def run(self, stop: asyncio.Event, again: asyncio.Event) -> None:
        """Serve until `stop` is set and the shutdown delay is over, which `again` ends at once."""
        await self._auth.trust.load_files()
        async with self._pages, asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._auth.run(), name="certificates and CAs"),
                tasks.create_task(self._rule_sets.run(), name="rule sets"),
                tasks.create_task(self._listings.run(), name="lists of series"),
                tasks.create_task(self._rules_file.run(), name="rules file"),
                tasks.create_task(self._objects.run(), name="objects"),
                tasks.create_task(self._forecasts.run(), name="forecasts"),
                tasks.create_task(self._rule_objects.run(), name="rule objects"),
                tasks.create_task(watch_loop(self._telemetry.loop_lag.observe), name="loop lag"),
                tasks.create_task(self._drop_telemetry(), name="drop telemetry"),
                tasks.create_task(self._freeze_gc(), name="freeze gc"),
            ]
            if self._statuses is not None:
                # It ends by itself after `stop`, once it has released the Lease.
                tasks.create_task(self._statuses.run(stop), name="statuses of rules")
            await self._listener.start(self._socket)
            _log.info("serving on https://%s", _shown_address(self._socket))
            try:
                await stop.wait()
                self._stopping = True
                await delayed(again, self._shutdown_delay)
            finally:
                _log.info("stopping")
                await self._listener.stop()
                for task in background:
                    task.cancel()
        _log.info("stopped")

    @asynccontextmanager
    async def _pages_served(self, options: ServeOptions, checker: RuleChecker) -> AsyncIterator[None]:
        """Serve the web pages until the end of the context, if they have an address. Raises ListenError."""
        if options.ui_address is None:
            yield
            return
        # Imported only here: templates take memory.
        from adapter.ui.pages import AdapterPages
        from adapter.ui.reports import Sources
        from kube.web.event_stream import EventStreams
        from kube.web.server import PageServer

        sources = Sources(
            rule_sets=self._rule_sets,
            rules_file=self._rules_file,
            default_server=options.prometheus.options,
            rule_checker=checker,
        )
        auth = None if options.ui_address.is_loopback else self._auth
        server = PageServer(
            AdapterPages(sources, None if auth is None else auth.authorizer),
            options.ui_address,
            auth=auth,
            registry=self._telemetry.registry,
            metrics_prefix="milliscale_adapter_ui",
            streams=EventStreams(options.settings.pages),
        )
        await server.start(server.bind())
        try:
            yield
        finally:
            await server.stop()

    def _forget(self, rules: Iterable[str]) -> None:
        """Remove what is known of rules that are gone."""
        self._telemetry.rules.forget(rules)
        self._forecasts.forget(rules)

    async def _freeze_gc(self) -> None:
        """Exclude the objects of the first lists from garbage collection, since they are long-lived."""
        await self._rule_sets.current.catalog.loaded.wait()
        await self._objects.wait_listed()
        await self._rule_objects.known.wait()
        freeze_gc()

    async def _drop_telemetry(self) -> None:
        """Drop the series of removed metrics periodically, even if nothing scrapes /metrics."""
        while True:
            await asyncio.sleep(_DROP_TELEMETRY_SECONDS)
            self._telemetry.drop_unknown_resources(self._rule_sets.current.router.knows)

    def _health(self) -> Health:
        return Health(
            live={},
            ready={
                "authentication": self._auth.trust.problem,
                "metrics": lambda: self._rule_sets.current.catalog.readiness(),
                # With exclude=metrics: a rollout does not end the old pods before the new ones know the metrics.
                "first-lists": lambda: self._rule_sets.first_lists(),
                **({"rule-objects": self._rule_objects.readiness} if self._rule_objects.enabled else {}),
                "shutdown": lambda: "the process is ending" if self._stopping else None,
            },
            notes={
                "rules-file": lambda: self._rules_file.note(),
                "rule-objects": self._rule_objects.note,
            },
        )


async def _connect(options: ServeOptions, stack: AsyncExitStack) -> dict[Path | None, KubeClient]:
    """Return one client per distinct kubeconfig."""
    clients: dict[Path | None, KubeClient] = {}
    for kubeconfig in dict.fromkeys(options.kubernetes.purposes):
        client = await KubeClient.connect(
            kubeconfig, user_agent="milliscale-adapter", settings=options.settings.api_server
        )
        clients[kubeconfig] = await stack.enter_async_context(client)
    return clients


def _shown_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def flags_of(context: click.Context) -> Flags:
    """Return the flags of `serve` that are given, without secrets."""
    return given_flags(context, parse={"prometheus-auth": lambda text: strictyaml.parse(text, source="")[0]})


async def config_page(options: ServeOptions) -> ConfigPage:
    """Return the page; the rules are those in the file now, if it is valid.

    An invalid file may have secrets anywhere, such as in headers under an unknown key.
    """

    def rules() -> Any:
        source = str(options.config)
        try:
            text = read_text(options.config)
            documents = strictyaml.parse(text, source=source)
            if len(documents) != 1:
                return None
            decode_rules(documents[0], source=source, text=text, directory=options.config.parent)
        except RulesError:
            return None
        return without_secrets(documents[0])

    # A large file takes a second.
    return ConfigPage(flags=options.flags, rules=await asyncio.to_thread(rules))


async def delayed(again: asyncio.Event, seconds: float) -> None:
    """Wait for so many seconds after a signal to stop, or until `again` is set, by a second signal.

    Upstream: genericapiserver.preparedGenericAPIServer.RunWithContext (ShutdownDelayDuration).
    """
    if seconds <= 0:
        return
    _log.info("stopping in %g s: readyz fails, requests are still served; a second signal stops at once", seconds)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await again.wait()
