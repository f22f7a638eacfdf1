"""A served adapter for tests: real TLS on loopback, a scripted API server behind it, and canned metrics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import socket
import ssl
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, overload

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from adapter.catalog.inventory import CustomMetricInfo
from adapter.content.values import ExternalMetricValue, MetricValue, ObjectReference, ObjectUsage, Usage
from adapter.diagnosis.report import Report
from adapter.metrics.requests import ALL_OBJECTS, CustomMetricRequest, ExternalMetricRequest
from adapter.serving.debug_pages import DebugPages
from adapter.serving.discovery import Discovery
from adapter.serving.routes import Request, Router
from adapter.serving.server import RequestLines, RequestServer, error_response
from adapter.serving.usage_routes import usage_response
from adapter.telemetry import Telemetry
from kube.api.mapping import GroupResource
from kube.api.status import not_found
from kube.process.config_page import ConfigPage
from kube.security.authorization import AuthorizationOptions
from kube.security.request_info import Query
from kube.security.tls import ServingTLS, TLSOptions
from kube.security.trust import TrustOptions, TrustReloader
from kube.serving.connection import overload_check
from kube.serving.delegated import DelegatedAuth
from kube.serving.health import Health
from kube.serving.listener import Listener
from kube.serving.options import AuthOptions, ServerLimits
from kube.values.selectors import LabelSelector
from kube.web.explanation import Explanation
from playground.certs import KeyPair
from tests.eventually import eventually
from tests.kube.access_api import AccessApi, Authorities, write_pair
from tests.kube.scripted import connected, scripted_server

SAMPLED_AT = 1_795_163_861.667
SAMPLED_TEXT = "2026-11-20T08:37:41Z"
POD_PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns-1/pods/pod-1-0/http_packets_per_second"
EXTERNAL_PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns-1/queue_depth"


def parsed_request(target: str, *, method: str = "GET", accept: str = "", user_agent: str = "") -> Request:
    """A request as the router sees it."""
    line = RequestLines(lambda _: False).parse(method, target)
    headers = {name: value for name, value in (("Accept", accept), ("User-Agent", user_agent)) if value}
    return Request(line, CIMultiDictProxy(CIMultiDict(headers)), math.inf)


def bound_socket() -> socket.socket:
    """Return a socket bound to a free port on loopback."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening


class CannedMetrics:
    """Metrics that need no Prometheus.

    `hold` blocks every request, `error` makes it fail.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew, for another test."""
        self.requests: list[dict[str, Any]] = []
        self.milli = 99_994
        self.count = 1
        self.hold: asyncio.Event | None = None
        self.holding = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.error: Exception | None = None

    @overload
    async def values(self, request: CustomMetricRequest) -> list[MetricValue]: ...
    @overload
    async def values(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]: ...
    async def values(
        self, request: CustomMetricRequest | ExternalMetricRequest
    ) -> list[MetricValue] | list[ExternalMetricValue]:
        """One object's value, or those of `count` objects or series."""
        await self._note(request)
        if isinstance(request, ExternalMetricRequest):
            return [
                ExternalMetricValue(
                    metric=request.metric,
                    labels={"queue": f"q{number}", "tier": "silver"},
                    timestamp=SAMPLED_AT,
                    window_seconds=None,
                    milli=1_001_000,
                )
                for number in range(1, self.count + 1)
            ]
        if request.name == ALL_OBJECTS:
            return [self._value(request, f"object-{number}") for number in range(self.count)]
        if request.metric == "nosuch":
            raise not_found(f"the server could not find the metric nosuch for {request.resource}")
        return [self._value(request, request.name)]

    async def held(self) -> None:
        """Wait until a request is blocked."""
        await asyncio.wait_for(self.holding.wait(), 60)

    async def _note(self, request: CustomMetricRequest | ExternalMetricRequest) -> None:
        self.requests.append(
            {**msgspec.structs.asdict(request), "seconds": request.deadline - asyncio.get_running_loop().time()}
        )
        if self.error is not None:
            raise self.error
        if self.hold is not None:
            self.holding.set()
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

    def _value(self, request: CustomMetricRequest, name: str) -> MetricValue:
        kind = {"namespaces": "Namespace", "nodes": "Node"}.get(request.resource, "Pod")
        return MetricValue(
            described_object=ObjectReference(api_version="v1", kind=kind, namespace=request.namespace, name=name),
            metric=request.metric,
            selector=None if request.metric_selector.empty else request.metric_selector,
            timestamp=SAMPLED_AT,
            window_seconds=None,
            milli=self.milli,
        )


class CannedUsage:
    """`count` pods and nodes."""

    def __init__(self) -> None:
        self.requests = 0
        self.count = 1

    async def usages(
        self, resource: str, *, namespace: str, selector: LabelSelector, name: str = "", deadline: float
    ) -> list[ObjectUsage]:
        """Pods without containers, in one namespace, or nodes."""
        self.requests += 1
        is_pod = resource == "pods"
        only = (Usage(cpu_milli=1, memory_milli=1),)
        return [
            ObjectUsage(
                namespace="shop" if is_pod else "",
                name=f"{'web' if is_pod else 'node'}-{number}",
                labels={},
                timestamp=SAMPLED_AT,
                window_seconds=300.0,
                containers=() if is_pod else only,
            )
            for number in range(self.count)
        ]


@dataclass
class CannedNames:
    """A catalog that changes only when a test changes it."""

    custom_metrics: tuple[CustomMetricInfo, ...] = (
        CustomMetricInfo(GroupResource("", "pods"), "http_packets_per_second", namespaced=True),
        CustomMetricInfo(GroupResource("", "nodes"), "node_load", namespaced=False),
        CustomMetricInfo(GroupResource("networking.k8s.io", "ingresses"), "hits", namespaced=True),
    )
    external_metrics: tuple[str, ...] = ("queue_depth",)
    problem: str | None = None

    @property
    def custom(self) -> tuple[tuple[CustomMetricInfo, ...]]:
        return (self.custom_metrics,)

    @property
    def external(self) -> tuple[tuple[str, ...]]:
        return (self.external_metrics,)

    def has_custom(self, resource: str) -> bool:
        return any(resource == str(info.resource) for info in self.custom_metrics)


@dataclass(frozen=True)
class Reply:
    """A response that has been read."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def content_type(self) -> str:
        """The Content-Type header."""
        return str(self.headers["Content-Type"])


class CannedDebug:
    """/debug, once a test has put pages there."""

    def __init__(self) -> None:
        self.pages: DebugPages

    async def respond(self, segments: tuple[str, ...], query: Query) -> Report | Explanation | ConfigPage:
        """The page."""
        return await self.pages.respond(segments, query)


class ServedAdapter:
    """The adapter under test, and a client of it."""

    def __init__(self, directory: Path, authorities: Authorities, api: AccessApi) -> None:
        self.authorities = authorities
        self.api = api
        self.metrics = CannedMetrics()
        self.names = CannedNames()
        self.debug = CannedDebug()
        self.telemetry = Telemetry()
        self.tls: ServingTLS
        self.trust: TrustReloader
        self.listener: Listener
        self.port = 0
        self._directory = directory

    async def believes(self) -> bool:
        """Return whether the CAs have been read."""
        return self.trust.problem() is None

    async def request(
        self,
        path: str,
        *,
        method: str = "GET",
        certificate: KeyPair | None = None,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        timeout: float = 30.0,
        **context: Any,
    ) -> Reply:
        """Send one request on a new connection, with the client certificate if one is given."""
        connector = aiohttp.TCPConnector(ssl=self.client_context(certificate, **context))
        url = URL(f"https://127.0.0.1:{self.port}{path}", encoded=True)
        async with (
            aiohttp.ClientSession(
                connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=timeout)
            ) as session,
            session.request(method, url, headers=headers, skip_auto_headers=["Accept", "Accept-Encoding"]) as response,
        ):
            return Reply(response.status, response.headers.copy(), await response.read())

    async def request_as_master(self, path: str, **arguments: Any) -> Reply:
        """Send one request as a member of system:masters, which has all rights."""
        return await self.request(path, certificate=self._master, **arguments)

    @functools.cached_property
    def _master(self) -> KeyPair:
        return self.authorities.clients.issue("admin", organizations=["system:masters"], client=True)

    def client_context(
        self, certificate: KeyPair | None = None, *, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """Return a TLS context that trusts this server, with the client certificate if one is given."""
        context = ssl.create_default_context(cadata=self.authorities.serving.cert_pem.decode())
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if certificate is not None:
            path = self._directory / "client.pem"
            path.write_bytes(certificate.cert_pem + certificate.key_pem)
            context.load_cert_chain(path)
        return context


@contextlib.asynccontextmanager
async def served_adapter(
    directory: Path,
    *,
    authorities: Authorities | None = None,
    trust: TrustOptions | None = None,
    limits: ServerLimits | None = None,
    authorization: AuthorizationOptions | None = None,
    token_ttl: float = 10.0,
    usage: Any = None,
    local_paths: Collection[str] = (),
) -> AsyncIterator[ServedAdapter]:
    """Serve canned metrics as `python -m adapter serve` would, with the authorities read from the ConfigMap."""
    authorities = authorities or Authorities()
    api = AccessApi(authorities)
    limits = limits or ServerLimits(shutdown_seconds=5.0)
    # The default is more than an ordinary user's limit of 1024 open files admits, and that would be logged.
    limits = replace(limits, connections=min(limits.connections, 200))
    adapter = ServedAdapter(directory, authorities, api)
    files = write_pair(directory, authorities.serving.issue("adapter", hosts=["127.0.0.1", "localhost"], server=True))
    async with scripted_server() as api_server, connected(api_server, directory) as client:
        api.script(api_server)
        auth = DelegatedAuth(
            AuthOptions(
                tls=TLSOptions(certificate=files),
                trust=trust or TrustOptions(),
                token_ttl=token_ttl,
                authorization=authorization or AuthorizationOptions(),
            ),
            authentication_client=client,
            authorization_client=client,
        )
        adapter.tls, adapter.trust = auth.tls, auth.trust
        health = Health(
            live={},
            ready={"catalog": lambda: adapter.names.problem, "authentication": adapter.trust.problem},
        )
        listening = bound_socket()
        adapter.port = listening.getsockname()[1]
        discovery = Discovery(
            cast("Any", adapter.names), custom=True, external=True, resource=usage is not None, port=adapter.port
        )
        router = Router(
            discovery=discovery,
            custom=cast("Any", adapter.metrics),
            external=cast("Any", adapter.metrics),
            health=health,
            telemetry=adapter.telemetry,
            usage=None if usage is None else functools.partial(usage_response, usage),
            debug=cast("Any", adapter.debug),
        )
        server = RequestServer(
            authenticator=auth.authenticator,
            authorizer=auth.authorizer,
            rule_sets=cast("Any", SimpleNamespace(current=SimpleNamespace(router=router))),
            telemetry=adapter.telemetry,
            limits=limits,
            is_overloaded=overload_check(limits),
            local_paths=local_paths,
        )
        adapter.listener = Listener(
            server.respond,
            adapter.tls.context,
            error_response=error_response,
            limits=limits,
            registry=adapter.telemetry.registry,
            metrics_prefix="milliscale_adapter",
        )
        await adapter.trust.load_files()
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(adapter.trust.run())
            await adapter.listener.start(listening)
            await eventually(adapter.believes, within=10.0, every=0.001)
            try:
                yield adapter
            finally:
                await adapter.listener.stop()
                keeping.cancel()
