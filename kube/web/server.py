"""Serve pages: on loopback over HTTP, elsewhere over TLS with authentication."""

from __future__ import annotations

import html
import socket

from aiohttp import web
from prometheus_client import CollectorRegistry

from kube.security.request_info import Target
from kube.serving.delegated import DelegatedAuth
from kube.serving.listener import Listener, bind
from kube.serving.options import ServerLimits
from kube.status import StatusError
from kube.web.options import UIAddress
from kube.web.requests import PageRequest, Pages

_LIMITS = ServerLimits(connections=200)


class PageServer:
    """The pages of one process.

    Args:
        pages: respond to requests.
        address: see UIAddress.
        auth: authentication and authorization, required unless the address is a loopback one.
        registry: the metrics registry.
        metrics_prefix: of the names of the metrics of connections.
    """

    def __init__(
        self,
        pages: Pages,
        address: UIAddress,
        *,
        auth: DelegatedAuth | None,
        registry: CollectorRegistry,
        metrics_prefix: str,
    ) -> None:
        self._pages = pages
        self._address = address
        self._auth = auth
        self._listener = Listener(
            self._respond,
            None if auth is None else auth.tls.context,
            error_response=_error_page,
            limits=_LIMITS,
            registry=registry,
            metrics_prefix=metrics_prefix,
        )

    def bind(self) -> socket.socket:
        """Return the bound socket. Raises ListenError."""
        return bind(self._address.host, self._address.port)

    async def start(self, listening: socket.socket) -> None:
        """Begin to serve on a bound socket."""
        await self._listener.start(listening)

    async def stop(self) -> None:
        """Close all connections."""
        await self._listener.stop()

    async def _respond(self, request: web.BaseRequest, certificate: bytes | None) -> web.StreamResponse:
        try:
            target = Target.parse(request.raw_path)
            user = None
            if self._auth is not None:
                user = await self._auth.authenticator.authenticate(certificate, request.raw_headers)
            return await self._pages(PageRequest(segments=target.segments, query=target.query, user=user, raw=request))
        except StatusError as error:
            return _error_page(error)


def _error_page(error: StatusError) -> web.Response:
    return web.Response(text=f"<p>{html.escape(str(error))}</p>", status=error.code, content_type="text/html")
