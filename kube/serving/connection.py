"""Connections of clients: limits on their number, on time, and on the sizes of what is read and sent.

A connection is an asyncio protocol around aiohttp's. It passes on complete heads, one at a time. No request needs a
body: what follows a head is counted and discarded, because a client may read the response only when it has sent
everything, and the connection then serves no other request. So nothing of one request can become a part of the next
one, which matters because all users share the connections of the front proxy.

A client that sends its head byte by byte, or never reads its response, would hold a connection forever, so each step
has a timeout. (For a head it is aiohttp's timeout for idle connections, since aiohttp sees complete heads only.)

When all connections are in use, an idle one is closed for a new one. If new connections were refused instead, early
clients could lock out the API server and the kubelet. Connections with a verified client certificate, such as the API
server's, are closed last. A connection whose request is being handled is never closed; one whose response is only being
sent may be, or clients that do not read would lock out all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from prometheus_client import CollectorRegistry, Counter, Gauge

from kube.api.status import StatusError, internal_error, method_not_allowed
from kube.serving.options import ConnectionLimits, ServerLimits

_log = logging.getLogger(__name__)

DEFAULTS: Final = ConnectionLimits()

ErrorResponse = Callable[[StatusError], web.Response]
"""Returns the response to a client whose request could not be read."""

# Bytes that are written and not yet sent; the response that goes beyond it is written, and its client has to read.
_MAX_UNSENT: Final = 64 * 1024
# A request line holds a label selector, which may be long. The limits of a line and of a header differ, because an
# error of aiohttp names only the limit that was exceeded.
_MAX_LINE: Final = 64 * 1024
_MAX_FIELD: Final = 32 * 1024
_MAX_HEADERS: Final = 512
_MAX_HEAD: Final = 128 * 1024
"""Bytes of a whole head."""
_END: Final = b"\r\n\r\n"
_NO_HTTP: Final = b"-" + _END  # aiohttp refuses it, and closes the connection
# A handshake takes milliseconds, so that many at a time are enough for a whole cluster that restarts.
_HANDSHAKES_PART: Final = 4
_WARN_EVERY_SECONDS: Final = 60.0


_Group = OrderedDict["Connection", None]


class Connections:
    """The connections in groups; in each the one that was active least recently comes first.

    Args:
        limit: how many connections there may be; a quarter as many may be in their TLS handshake.
        registry: the metrics registry.
        metrics_prefix: of the names of their metrics.
        limits: see ConnectionLimits.
        clock: in seconds, to limit a warning to one per minute.

    Attributes:
        waiting: how many requests have been read whose handling has not begun.
        batch_began: when the handling of the last requests that were read together began, by time.monotonic(); None
            before that.
    """

    def __init__(
        self,
        *,
        limit: int,
        registry: CollectorRegistry,
        metrics_prefix: str,
        limits: ConnectionLimits = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self.limits = limits
        self._clock = clock
        self._next_warning = 0.0
        self._buffered = 0
        self.waiting = 0
        self.batch_began: float | None = None
        self.handshakes: _Group = OrderedDict()
        self.unverified: _Group = OrderedDict()
        self.verified: _Group = OrderedDict()
        gauge = Gauge(
            f"{metrics_prefix}_connections",
            "Open connections, by state: in their TLS handshake, or open.",
            ("state",),
            registry=registry,
        )
        gauge.labels("handshake").set_function(lambda: len(self.handshakes))
        gauge.labels("open").set_function(lambda: len(self.unverified) + len(self.verified))
        self._dropped = Counter(
            f"{metrics_prefix}_connections_dropped_total",
            "Connections that were closed for others because there were too many, by reason: the handshake was not "
            "finished, the connection was idle, a request's head was long and incomplete, or a new connection was "
            "refused because all others were busy.",
            ("reason",),
            registry=registry,
        )
        for reason in ("handshake", "idle", "head", "refused"):
            self._dropped.labels(reason)

    def __len__(self) -> int:
        return len(self.handshakes) + len(self.unverified) + len(self.verified)

    def add(self, connection: Connection) -> bool:
        """Add a connection that was just accepted; return False if there is no room, because all others are busy."""
        if not self._make_room():
            self._dropped.labels("refused").inc()
            return False
        self._move(connection, self.handshakes)
        return True

    def opened(self, connection: Connection) -> None:
        """Note that a connection's handshake is finished."""
        if connection.group is not None:
            self._move(connection, self.unverified if connection.certificate is None else self.verified)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._move(connection, None)
        self.buffer(connection, 0)

    def buffer(self, connection: Connection, count: int) -> None:
        """Record the bytes of a connection's incomplete head; if all are too many, close the one with the most."""
        self._buffered += count - connection.buffered
        connection.buffered = count
        if self._buffered > self.limits.head_bytes:
            self._drop(max((*self.unverified, *self.verified), key=lambda one: one.buffered), "head")

    def _move(self, connection: Connection, group: _Group | None) -> None:
        if connection.group is not None:
            del connection.group[connection]
        connection.group = group
        if group is not None:
            group[connection] = None

    def _make_room(self) -> bool:
        """Close an idle connection if there is no room; return whether there is room now."""
        groups: tuple[_Group, ...] = (self.unverified, self.handshakes, self.verified)
        if len(self.handshakes) >= max(1, self._limit // _HANDSHAKES_PART):
            groups = (self.handshakes,)
        elif len(self) < self._limit:
            return True
        now = self._clock()
        if now >= self._next_warning:
            self._next_warning = now + _WARN_EVERY_SECONDS
            _log.warning(
                "too many connections (%d, of which %d in their TLS handshake; at most %d): idle ones are closed for "
                "new ones",
                *(len(self), len(self.handshakes), self._limit),
            )
        for group in groups:
            for connection in group:
                if not connection.busy:
                    self._drop(connection, "handshake" if group is self.handshakes else "idle")
                    return True
        return False

    def _drop(self, connection: Connection, reason: str) -> None:
        self._dropped.labels(reason).inc()
        connection.close("there are too many")


class HttpServer(web.Server):
    """aiohttp's server, with what its connections share.

    Args:
        handler: handles one request; `connection_of` returns the request's connection.
        connections: all connections.
        error_response: returns the response to a client whose request could not be read.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        connections: Connections,
        *,
        error_response: ErrorResponse,
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.all_connections = connections
        self.error_response = error_response
        self.limits = connections.limits


class Connection(asyncio.Protocol):
    """A client's connection, from the moment it is accepted.

    Args:
        server: handles its requests.
        client: the accepted socket.

    Attributes:
        certificate: the client's as DER, if it has one, verified by one of the CAs in the handshake.
        busy: a request is being handled; False while the response is being sent.
        buffered: bytes of an incomplete head.
        head_is_too_large: the connection is closed because its head is too large.
        group: the connections among which it is counted; None once it is closed.
    """

    def __init__(self, server: HttpServer, client: socket.socket) -> None:
        self._server = server
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._http: _HttpProtocol
        self._expects_head = True
        self._head = bytearray()  # an incomplete one
        self._beyond_head = 0  # bytes
        self._is_last_request = False
        self._read_timer: asyncio.TimerHandle | None = None
        self.certificate: bytes | None = None
        self.busy = False
        self._waits = False
        self.buffered = 0
        self.head_is_too_large = False
        self.group: _Group | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request: the handshake is finished."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MAX_UNSENT)
        encryption = transport.get_extra_info("ssl_object")
        self.certificate = encryption.getpeercert(binary_form=True) if encryption is not None else None
        self._server.all_connections.opened(self)
        self._http = _HttpProtocol(self._server, self)
        self._http.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._server.all_connections.remove(self)
        self._set_waiting(False)
        self._http.connection_lost(exc)
        # Both refer to this object. The garbage collector runs rarely, and a closed connection has 45 KiB of TLS.
        self._transport = None
        del self._http

    def data_received(self, data: bytes) -> None:
        """Pass on a complete head; discard what follows it."""
        if not self._expects_head:
            self._beyond_head += len(data)
            if self._beyond_head > self._server.limits.body_bytes:
                self.close("the body of its request is too large")
            return
        if not self._head:
            data = data.lstrip(b"\r\n")  # the parser ignores empty lines before a head, which would look like one
        if self._head or not 0 <= data.find(_END) == len(data) - len(_END):
            data = self._complete_head(data)
        if data:
            self._expects_head = False
            # The event loop reads from all connections before it handles the first request.
            self._server.all_connections.batch_began = None
            self._set_waiting(True)
            self._http.data_received(data)

    def eof_received(self) -> None:
        """Close, as TLS has no half-closed connections."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Give the client time to read, because the send buffer is full."""
        seconds = self._server.limits.read_seconds
        loop = asyncio.get_running_loop()
        self._read_timer = loop.call_later(seconds, self.close, "its client did not read the response")
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Cancel the timeout, because the client has read."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._http.resume_writing()

    def begin_request(self, request: web.BaseRequest) -> None:
        """Note that a request is being handled: the connection is not closed for another one until `end_request`."""
        self.busy = True
        self._set_waiting(False)
        if self._server.all_connections.batch_began is None:
            self._server.all_connections.batch_began = time.monotonic()
        if self.group is not None:
            self.group.move_to_end(self)
        self._is_last_request = _is_more_than_a_head(request)

    def end_request(self) -> bool:
        """Note that the response is ready to be sent; return whether the connection may serve another request."""
        self.busy = False
        self._expects_head = not self._is_last_request and not self._beyond_head
        return self._expects_head

    def close(self, reason: str) -> None:
        """Close at once; nothing that is still to be sent is sent."""
        _log.debug("closed a connection: %s", reason)
        self._server.all_connections.remove(self)
        if self._transport is not None:
            self._transport.abort()
        else:
            # In its handshake: the loop sees the end of the connection, and releases the rest.
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)

    def exceeds_batch(self, *, seconds: float, requests: int) -> bool:
        """Return True if requests were handled for `seconds` since the last was read, and more than `requests` wait."""
        connections = self._server.all_connections
        if connections.waiting <= requests or connections.batch_began is None:
            return False
        return time.monotonic() - connections.batch_began > seconds

    def _set_waiting(self, waits: bool) -> None:
        self._server.all_connections.waiting += waits - self._waits
        self._waits = waits

    def _complete_head(self, data: bytes) -> bytes:
        """Return the head that `data` completes; b"" while it is not complete."""
        searched = max(len(self._head) - len(_END), 0)
        self._head += data
        end = self._head.find(_END, searched)
        if end < 0 and self._head.find(b"\n\n", searched) >= 0:
            end = len(self._head) - len(_END)  # aiohttp refuses lines that end in LF alone
        if end >= 0:
            end += len(_END)
            head, self._beyond_head = bytes(self._head[:end]), len(self._head) - end
            self._head.clear()
            self._server.all_connections.buffer(self, 0)
            return head
        if len(self._head) > _MAX_HEAD:
            self.head_is_too_large = True
            return _NO_HTTP
        if data:
            self._server.all_connections.buffer(self, len(self._head))
        return b""


class _HttpProtocol(web.RequestHandler):
    """aiohttp's protocol, with a Status where it would send a page of its own."""

    __slots__ = ("connection", "error_response")

    def __init__(self, server: HttpServer, connection: Connection) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # this is how aiohttp is told to have none
            keepalive_timeout=server.limits.idle_seconds,
            lingering_time=server.limits.body_seconds,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_HEADERS,
        )
        self.connection = connection
        self.error_response = server.error_response

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Respond to a malformed request, or after our own handler failed, and close the connection."""
        if status >= 500:
            _log.error("could not handle %s %s", request.method, request.raw_path, exc_info=exc)
            error = internal_error("see the log of the server")
        else:
            _log.debug("refused a request of %s: %s", request.remote, message)
            error = _head_too_large() if self.connection.head_is_too_large else _parser_error(status, exc)
        response = self.error_response(error)
        response.force_close()
        return response


def overload_check(limits: ServerLimits) -> Callable[[web.BaseRequest], bool]:
    """Return a function that decides whether a request gets 429, because too many were read together with it."""
    seconds, requests = limits.batch_seconds, limits.batch_requests
    return lambda request: connection_of(request).exceeds_batch(seconds=seconds, requests=requests)


def connection_of(request: web.BaseRequest) -> Connection:
    """Return the connection on which a request came."""
    protocol = request.protocol
    assert isinstance(protocol, _HttpProtocol)
    return protocol.connection


def _is_more_than_a_head(request: web.BaseRequest) -> bool:
    """Return True if there is, or may be, more of a request than its head."""
    if request.body_exists or request.method == hdrs.METH_CONNECT:
        return True
    headers = request.headers
    return hdrs.UPGRADE in headers or hdrs.TRANSFER_ENCODING in headers


def _parser_error(code: int, exc: BaseException | None) -> StatusError:
    """Return the error for a request that aiohttp could not parse. Its parser knows only the usual methods."""
    match exc:
        case BadHttpMethod():
            return method_not_allowed("the server does not allow this method on the requested resource")
        case LineTooLong(args=(_, limit, *_)) if limit == _MAX_LINE:
            return StatusError(414, "RequestURITooLong", f"the request's URL is longer than {_MAX_LINE} bytes")
        case LineTooLong():
            return _too_large(f"a header of the request is longer than {_MAX_FIELD} bytes")
        case _ if exc is not None and "Too many headers" in str(exc):
            return _too_large(f"the request has more than {_MAX_HEADERS} headers")
    return StatusError(code, "BadRequest", "the request cannot be read: it is not HTTP")


def _head_too_large() -> StatusError:
    """Return the error for a head of more than _MAX_HEAD bytes."""
    return _too_large(f"the head of the request is longer than {_MAX_HEAD} bytes")


def _too_large(message: str) -> StatusError:
    return StatusError(431, "RequestHeaderFieldsTooLarge", message)
