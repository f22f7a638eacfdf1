"""The HTTPS server: authentication, authorization, and routing of requests.

TLS -> identity -> rbac -> aggregation, or else discovery, reviews and stored resources (rest)
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from kube.api.mapping import GroupResource
from kube.api.status import StatusError, unauthorized
from playground.apiserver import openapi
from playground.apiserver.aggregation import Aggregator
from playground.apiserver.audit import RequestCounts
from playground.apiserver.bootstrap import bootstrap_objects
from playground.apiserver.discovery import Discovery
from playground.apiserver.encoding import negotiate
from playground.apiserver.errors import no_such_object, no_such_resource, not_in_the_demo
from playground.apiserver.identity import ANONYMOUS, MASTERS, TokenIssuer, User, from_certificate
from playground.apiserver.objects import Object, namespace_of
from playground.apiserver.pki import Pki
from playground.apiserver.rbac import Access, RbacAuthorizer
from playground.apiserver.registry import ObjectRegistry
from playground.apiserver.requests import RequestInfo
from playground.apiserver.resource_types import resource_type_of_kind
from playground.apiserver.rest import Call, ResourceHandler, json_response
from playground.apiserver.reviews import Reviews
from playground.apiserver.storage import Storage

_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
_MAX_BODY: Final = 3 * 1024 * 1024
_VERSION: Final[Object] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+playground",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_HEALTH_PATHS: Final = ("/healthz", "/livez", "/readyz")


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class PlaygroundApiServer:
    """A Kubernetes API server in this process, with its data in memory; an async context manager.

    Attributes:
        storage: the objects; tests read and compact it.
        requests: counts of requests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bookmark_seconds: float = 60.0,
        availability_seconds: float = 5.0,
        now: Callable[[], datetime.datetime] = _utc_now,
    ) -> None:
        """Configure a server; nothing is opened yet.

        Args:
            folder: for certificates and kubeconfigs; created if missing.
            host: the address to listen on.
            port: the port, or 0 for a free one.
            bookmark_seconds: between two bookmarks of a watch.
            availability_seconds: between two checks of an aggregated API.
            now: the wall clock, for timestamps, ages and the expiry of tokens.
        """
        self._folder = folder
        self._host = host
        self._port = port
        self._now = now
        self._pki: Pki | None = None
        self._runner: web.AppRunner | None = None
        self.storage = Storage()
        self.requests = RequestCounts()
        self._registry = ObjectRegistry(self.storage, now=now)
        self._tokens = TokenIssuer(self.storage, now=now)
        self._authorizer = RbacAuthorizer(self.storage)
        self._discovery = Discovery(self.storage)
        self._resources = ResourceHandler(
            self.storage,
            self._registry,
            Reviews(self.storage, self._authorizer, self._tokens, now=now),
            bookmark_seconds=bookmark_seconds,
            now=now,
        )
        self._aggregator = Aggregator(self.storage, self._registry, check_seconds=availability_seconds, now=now)

    async def __aenter__(self) -> Self:
        self._pki = await asyncio.to_thread(Pki.create, self._folder)
        for obj in bootstrap_objects(
            client_ca=self._pki.client_ca.cert_pem, requestheader_ca=self._pki.requestheader_ca.cert_pem
        ):
            self.create(obj)
        await self._aggregator.start(self._pki.front_proxy)
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hang_up()
        await self._aggregator.stop()

    async def listen(self) -> None:
        """Accept connections; after `hang_up` on the same port as before."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.pki.client_ca_file))
        context.load_cert_chain(self.pki.serving.certificate, self.pki.serving.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # Requests in flight are mostly watches, which would last for minutes: they are cancelled.
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=context)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def hang_up(self) -> None:
        """Close the listener and all connections, and keep the objects: an outage until `listen`."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"https://{self._host}:{self._port}"

    @property
    def pki(self) -> Pki:
        """The certificates. The server must have been started."""
        assert self._pki is not None, "the server has not been started"
        return self._pki

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] = (MASTERS,)) -> Path:
        """Write a kubeconfig with a new client certificate for a user, by default a cluster admin."""
        return self.pki.kubeconfig(self.url, user, groups)

    def token(self, namespace: str, service_account: str, *, seconds: int = 3600) -> str:
        """Return a token of a service account. Raises StatusError 404 if it does not exist."""
        account = self.storage.get(_SERVICE_ACCOUNTS, namespace, service_account)
        if account is None:
            raise no_such_object(_SERVICE_ACCOUNTS, service_account)
        return self._tokens.issue(account, seconds=seconds)

    def create(self, obj: Object) -> Object:
        """Create an object with its status, which the API would drop. Raises StatusError as the API does."""
        kind = resource_type_of_kind(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise no_such_resource()
        status = obj.get("status")
        namespace = (namespace_of(obj) or "default") if kind.namespaced else ""
        created = self._registry.create(kind, namespace, {**obj, "metadata": {**obj["metadata"]}})
        if status is None:
            return created
        return self._registry.update(
            kind, namespace, created["metadata"]["name"], {**created, "status": status}, subresource="status"
        )

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._serve(request)
        except StatusError as error:
            response = json_response(error.body(), error.code)
            if error.retry_after is not None:
                response.headers["Retry-After"] = str(error.retry_after)
            return response

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        info = RequestInfo.parse(request.method, request.rel_url.raw_path, request.query)
        user = self._authenticate(request)
        self.requests.record(user, info)
        access = Access.of(info)
        if not self._authorizer.allowed(user, access):
            raise access.refusal(user)
        service = self._aggregator.service_for(info.path)
        if service is not None:
            return await self._aggregator.forward(service, request, user)
        if "Impersonate-User" in request.headers:
            raise not_in_the_demo("it has no impersonation; leave out --as")
        if info.is_resource:
            call = Call(request, info, user, negotiate(request.headers.get("Accept", "")))
            return await self._resources.handle(call)
        if info.path.startswith("/openapi/"):
            return await self._openapi(info.path)
        return self._document(info.path.rstrip("/"))

    def _authenticate(self, request: web.Request) -> User:
        transport = request.transport
        certificate: dict[str, Any] | None = transport.get_extra_info("peercert") if transport else None
        encryption = transport.get_extra_info("ssl_object") if transport else None
        der: bytes = (encryption.getpeercert(binary_form=True) if encryption is not None else None) or b""
        user = from_certificate(certificate, der)
        if user is not None:
            return user
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS
        if scheme.lower() != "bearer" or not token:
            raise unauthorized()
        return self._tokens.authenticate(token.strip())

    def _document(self, path: str) -> web.Response:
        """Return what is not a resource: health and discovery."""
        if path in _HEALTH_PATHS:
            return web.Response(text="ok")
        document = self._discovered(path)
        if document is None:
            raise no_such_resource()
        return json_response(document)

    @staticmethod
    async def _openapi(path: str) -> web.Response:
        found: Object | None = None
        match path.strip("/").split("/"):
            case ["openapi", "v2"]:
                return web.Response(content_type=openapi.PROTOBUF_V2)
            case ["openapi", "v3"]:
                found = openapi.group_versions()
            case ["openapi", "v3", "api", version]:
                found = await asyncio.to_thread(openapi.document, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = await asyncio.to_thread(openapi.document, group, version)
        if found is None:
            raise no_such_resource()
        return json_response(found)

    def _discovered(self, path: str) -> Object | None:
        match path.strip("/").split("/"):
            case [""]:
                return self._discovery.paths()
            case ["version"]:
                return _VERSION
            case ["api"]:
                return self._discovery.legacy_versions(self.url.removeprefix("https://"))
            case ["api", version]:
                return self._discovery.resources("", version)
            case ["apis"]:
                return self._discovery.groups()
            case ["apis", group]:
                return self._discovery.group(group)
            case ["apis", group, version]:
                return self._discovery.resources(group, version)
        return None
