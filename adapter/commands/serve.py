"""The running adapter: everything that lives as long as the process, and who owns it.

    trust, TLS     keep authorities and the serving certificate current
    catalog        keeps the list of metrics current
    rules file     is taken up again when it changes
    objects        keep the pods, and other objects that are asked for, current
    forwarder      knows the metrics of another adapter, if there is one
    listener       answers requests from these

Nothing waits for anything else at the start: the listener answers at once, discovery with what the catalog has, which
is nothing at first, and readyz with what is still missing. One TaskGroup owns the tasks: should one of them end by a
bug, the process ends and is started anew, rather than living on by half. On SIGTERM or Ctrl-C no connection is
accepted any more, requests in flight may end, and then the tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import socket
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from adapter.catalog.catalog import Catalog
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.commands.options import ServeOptions, ServingOptions
from adapter.commands.prometheus_auth import authorized_options
from adapter.commands.reload import RulesReloader
from adapter.diagnosis.probe import Probe
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forward import Forwarder, MergedNames
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.metrics.watched_objects import WatchedObjects
from adapter.planning.merged import MergedQueries
from adapter.planning.rule_queries import RuleQueries
from adapter.planning.shared_queries import SharedQueries
from adapter.prometheus import MemoryBudget, PrometheusServers
from adapter.rules import RulesFile
from adapter.security.authentication import Authenticator, TokenReviewer
from adapter.security.authorization import Authorizer
from adapter.security.tls import ServingTLS, self_signed_files
from adapter.security.trust import TrustKeeper
from adapter.serving.debug_pages import DebugPages
from adapter.serving.discovery import Discovery
from adapter.serving.health import Health
from adapter.serving.routes import Router
from adapter.serving.server import Listener, RequestServer
from adapter.serving.telemetry import Telemetry
from kube.client import KubeClient
from kube.client_metrics import ClientMetrics
from kube.loop_lag import watch_loop
from kube.mapping import RestMapper
from kube.process import settle_memory, stopped_by_signals

__all__ = ["ListenError", "serve"]

_log = logging.getLogger(__name__)

_UNSPECIFIED = ("", "0.0.0.0", "::")  # noqa: S104  (what is compared, not what is bound)


class ListenError(OSError):
    """The address cannot be listened on; the message says which and why."""


@dataclass(frozen=True, slots=True)
class _Clients:
    """The API server, for each purpose."""

    lister: KubeClient
    authentication: KubeClient
    authorization: KubeClient

    @property
    def distinct(self) -> set[KubeClient]:
        """Each once."""
        return {self.lister, self.authentication, self.authorization}


async def serve(options: ServeOptions, rules: RulesFile) -> None:
    """Serve the metrics of `rules` until SIGTERM or SIGINT.

    Raises:
        ListenError: the address is taken, or not ours.
        TLSError: the serving certificate cannot be used or made.
        TrustError: an authority's file cannot be used.
        KubeConfigError: there is no usable configuration for the API server.
        PrometheusConfigError: the credentials for Prometheus cannot be used.
    """
    stop = asyncio.Event()
    with stopped_by_signals(stop), authorized_options(options.prometheus) as prometheus_options:
        async with AsyncExitStack() as stack:
            clients = await _connect(options, stack)
            telemetry = Telemetry()
            telemetry.registry.register(ClientMetrics(clients.distinct))
            rule_telemetry = RuleTelemetry(telemetry.registry)
            prometheus = await stack.enter_async_context(
                PrometheusServers(
                    prometheus_options,
                    observe=rule_telemetry.asked,
                    budget=MemoryBudget(options.prometheus.response_memory),
                )
            )
            forwarder = await stack.enter_async_context(
                Forwarder(
                    rules.forward,
                    relist_interval=options.catalog.relist_interval,
                    freshness=options.catalog.freshness,
                )
            )
            listening = stack.enter_context(closing(_bind(options.serving)))
            queries = await stack.enter_async_context(SharedQueries(prometheus, freshness=options.catalog.freshness))
            upstream = _Upstream(prometheus, queries, forwarder, rule_telemetry)
            await _Adapter(options, rules, clients, upstream, telemetry, listening).run(stop)


@dataclass(frozen=True, slots=True)
class _Upstream:
    """Where values come from, and who is told how that goes."""

    prometheus: PrometheusServers
    queries: SharedQueries
    forwarder: Forwarder
    telemetry: RuleTelemetry


class _Adapter:
    """The parts, put together."""

    def __init__(
        self,
        options: ServeOptions,
        rules: RulesFile,
        clients: _Clients,
        upstream: _Upstream,
        telemetry: Telemetry,
        listening: socket.socket,
    ) -> None:
        serving = options.serving
        files = serving.certificate or self_signed_files(serving.cert_dir, now=datetime.datetime.now(datetime.UTC))
        self._tls = ServingTLS(
            files, named=serving.named_certificates, minimum=serving.minimum_tls, ciphers=serving.ciphers
        )
        self._trust = TrustKeeper(
            options.trust, clients.authentication, on_change=lambda trust: self._tls.trust(trust.pem)
        )
        mapper = RestMapper(clients.lister)
        self._upstream = upstream
        self._catalog = Catalog(
            rules,
            upstream.prometheus,
            mapper,
            relist_interval=options.catalog.relist_interval,
            max_age=options.catalog.max_age,
            telemetry=upstream.telemetry,
        )
        self._queries = RuleQueries(upstream.queries, telemetry=upstream.telemetry)
        # Where nothing is kept, a query for all objects would be sent for each of them.
        self._merged = MergedQueries(upstream.queries) if options.catalog.freshness else None
        self._objects = WatchedObjects(clients.lister, pods=rules.serves_custom or rules.resource is not None)
        self._usage = ResourceMetrics(rules.resource, self._queries, self._objects, merged=self._merged)
        self._rules_file = RulesReloader(options.config, rules, self._take_up, telemetry=upstream.telemetry)
        self._discovery = Discovery(
            MergedNames(self._catalog, upstream.forwarder),
            custom=rules.serves_custom,
            external=rules.serves_external,
            resource=rules.resource is not None,
            port=listening.getsockname()[1],
        )
        self._stopping = False
        self._socket = listening
        self._telemetry = telemetry
        authenticator = Authenticator(
            lambda: self._trust.current, TokenReviewer(clients.authentication, ttl=options.token_ttl)
        )
        self._listener = Listener(
            self._request_server(options, clients, mapper, telemetry, authenticator),
            self._tls.context,
            serving.limits,
            registry=telemetry.registry,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        await self._trust.load_files()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._trust.run(), name="trust"),
                tasks.create_task(self._tls.run(), name="serving certificate"),
                tasks.create_task(self._catalog.run(), name="catalog"),
                tasks.create_task(self._rules_file.run(), name="rules file"),
                tasks.create_task(self._objects.run(), name="objects"),
                tasks.create_task(watch_loop(self._telemetry.loop_lag.observe), name="loop lag"),
                tasks.create_task(self._upstream.forwarder.run(), name="forwarder"),
                tasks.create_task(self._settle_memory(), name="settle memory"),
            ]
            await self._listener.start(self._socket)
            _log.info("serving on https://%s", _shown_address(self._socket))
            try:
                await stop.wait()
            finally:
                _log.info("stopping")
                self._stopping = True
                await self._listener.stop()
                for task in background:
                    task.cancel()
        _log.info("stopped")

    async def _settle_memory(self) -> None:
        """Once the first lists have come: they stay, and full passes of the garbage collector need not look at them."""
        await self._catalog.wait_loaded()
        await self._objects.wait_listed()
        settle_memory()

    async def _take_up(self, rules: RulesFile) -> None:
        """Put other rules in force. Requests in flight end with the rules, and the servers, that they began with."""
        self._queries.forget()
        self._upstream.queries.forget()
        if self._merged is not None:
            self._merged.forget()
        self._catalog.take_up(rules)
        self._upstream.forwarder.take_up(rules.forward)
        self._usage.take_up(rules.resource)
        self._discovery.serve_groups(
            custom=rules.serves_custom, external=rules.serves_external, resource=rules.resource is not None
        )
        await self._upstream.prometheus.keep(rules.servers)

    def _request_server(
        self,
        options: ServeOptions,
        clients: _Clients,
        mapper: RestMapper,
        telemetry: Telemetry,
        authenticator: Authenticator,
    ) -> RequestServer:
        router = Router(
            discovery=self._discovery,
            custom=CustomMetrics(self._catalog, self._queries, self._objects, mapper, merged=self._merged),
            external=ExternalMetrics(
                self._catalog, self._queries, forwarder=self._upstream.forwarder, merged=self._merged
            ),
            health=Health(
                alive={"ping": lambda: None},
                ready={
                    "authentication": self._trust.problem,
                    "metrics": self._catalog.readiness,
                    "shutdown": lambda: "the process is ending" if self._stopping else None,
                },
                told={"rules-file": self._rules_file.remark},
            ),
            telemetry=telemetry,
            usage=self._usage,
            debug=DebugPages(self._catalog, mapper, self._probe(mapper)),
        )
        return RequestServer(
            authenticator=authenticator,
            authorizer=Authorizer(clients.authorization, options.authorization),
            router=router,
            telemetry=telemetry,
            discovery=self._discovery,
            limits=options.serving.limits,
        )

    def _probe(self, mapper: RestMapper) -> Probe:
        upstream = self._upstream
        return Probe(self._catalog, upstream.prometheus, self._objects, mapper, forwarder=upstream.forwarder)


async def _connect(options: ServeOptions, stack: AsyncExitStack) -> _Clients:
    """A client for each purpose; purposes with the same kubeconfig share one."""
    pools: dict[Path | None, KubeClient] = {}
    wanted = options.kubernetes
    for kubeconfig in (wanted.lister, wanted.authentication, wanted.authorization):
        if kubeconfig not in pools:
            client = await KubeClient.connect(kubeconfig, user_agent="milliscale-adapter")
            pools[kubeconfig] = await stack.enter_async_context(client)
    return _Clients(pools[wanted.lister], pools[wanted.authentication], pools[wanted.authorization])


def _bind(serving: ServingOptions) -> socket.socket:
    """The listening socket. The unspecified address means all addresses, of both families where there are two."""
    address = (serving.bind_address.strip("[]"), serving.port)
    try:
        if address[0] in _UNSPECIFIED and socket.has_dualstack_ipv6():
            return socket.create_server(("::", serving.port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ListenError(f"cannot listen on {serving.bind_address} port {serving.port}: {reason}") from error


def _shown_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
