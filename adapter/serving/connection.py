"""One client's connection: an asyncio protocol around aiohttp's that limits time, sizes and reuse.

A client that sends its request byte by byte, or never reads its response, would hold a connection for ever; so each
step has its time. No request needs a body, so none is waited for; what comes of it after the response is discarded up
to a limit, because a client may read the response only when it has sent everything.

A connection serves another request only if the last one was exactly one head: no body, no trailers, no upgrade and no
pipelining. aiohttp's parser keeps the last trailer of a chunked body for the next head, and connections of the front
proxy are shared by all users, so nothing of one request may be left for the next one.

What aiohttp refuses before there is a request becomes a metav1.Status, which clients of an API server can decode.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from kube.status import StatusError, internal_error, method_not_allowed

_log = logging.getLogger(__name__)

# A request line holds a label selector, which may be long. The limits of a line and of a header differ, because aiohttp
# tells by its limit alone what was too long.
_MAX_LINE: Final = 64 * 1024
_MAX_FIELD: Final = 32 * 1024
_MAX_HEADERS: Final = 512
_MAX_HEAD: Final = 128 * 1024
# Kubernetes takes bodies of up to 3 MiB, so no client is used to sending more than a few of them.
_MAX_BODY: Final = 16 * 1024 * 1024
# Sizes of chunks and trailers, beside what aiohttp has not read yet.
_MAX_AROUND_BODY: Final = 128 * 1024
# Bytes that are written and not yet sent; the response that goes beyond it is written, and its client has to read.
_MAX_UNSENT: Final = 64 * 1024
_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Seconds that a client may take.

    Attributes:
        handshake: for the TLS handshake, and for the closing one.
        head: for sending a request's head, from the connection or from the head's first byte on; Kubernetes' own time.
        idle: between two requests. Longer than Go clients keep an idle connection (90 s), so that it is they who close
            it and no request meets a closing connection.
        body: for sending the rest of a request's body after the response.
        read: for reading on, when there is more to send than the connection holds.
    """

    handshake: float = 10.0
    head: float = 32.0
    idle: float = 120.0
    body: float = 10.0
    read: float = 60.0


class _State(enum.Enum):
    HEAD = enum.auto()
    """Waiting for a head, or for the rest of one."""
    REQUEST = enum.auto()
    """A head is complete; its request is being handled or is about to be."""
    LAST = enum.auto()
    """No other request is served; what still comes is the body of the last one."""
    CLOSED = enum.auto()
    """Nothing is read any more."""


class HttpServer(web.Server):
    """aiohttp's server, with the limits of its connections.

    Args:
        handler: handles one request; `connection_of` returns the request's connection.
        error_response: the response to a client about which nothing is known.
        limits: see ConnectionLimits.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        error_response: Callable[[StatusError], web.Response],
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.error_response = error_response
        self.limits = limits


class _HttpProtocol(web.RequestHandler):
    """aiohttp's protocol, with a Status where it would send a page of its own."""

    __slots__ = ("connection", "server")

    def __init__(self, server: HttpServer, connection: Connection) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # this is how aiohttp is told to have none
            keepalive_timeout=server.limits.idle,
            lingering_time=server.limits.body,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_HEADERS,
        )
        self.server = server
        self.connection = connection

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
            error = internal_error("see the log of the adapter")
        else:
            _log.debug("refused a request of %s: %s", request.remote, message)
            error = _refusal(status, exc)
        response = self.server.error_response(error)
        response.force_close()
        return response


class ConnectionSlots(Protocol):
    """Counts connections; see adapter.serving.listener.Slots."""

    def opened(self, connection: Connection) -> None:
        """Note that a connection's handshake is finished."""

    def buffer(self, connection: Connection, count: int) -> None:
        """Add to the bytes of a connection's incomplete head."""

    def remove(self, connection: Connection) -> None:
        """Release the slot of a connection that is closed."""


class Connection(asyncio.Protocol):
    """A client's connection, from the moment it is accepted.

    Args:
        server: handles its requests.
        client: the accepted socket.
        slots: counts connections.

    Attributes:
        certificate: the client's as DER, if it has one, which some CA verified in the handshake.
        busy: a request is being handled; False while the response is being sent.
        buffered: bytes of an incomplete head.
        group: the connections among which it is counted; None once it is closed.
    """

    def __init__(self, server: HttpServer, client: socket.socket, slots: ConnectionSlots) -> None:
        self._server = server
        self._http: _HttpProtocol
        self._client = client
        self._slots = slots
        self._transport: asyncio.Transport | None = None
        self._state = _State.HEAD
        self._tail = b""  # of an incomplete head: its end may begin there
        # Bytes after the head, and what aiohttp read of them as a body.
        self._beyond_head = 0
        self._body: StreamReader | None = None
        self._is_writing_paused = False
        # For a head, or for reading a response; no two are needed at a time.
        self._timer: asyncio.TimerHandle | None = None
        self.certificate: bytes | None = None
        self.busy = False
        self.buffered = 0
        self.group: OrderedDict[Connection, None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request: the handshake is finished."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MAX_UNSENT)
        encryption = transport.get_extra_info("ssl_object")
        self.certificate = encryption.getpeercert(binary_form=True) if encryption is not None else None
        self._slots.opened(self)
        self._http = _HttpProtocol(self._server, self)
        self._start_timer(self._server.limits.head, "its request did not come in time")
        self._http.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self._state = _State.CLOSED
        self._stop_timer()
        self._slots.remove(self)
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent, unless it is too much."""
        if self._state is _State.HEAD:
            if not self.buffered:
                data = data.lstrip(b"\r\n")  # the parser ignores empty lines before a head, which would look like one
            if not data:
                return
            if not self._tail and 0 <= data.find(_END) == len(data) - len(_END):
                self._state = _State.REQUEST  # exactly one head, as nearly always
            else:
                self._find_end_of_head(data)
        elif self._state is not _State.CLOSED:
            self._beyond_head += len(data)
            self._check_body()
        if self._state is not _State.CLOSED:
            self._http.data_received(data)

    def eof_received(self) -> None:
        """Close, as TLS has no half-closed connections."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Give the client time to read: there is more to send than it reads at the moment."""
        self._is_writing_paused = True
        self._stop_timer()
        self._start_timer(self._server.limits.read, "its client did not read the response")
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Write on: the client has read."""
        self._is_writing_paused = False
        self._stop_timer()
        if self.buffered:
            self._start_timer(self._server.limits.head, "its request did not come in time")
        self._http.resume_writing()

    def begin_request(self, request: web.BaseRequest) -> None:
        """Note that a request is being handled: the connection is not closed for another one until `end_request`."""
        self.busy = True
        if not self._is_writing_paused:
            self._stop_timer()
        if self.group is not None:
            self.group.move_to_end(self)
        if self.buffered:
            self._slots.buffer(self, -self.buffered)
        if self._state is _State.HEAD or _is_more_than_a_head(request):
            self._state = _State.LAST
        self._body = request.content

    def end_request(self) -> bool:
        """Note that the response is ready to be sent; return whether the connection may serve another request."""
        self.busy = False
        if self._state is _State.REQUEST:
            self._state = _State.LAST if self._beyond_head else _State.HEAD
            self._body = None
        return self._state is _State.HEAD

    def close(self, reason: str) -> None:
        """Close at once; nothing that is still to be sent is sent."""
        _log.debug("closed a connection: %s", reason)
        self._state = _State.CLOSED
        self._slots.remove(self)
        if self._transport is not None:
            self._transport.abort()
        else:
            # In its handshake: the loop sees the end of the connection, and releases the rest.
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)

    def _find_end_of_head(self, data: bytes) -> None:
        """Look for the end of a head that does not come alone and in one piece."""
        received = self._tail + data
        end = received.find(_END)
        if end >= 0:
            self._tail, self._beyond_head, self._state = b"", len(received) - end - len(_END), _State.REQUEST
            return
        self._tail = received[1 - len(_END) :]
        self._start_timer(self._server.limits.head, "its request did not come in time")
        self._slots.buffer(self, len(data))
        if self.buffered > _MAX_HEAD and self._transport is not None:
            self._state = _State.CLOSED
            self._transport.write(_written(self._server.error_response(_head_too_large())))
            self._transport.close()

    def _check_body(self) -> None:
        """Close after too long a body, or too much around it: sizes of chunks, trailers, further requests."""
        if self._beyond_head > _MAX_BODY:
            self.close("the body of its request is too large")
        elif self._body is not None and self._beyond_head - self._body.total_bytes > _MAX_AROUND_BODY:
            self.close("what goes with the body of its request is too large")

    def _start_timer(self, seconds: float, reason: str) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.close, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _written(response: web.Response) -> bytes:
    """Write a response to a client of whose request aiohttp knows nothing yet."""
    body = response.body
    assert isinstance(body, bytes)
    fields = {**response.headers, hdrs.CONTENT_LENGTH: str(len(body)), hdrs.CONNECTION: "close"}
    head = [f"HTTP/1.1 {response.status} {response.reason}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*head, "", ""]).encode() + body


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


def _refusal(code: int, exc: BaseException | None) -> StatusError:
    """Return the error for what aiohttp could make no request of. Its parser knows the usual methods only."""
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
    return _too_large(f"the head of the request is longer than {_MAX_HEAD} bytes")


def _too_large(message: str) -> StatusError:
    return StatusError(431, "RequestHeaderFieldsTooLarge", message)
