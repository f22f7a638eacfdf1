"""The listening socket: accepts connections and makes their TLS handshakes.

Each connection counts from its accept, because anyone who reaches the port can open one. asyncio's own server reports a
connection only after the handshake, so earlier connections can neither be counted nor closed; and uvloop's server
closes its socket after an error of accept(2).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from prometheus_client import CollectorRegistry

from kube.serving.connection import Connection, Connections, ErrorResponse, HttpServer, connection_of
from kube.serving.options import ServerLimits

_log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest, bytes | None], Awaitable[web.StreamResponse]]
"""Responds to a request. The certificate is the client's (DER), verified by one of the CAs."""

_BACKLOG: Final = 512
# Requests are short. The loop's buffer of a connection grows to what is read at once, a quarter of a MiB, and stays.
_RECEIVE_BUFFER: Final = 16 * 1024
_RETRY_SECONDS: Final = 1.0
_ACCEPTED_AT_ONCE: Final = 16  # lets handshakes continue, however many clients are waiting
# Errors of one connection, which accept(2) reports and removes from the queue; EPERM is a firewall's.
_CONNECTION_ERRORS: Final = frozenset(
    {
        *(errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ETIMEDOUT),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
    }
)
# For connections to other servers, and for files.
_OTHER_FILES: Final = 256
_UNSPECIFIED: Final = ("", "0.0.0.0", "::")  # noqa: S104  (compared, not bound)
_PIECE: Final = 64 * 1024


class ListenError(OSError):
    """The server cannot listen on its address; the message says why."""


class Listener:
    """Accepts connections.

    Args:
        handler: responds to their requests.
        context: TLS for new connections; None: plain HTTP.
        error_response: see ErrorResponse.
        limits: see ServerLimits.
        registry: the metrics registry.
        metrics_prefix: of the names of their metrics.
    """

    def __init__(
        self,
        handler: Handler,
        context: ssl.SSLContext | None,
        *,
        error_response: ErrorResponse,
        limits: ServerLimits,
        registry: CollectorRegistry,
        metrics_prefix: str,
    ) -> None:
        self._handler = handler
        self._context = context
        self._error_response = error_response
        self._limits = limits
        self._connections = Connections(
            limit=within_open_files(limits.connections),
            registry=registry,
            metrics_prefix=metrics_prefix,
            limits=limits.connection,
        )
        self._handshakes: set[asyncio.Task[None]] = set()
        self._listening: tuple[socket.socket, HttpServer] | None = None
        self._retry: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket) -> None:
        """Begin to accept connections on a bound socket, which is this listener's from now on."""
        listening.setblocking(False)
        # Accepted connections inherit it; the buffer for sending is another one.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        listening.listen(_BACKLOG)
        server = HttpServer(self._handle, self._connections, error_response=self._error_response)
        self._listening = listening, server
        asyncio.get_running_loop().add_reader(listening, self._accept, listening, server)

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight end, then close every connection."""
        if self._listening is None:
            return
        (listening, server), self._listening = self._listening, None
        if self._retry is not None:
            self._retry.cancel()
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()
        for connection in list(self._connections.handshakes):
            connection.close("the process is stopping")
        if self._handshakes:
            await asyncio.wait(self._handshakes)
        server.pre_shutdown()
        await server.shutdown(self._limits.shutdown_seconds)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.begin_request(request)
        try:
            response = await self._handler(request, connection.certificate)
        finally:
            may_reuse = connection.end_request()
        if not may_reuse or self._listening is None:
            response.force_close()
        _send_in_pieces(response)
        return response

    def _accept(self, listening: socket.socket, server: HttpServer) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _CONNECTION_ERRORS:
                    _log.debug("a connection ended before it was accepted: %s", error.strerror)
                    continue
                _log.warning("cannot accept connections: %s", error.strerror)
                # The client still waits, so the loop would call this again at once.
                loop.remove_reader(listening)
                self._retry = loop.call_later(
                    _RETRY_SECONDS, loop.add_reader, listening, self._accept, listening, server
                )
                return
            client.setblocking(False)
            connection = Connection(server, client)
            if not self._connections.add(connection):
                client.close()
                continue
            task = loop.create_task(self._handshake(client, connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, client: socket.socket, connection: Connection) -> None:
        """Complete the TLS handshake; then the connection belongs to the event loop."""
        seconds = None if self._context is None else self._limits.connection.handshake_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self._context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except (OSError, ssl.CertificateError) as error:
            _log.debug("a TLS handshake failed: %s", error)
        finally:
            if connection.group is self._connections.handshakes:
                self._connections.remove(connection)


def bind(address: str, port: int) -> socket.socket:
    """Return a socket bound to an address. An unspecified one is all addresses, of both families if the host has them.

    Raises:
        ListenError: the address is taken, or is not one of this host.
    """
    host = address.strip("[]")
    try:
        if host in _UNSPECIFIED and socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        # Not error.strerror: socket.create_server adds the address to it.
        reason = os.strerror(error.errno) if error.errno is not None else error
        raise ListenError(f"cannot listen on {address} port {port}: {reason}") from error


def within_open_files(connections: int) -> int:
    """Return this number of connections, or the number that the limit of open files allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or connections + _OTHER_FILES <= limit:
        return connections
    most = max(limit - _OTHER_FILES, limit // 2)
    _log.warning("at most %d connections, not %d: this process may have %d open files", most, connections, limit)
    return most


class _Pieces(Payload):
    """A long body, of which each piece is sent when the client has read most of what was sent before.

    A body that is written at once is encrypted at once, and OpenSSL's buffer of the connection keeps that size until
    the connection ends. So with a list of 3 MiB, 150 connections that stay open would take the memory of the whole
    process. The body is not copied: slow clients of one document share its memory.
    """

    _value: bytes

    @property
    def size(self) -> int:
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        body = memoryview(self._value)
        for start in range(0, len(body), _PIECE):
            await writer.write(body[start : start + _PIECE])


def _send_in_pieces(response: web.StreamResponse) -> None:
    """Have the long body of a response sent in pieces."""
    if isinstance(response, web.Response) and isinstance(response.body, bytes) and len(response.body) > _PIECE:
        response.body = _Pieces(response.body)
