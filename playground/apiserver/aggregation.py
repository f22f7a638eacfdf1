"""The aggregation layer: forwards requests for an APIService's group version to its server. Upstream: kube-aggregator.

The user is in X-Remote-* headers, authenticated by the front proxy's client certificate. The server's certificate is
verified with caBundle for the name SERVICE.NAMESPACE.svc. A loop requests each server's discovery document; only
servers that respond get other requests.

There is no cluster network, so the Service of an APIService must have the type ExternalName, such as `localhost`; its
port is the APIService's. A real kube-apiserver takes the same objects.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime
import logging
import ssl
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from kube.api.mapping import GroupResource
from kube.api.status import StatusError
from playground.apiserver.discovery import API_SERVICES
from playground.apiserver.forwarded import forwarded_headers, own_headers
from playground.apiserver.identity import MASTERS, User
from playground.apiserver.objects import Object, child, name_of, text_time
from playground.apiserver.pki import KeyPairFiles
from playground.apiserver.registry import ObjectRegistry
from playground.apiserver.resource_types import ResourceType, find_resource_type
from playground.apiserver.storage import Storage

_log = logging.getLogger(__name__)

_SERVICES: Final = GroupResource("", "services")
_CHECKER: Final = User("system:kube-aggregator", (MASTERS,))
_CHECK_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=60.0, connect=10.0)
_WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=10.0)
_CHUNK: Final = 64 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
# Headers of the connection, and those that are set here.
_DROPPED_ANSWER_HEADERS: Final = (
    *("audit-id", "connection", "content-length", "date", "keep-alive", "server", "trailer", "transfer-encoding"),
    "upgrade",
)


@dataclass(frozen=True, slots=True)
class AggregatedService:
    """The server of an APIService."""

    name: str
    group: str
    version: str
    service_namespace: str
    service_name: str
    port: int
    ca_bundle: str
    insecure: bool
    available: bool

    @property
    def path(self) -> str:
        """The root of its API."""
        return f"/apis/{self.group}/{self.version}"

    @property
    def server_name(self) -> str:
        """The name in its certificate."""
        return f"{self.service_name}.{self.service_namespace}.svc"

    @property
    def host(self) -> str:
        """The Host header."""
        return f"{self.server_name}:{self.port}"


class _UnavailableError(Exception):
    """A server is unavailable: a condition's reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Aggregator:
    """Forwards requests, and updates the Available conditions of APIServices."""

    def __init__(
        self,
        storage: Storage,
        registry: ObjectRegistry,
        *,
        check_seconds: float,
        now: Callable[[], datetime.datetime],
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._check_seconds = check_seconds
        self._now = now
        self._changed = asyncio.Event()
        self._front_proxy: KeyPairFiles | None = None
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self, front_proxy: KeyPairFiles) -> None:
        """Start the checks; `front_proxy` is the client certificate for aggregated servers."""
        self._front_proxy = front_proxy
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "User-Agent"),  # only the client's own
        )
        self._task = asyncio.create_task(self._run(), name="aggregator")

    async def stop(self) -> None:
        """End the checks and close all connections."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._session is not None:
            await self._session.close()

    def service_for(self, path: str) -> AggregatedService | None:
        """Return the server of a path; None if it is served locally."""
        match path.strip("/").split("/"):
            case ["apis", group, version, *_]:
                found = self._storage.get(API_SERVICES, "", f"{version}.{group}")
                return _read(found) if found is not None else None
        return None

    async def forward(self, service: AggregatedService, request: web.Request, user: User) -> web.StreamResponse:
        """Forward a request as its user, and stream the response."""
        if not service.available:
            return _unavailable("service unavailable")
        audit_id = request.headers.get("Audit-Id") or str(uuid.uuid4())
        headers = forwarded_headers(
            request.headers.items(),
            user,
            host=service.host,
            path=request.rel_url.raw_path,
            client=request.remote or "",
            audit_id=audit_id,
        )
        watches = request.query.get("watch") in ("true", "1")
        try:
            relayed = await self._open().request(
                request.method,
                self._url(service, request.rel_url.raw_path_qs),
                headers=headers,
                data=request.content if request.can_read_body else None,
                timeout=_WATCH_TIMEOUT if watches else _REQUEST_TIMEOUT,
                ssl=self._context(service),
                server_hostname=service.server_name,
                allow_redirects=False,
            )
        except _UnavailableError:
            return _unavailable("service unavailable")
        except (aiohttp.ClientError, OSError) as error:
            return _unavailable(f"error trying to reach service: {error or type(error).__name__}")
        async with relayed:
            return await _relay(relayed, request, audit_id)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for resource in (API_SERVICES, _SERVICES):
                group.create_task(self._follow(resource))
            while True:
                self._changed.clear()
                await self._check_all()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._check_seconds):
                        await self._changed.wait()

    async def _follow(self, resource: GroupResource) -> None:
        """Trigger a check when a spec changes."""
        with contextlib.closing(self._storage.subscribe(resource, self._storage.revision)) as changes:
            while True:
                change = await changes.next()
                if change.previous is None or change.previous.get("spec") != change.object.get("spec"):
                    self._changed.set()

    async def _check_all(self) -> None:
        services = [_read(obj) for obj in self._storage.objects(API_SERVICES)]
        await asyncio.gather(*(self._check(service) for service in services if service is not None))

    async def _check(self, service: AggregatedService) -> None:
        try:
            await self._check_discovery(service)
        except _UnavailableError as error:
            self._set_available(service, "False", error.reason, str(error))
        else:
            self._set_available(service, "True", "Passed", "all checks passed")

    async def _check_discovery(self, service: AggregatedService) -> None:
        url = self._url(service, service.path)
        headers = own_headers(_CHECKER, host=service.host)
        try:
            async with self._open().get(
                url,
                headers=headers,
                timeout=_CHECK_TIMEOUT,
                ssl=self._context(service),
                server_hostname=service.server_name,
            ) as relayed:
                status = relayed.status
        except TimeoutError as error:
            raise _UnavailableError(
                "FailedDiscoveryCheck",
                f'failing or missing response from {url}: Get "{url}": context deadline exceeded',
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _UnavailableError(
                "FailedDiscoveryCheck", f'failing or missing response from {url}: Get "{url}": {error}'
            ) from error
        if not 200 <= status < 300:
            raise _UnavailableError(
                "FailedDiscoveryCheck", f"failing or missing response from {url}: bad status from {url}: {status}"
            )

    def _url(self, service: AggregatedService, path: str) -> URL:
        namespace, name = service.service_namespace, service.service_name
        found = self._storage.get(_SERVICES, namespace, name)
        if found is None:
            raise _UnavailableError("ServiceNotFound", f'service/{name} in "{namespace}" is not present')
        host = child(found, "spec").get("externalName")
        if child(found, "spec").get("type") != "ExternalName" or not host:
            raise _UnavailableError(
                "ServiceAccessError",
                f'service/{name} in "{namespace}" cannot be reached: there is no cluster network here, '
                "only Services of type ExternalName work",
            )
        try:
            return URL(f"https://{host}:{service.port}{path}", encoded=True)
        except ValueError as error:
            raise _UnavailableError("ServiceAccessError", f'service/{name} in "{namespace}": {error}') from error

    def _context(self, service: AggregatedService) -> ssl.SSLContext:
        key = (service.ca_bundle, service.insecure)
        if key not in self._contexts:
            assert self._front_proxy is not None, "the aggregator has not been started"
            try:
                bundle = base64.b64decode(service.ca_bundle).decode() or None
                context = ssl.create_default_context(cadata=bundle)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
                raise _UnavailableError("FailedDiscoveryCheck", f"spec.caBundle cannot be read: {error}") from error
            if service.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            context.load_cert_chain(self._front_proxy.certificate, self._front_proxy.key)
            self._contexts[key] = context
        return self._contexts[key]

    def _set_available(self, service: AggregatedService, status: str, reason: str, message: str) -> None:
        kind = _api_service_type()
        with contextlib.suppress(StatusError):  # deleted in the meantime
            obj = self._registry.get(kind, "", service.name)
            conditions = child(obj, "status").get("conditions") or []
            before: Object = next((condition for condition in conditions if condition.get("type") == "Available"), {})
            if before.get("status") != status:
                _log.info("APIService %s: Available=%s (%s): %s", service.name, status, reason, message)
            since = before.get("lastTransitionTime") if before.get("status") == status else None
            condition = {
                "type": "Available",
                "status": status,
                "lastTransitionTime": since or text_time(self._now()),
                "reason": reason,
                "message": message,
            }
            changed = {**obj, "metadata": {**obj["metadata"]}, "status": {"conditions": [condition]}}
            self._registry.update(kind, "", service.name, changed, subresource="status")

    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "the aggregator has not been started"
        return self._session


def _api_service_type() -> ResourceType:
    kind = find_resource_type(API_SERVICES.group, "v1", API_SERVICES.resource)
    assert kind is not None
    return kind


def _read(obj: Object) -> AggregatedService | None:
    """Return the server of an APIService; None for local ones."""
    spec, service = child(obj, "spec"), child(obj, "spec", "service")
    if not service:
        return None
    conditions = child(obj, "status").get("conditions") or []
    return AggregatedService(
        name=name_of(obj),
        group=str(spec.get("group") or ""),
        version=str(spec.get("version") or ""),
        service_namespace=str(service.get("namespace") or ""),
        service_name=str(service.get("name") or ""),
        port=int(service.get("port") or 443),
        ca_bundle=str(spec.get("caBundle") or ""),
        insecure=bool(spec.get("insecureSkipTLSVerify")),
        available=any(
            condition.get("type") == "Available" and condition.get("status") == "True" for condition in conditions
        ),
    )


def _unavailable(message: str) -> web.Response:
    """Return a 503 as kube-aggregator does: plain text, no Status."""
    return web.Response(status=503, text=f"{message}\n")


async def _relay(relayed: aiohttp.ClientResponse, request: web.Request, audit_id: str) -> web.StreamResponse:
    headers = [(key, value) for key, value in relayed.headers.items() if key.lower() not in _DROPPED_ANSWER_HEADERS]
    headers.append(("Audit-Id", audit_id))
    # Go's transport decompresses what the client did not ask for.
    unzip = None
    if relayed.headers.get("Content-Encoding") == "gzip" and "Accept-Encoding" not in request.headers:
        unzip = zlib.decompressobj(wbits=_GZIP)
        headers = [(key, value) for key, value in headers if key.lower() != "content-encoding"]
    response = web.StreamResponse(status=relayed.status, headers=CIMultiDict(headers))
    await response.prepare(request)
    async for chunk in relayed.content.iter_chunked(_CHUNK):
        await response.write(chunk if unzip is None else unzip.decompress(chunk))
    await response.write_eof()
    return response
