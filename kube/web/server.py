"""Serve pages: on loopback over HTTP, elsewhere over TLS with authentication.

The process has other work, which pages must not delay: few requests run at a time, further ones wait, and an error of a
page is a line in the log.

A page is for its own origin only: it has a Content-Security-Policy without exceptions, and pages of other origins can
link to it but not request it. On loopback the Host header must be a loopback one, because a site on the Internet may
give its own name the address 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry

from kube.aio.fairness import FairSemaphore, QueueFullError
from kube.api.status import (
    StatusError,
    forbidden,
    internal_error,
    method_not_allowed,
    not_found,
    timeout,
    too_many_requests,
    unauthorized,
)
from kube.security.authentication import ANONYMOUS, User
from kube.security.request_info import Target
from kube.serving.delegated import DelegatedAuth
from kube.serving.listener import Listener, bind
from kube.serving.local import is_local
from kube.serving.options import ConnectionLimits, ServerLimits
from kube.web.event_stream import EventStream, EventStreams
from kube.web.options import UIAddress
from kube.web.pages import PageRequest, Pages

_log = logging.getLogger(__name__)

_CONNECTIONS_PER_STREAM: Final = 2
_LIMITS: Final = ServerLimits(
    in_flight=8, request_seconds=60.0, shutdown_seconds=1.0, connection=ConnectionLimits(read_seconds=30.0)
)
_MAX_WAITING: Final = 64  # requests of one user
_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        hdrs.CACHE_CONTROL: "no-store",
        hdrs.SERVER: "milliscale",
    }
)


class PageServer:
    """The pages of one process.

    Args:
        pages: respond to requests.
        address: see UIAddress.
        auth: authentication and authorization, required unless the address is a loopback one.
        registry: the metrics registry.
        metrics_prefix: of the names of the metrics of connections.
        limits: see ServerLimits; None: those of pages.
        streams: sends event streams.
    """

    def __init__(
        self,
        pages: Pages,
        address: UIAddress,
        *,
        auth: DelegatedAuth | None,
        registry: CollectorRegistry,
        metrics_prefix: str,
        limits: ServerLimits | None = None,
        streams: EventStreams | None = None,
    ) -> None:
        if auth is None and not address.is_loopback:
            raise ValueError("pages on an address that is not a loopback one need authentication")
        self._pages = pages
        self._address = address
        self._auth = auth
        self._streams = EventStreams() if streams is None else streams
        limits = limits or replace(_LIMITS, connections=_CONNECTIONS_PER_STREAM * self._streams.settings.streams)
        self._limits = limits
        self._slots = FairSemaphore(limits.in_flight, max_waiting=_MAX_WAITING, spare=limits.in_flight)
        self._listener = Listener(
            self._respond,
            None if auth is None else auth.tls.context,
            error_response=self._error,
            limits=limits,
            registry=registry,
            metrics_prefix=metrics_prefix,
        )

    def bind(self) -> socket.socket:
        """Return the bound socket. Raises ListenError."""
        return bind(self._address.host, self._address.port)

    async def start(self, listening: socket.socket) -> None:
        """Begin to serve on a bound socket."""
        await self._listener.start(listening)
        _log.info("pages on %s", self.url(listening))

    async def stop(self) -> None:
        """End the event streams and close all connections."""
        self._streams.stop()
        await self._listener.stop()

    def url(self, listening: socket.socket) -> str:
        """Return the URL of the first page."""
        host, port = listening.getsockname()[:2]
        return f"{'http' if self._auth is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}/"

    async def _respond(self, request: web.BaseRequest, certificate: bytes | None) -> web.StreamResponse:
        try:
            response = await self._page(request, certificate)
        except StatusError as error:
            response = self._error(error)
        except Exception:  # noqa: BLE001  # a bug in a page: the process has other work
            _log.exception("could not respond to %s %s", request.method, request.raw_path)
            response = self._error(internal_error("see the log of the server"))
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if isinstance(response, EventStream):
            try:
                await self._streams.send(request, response)
            except StatusError as error:
                return self._error(error)
        return response

    async def _page(self, request: web.BaseRequest, certificate: bytes | None) -> web.StreamResponse:
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            raise method_not_allowed("pages can only be read: use GET")
        if self._auth is None and not is_local(request):
            raise forbidden(
                "these pages are only served to this host: open them as http://localhost:PORT, such as with kubectl "
                "port-forward"
            )
        if _is_of_another_site(request):
            raise forbidden("pages of other sites cannot use these pages")
        target = Target.parse(request.raw_path)
        match target.segments:
            case ("static", *rest):
                if len(rest) != 1:
                    raise not_found("there is no such file")
                return self._pages.static.respond(rest[0])
        user = None if self._auth is None else await _authenticated(self._auth, request, certificate)
        page = PageRequest(segments=target.segments, query=target.query, user=user, raw=request)
        try:
            async with (
                asyncio.timeout(self._limits.request_seconds),
                self._slots.slot("" if user is None else user.name),
            ):
                response = await self._pages.respond(page)
        except TimeoutError:
            raise timeout("Timeout: request did not complete within the allotted timeout") from None
        except QueueFullError:
            raise too_many_requests("Too many requests, please try again later.", retry_after=1) from None
        if isinstance(response, EventStream) and user is not None:
            response.user = user.name
        return response

    def _error(self, error: StatusError) -> web.Response:
        response = self._pages.templates.error(error)
        response.headers.update(_HEADERS)
        if error.retry_after is not None:
            response.headers[hdrs.RETRY_AFTER] = str(error.retry_after)
        if error.code == 401:
            response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
        return response


async def _authenticated(auth: DelegatedAuth, request: web.BaseRequest, certificate: bytes | None) -> User:
    user = await auth.authenticator.authenticate(certificate, request.raw_headers)
    if user == ANONYMOUS:
        raise unauthorized()
    return user


def _is_of_another_site(request: web.BaseRequest) -> bool:
    """Return True if a page of another origin requests something; links from there are allowed."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    return site not in ("none", "same-origin") and request.headers.get("Sec-Fetch-Mode") != "navigate"
