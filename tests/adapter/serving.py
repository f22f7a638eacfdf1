"""A served adapter for tests: real TLS on loopback, a scripted API server behind it, and canned metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from adapter.catalog.inventory import CustomMetricInfo
from adapter.catalog.values import ExternalMetricValue, MetricValue, ObjectReference
from adapter.diagnosis import Explanation, Report
from adapter.metrics.requests import ALL_OBJECTS, CustomMetricRequest, ExternalMetricRequest
from adapter.metrics.usage import NodeUsage, PodUsage, Usage
from adapter.security.authentication import Authenticator, TokenReviewer
from adapter.security.authorization import AuthorizationOptions, Authorizer
from adapter.security.request_info import Query
from adapter.security.tls import CertificateFiles, ServingTLS
from adapter.security.trust import TrustOptions, TrustReloader
from adapter.serving.debug_pages import DebugPages
from adapter.serving.discovery import Discovery
from adapter.serving.health import Health
from adapter.serving.listener import Listener
from adapter.serving.requests import Request, RequestLines
from adapter.serving.resource_routes import UsageProvider
from adapter.serving.routes import Router
from adapter.serving.server import RequestServer, ServerLimits
from adapter.serving.telemetry import Telemetry
from kube.certs import CertificateAuthority, KeyPair
from kube.deadlines import NO_DEADLINE, Deadline
from kube.mapping import GroupResource
from kube.selectors import LabelSelector
from kube.status import not_found
from tests.eventually import eventually
from tests.kube.scripted import ScriptedServer, connected, scripted_server

FRONT_PROXY = "front-proxy-client"
SAMPLED_AT = 1_795_163_861.667
SAMPLED_TEXT = "2026-11-20T08:37:41Z"
POD_PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns-1/pods/pod-1-0/http_packets_per_second"
EXTERNAL_PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns-1/queue_depth"


@dataclass
class Authorities:
    """The cluster's authorities, and an impostor that carries the front proxy's name."""

    serving: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("serving-ca"))
    front_proxy: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("front-proxy-ca"))
    clients: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("kubernetes"))
    impostor: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("front-proxy-ca"))

    def config_map(self) -> dict[str, str]:
        """The data of kube-system/extension-apiserver-authentication."""
        return {
            "client-ca-file": self.clients.cert_pem.decode(),
            "requestheader-client-ca-file": self.front_proxy.cert_pem.decode(),
            "requestheader-allowed-names": json.dumps([FRONT_PROXY]),
            "requestheader-username-headers": json.dumps(["X-Remote-User"]),
            "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
            "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
        }


class AccessApi:
    """What the adapter asks an API server for: token reviews, access reviews and one ConfigMap."""

    def __init__(self, authorities: Authorities) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}
        self.allowed: Callable[[dict[str, Any]], bool] = lambda spec: spec["user"] == "bob"
        self.reason = ""
        self.refuse_with: int | None = None
        self.hold: asyncio.Event | None = None
        self.config_map: dict[str, str] | None = authorities.config_map()
        self.reviews: list[dict[str, Any]] = []
        self.asked_for: list[str] = []
        self.sent_events: list[str] = []
        self._version = 1
        self._changed = asyncio.Event()

    def publish(self, data: dict[str, str] | None) -> None:
        """Change the ConfigMap, or delete it, while it may be watched."""
        self.config_map = data
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def script(self, server: ScriptedServer) -> None:
        """Make a server answer like this."""
        server.handlers |= {
            "/api/v1/namespaces/kube-system/configmaps": self._config_maps,
            "/apis/authentication.k8s.io/v1/tokenreviews": self._review,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews": self._review,
        }

    async def _config_maps(self, request: web.Request) -> web.StreamResponse:
        """A collection of one or none, which can be listed and watched."""
        self.asked_for.append(request.query.get("fieldSelector", ""))
        if self.refuse_with is not None:
            status = {"kind": "Status", "message": "scripted", "code": self.refuse_with}
            return web.json_response(status, status=self.refuse_with)
        if request.query.get("watch") != "true":
            items = [] if self.config_map is None else [self._published()]
            return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        seen = int(request.query["resourceVersion"])
        while True:
            if seen == self._version:
                await self._changed.wait()
            seen = self._version
            kind = "DELETED" if self.config_map is None else "MODIFIED"
            await response.write(json.dumps({"type": kind, "object": self._published()}).encode() + b"\n")
            self.sent_events.append(kind)

    def _published(self) -> dict[str, Any]:
        name, version = "extension-apiserver-authentication", str(self._version)
        metadata = {"namespace": "kube-system", "name": name, "resourceVersion": version}
        return {"kind": "ConfigMap", "metadata": metadata, "data": self.config_map}

    async def _review(self, request: web.Request) -> web.StreamResponse:
        if self.hold is not None:
            await self.hold.wait()
        if self.refuse_with is not None:
            return web.json_response({"kind": "Status", "message": "scripted"}, status=self.refuse_with)
        review = await request.json()
        self.reviews.append(review)
        if review["kind"] == "TokenReview":
            user = self.tokens.get(review["spec"]["token"])
            return web.json_response(review | {"status": {"authenticated": user is not None, "user": user or {}}})
        allowed = self.allowed(review["spec"])
        return web.json_response(review | {"status": {"allowed": allowed, "reason": self.reason}})


def parsed_request(target: str, *, method: str = "GET", accept: str = "", user_agent: str = "") -> Request:
    """A request as the router sees it."""
    line = RequestLines(lambda _: False).parse(method, target)
    headers = {name: value for name, value in (("Accept", accept), ("User-Agent", user_agent)) if value}
    return Request(line, CIMultiDictProxy(CIMultiDict(headers)), NO_DEADLINE)


def bound_socket() -> socket.socket:
    """A free port on loopback, held."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening


class CannedMetrics:
    """Metrics that need no Prometheus.

    `hold` makes every request wait, `error` makes it fail.
    """

    def __init__(self) -> None:
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
        """Wait until a request is being held."""
        await asyncio.wait_for(self.holding.wait(), 60)

    async def _note(self, request: CustomMetricRequest | ExternalMetricRequest) -> None:
        self.requests.append({**msgspec.structs.asdict(request), "seconds": request.deadline.remaining()})
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

    async def pods(
        self, *, namespace: str, selector: LabelSelector, name: str = "", deadline: Deadline
    ) -> list[PodUsage]:
        """Pods without containers, in one namespace."""
        self.requests += 1
        return [
            PodUsage(
                namespace="shop",
                name=f"web-{number}",
                labels={},
                timestamp=SAMPLED_AT,
                window_seconds=300.0,
                containers=(),
            )
            for number in range(self.count)
        ]

    async def nodes(self, *, selector: LabelSelector, name: str = "", deadline: Deadline) -> list[NodeUsage]:
        """Nodes."""
        self.requests += 1
        usage = Usage(cpu_milli=1, memory_milli=1)
        return [
            NodeUsage(
                name=f"node-{number}",
                labels={},
                timestamp=SAMPLED_AT,
                window_seconds=300.0,
                usage=usage,
            )
            for number in range(self.count)
        ]


@dataclass
class CannedNames:
    """A catalog that never changes by itself."""

    custom: tuple[CustomMetricInfo, ...] = (
        CustomMetricInfo(GroupResource("", "pods"), "http_packets_per_second", namespaced=True),
        CustomMetricInfo(GroupResource("", "nodes"), "node_load", namespaced=False),
        CustomMetricInfo(GroupResource("networking.k8s.io", "ingresses"), "hits", namespaced=True),
    )
    external: tuple[str, ...] = ("queue_depth",)
    problem: str | None = None

    @property
    def custom_resources(self) -> frozenset[str]:
        return frozenset(str(info.resource) for info in self.custom)


@dataclass(frozen=True)
class Reply:
    """An answer, read."""

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

    async def respond(self, segments: tuple[str, ...], query: Query, *, deadline: Deadline) -> Report | Explanation:
        """The page."""
        return await self.pages.respond(segments, query, deadline=deadline)


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
        """The authorities have been read."""
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
        """Send one request on a connection of its own, showing a client certificate if one is given."""
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
        """Send one request as a member of system:masters, whom nothing is refused."""
        master = self.authorities.clients.issue("admin", organizations=["system:masters"], client=True)
        return await self.request(path, certificate=master, **arguments)

    def client_context(
        self, certificate: KeyPair | None = None, *, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """What a client needs to trust this server, with a certificate of its own if one is given."""
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
    usage: UsageProvider | None = None,
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
        adapter.tls = ServingTLS(files)
        adapter.trust = TrustReloader(
            trust or TrustOptions(), client, on_change=lambda current: adapter.tls.trust(current.pem)
        )
        health = Health(
            alive={"ping": lambda: None},
            ready={"catalog": lambda: adapter.names.problem, "authentication": adapter.trust.problem},
        )
        listening = bound_socket()
        adapter.port = listening.getsockname()[1]
        discovery = Discovery(adapter.names, custom=True, external=True, resource=usage is not None, port=adapter.port)
        authenticator = Authenticator(lambda: adapter.trust.current, TokenReviewer(client, ttl=token_ttl))
        router = Router(
            discovery=discovery,
            custom=adapter.metrics,
            external=adapter.metrics,
            health=health,
            telemetry=adapter.telemetry,
            usage=usage,
            debug=adapter.debug,
        )
        server = RequestServer(
            authenticator=authenticator,
            authorizer=Authorizer(client, authorization or AuthorizationOptions()),
            router=lambda: router,
            telemetry=adapter.telemetry,
            limits=limits,
        )
        adapter.listener = Listener(server, adapter.tls.context, limits, registry=adapter.telemetry.registry)
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


def write_pair(directory: Path, pair: KeyPair, name: str = "serving") -> CertificateFiles:
    """Put a certificate and its key into files."""
    files = CertificateFiles(directory / f"{name}.crt", directory / f"{name}.key")
    files.cert.write_bytes(pair.cert_pem)
    files.key.write_bytes(pair.key_pem)
    return files
