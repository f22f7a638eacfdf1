"""One client's connection: how long it may take its time, how much it may send, and what it is told otherwise.

A client that sends its request byte by byte, or never reads its answer, would hold a connection for ever; so each step
has its time. No request needs a body, so none is waited for: what comes of it after the answer is thrown away, up to a
limit, for a client may read the answer only when it has sent all, and the connection may serve for the next request.
It does not after a request that aiohttp's parser keeps something of: nothing of one request may become a part of
another one, for the front proxy's connections are shared by all users.
What aiohttp refuses before there is a request, and what our handler failed on, is answered with a
metav1.Status, because that is what clients of an API server decode, instead of with aiohttp's own page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from adapter.serving.call import method_not_allowed
from adapter.serving.open_connections import Place
from kube.status import StatusError, internal_error

_log = logging.getLogger(__name__)

# A request line holds a label selector, which may be long. The limits of a line and of a header differ, because aiohttp
# tells by its limit alone what was too long. All connections together may send this much before anybody is known.
_MAX_LINE: Final = 64 * 1024
_MAX_FIELD: Final = 32 * 1024
_MAX_HEADERS: Final = 512
_MAX_HEAD: Final = 128 * 1024
# After the answer. Kubernetes takes bodies of up to 3 MiB, so no client is used to sending more than a few of them.
_MAX_BODY: Final = 16 * 1024 * 1024
# Of answers that a client does not read; the one that goes beyond it is written, and then no other.
_MAX_UNREAD: Final = 64 * 1024
_END: Final = b"\r\n\r\n"
_TOO_MANY_HEADERS: Final = "Too many headers"
_VERSIONS: Final = frozenset({HttpVersion10, HttpVersion11})

ErrorResponse = Callable[[StatusError], web.Response]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Seconds that a client may take.

    Attributes:
        handshake: for the TLS handshake, and for the one that ends TLS.
        head: for sending a request's head, from the connection or from the head's first byte on; Kubernetes' own time.
        idle: between two requests. Longer than Go clients keep an idle connection (90 s), so that it is they who close
            it and no request meets a closing.
        body: for sending the rest of a request's body, once it is answered.
        read: for reading on, when there is more to send than the connection holds. The rest is left to the socket, and
            to `idle`.
    """

    handshake: float = 10.0
    head: float = 32.0
    idle: float = 120.0
    body: float = 10.0
    read: float = 60.0


class ConnectionServer(web.Server):
    """Makes a Connection of each connection.

    Args:
        handler: answers one request, given the client's certificate (DER), for which TLS found some authority to vouch.
        error_response: how an error is written for a client of which nothing is known.
        limits: see ConnectionLimits.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest, bytes | None], Awaitable[web.StreamResponse]],
        *,
        error_response: ErrorResponse,
        limits: ConnectionLimits,
    ) -> None:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            connection = cast("_Connection", request.protocol)
            connection.begin_answering(request)
            try:
                if request.version not in _VERSIONS:
                    response: web.StreamResponse = error_response(_other_version())
                else:
                    response = await handler(request, connection.certificate)
            finally:
                connection.end_answering()
            if _leaves_something(request):
                response.force_close()
            return response

        super().__init__(answer, handler_cancellation=True)
        self._limits = limits
        self._error_response = error_response

    def connection(self, place: Place) -> RequestHandler:
        """The protocol of a new connection."""
        return _Connection(self, place, error_response=self._error_response, limits=self._limits)


class _Connection(RequestHandler):
    """aiohttp's protocol, with time limits, and with a Status where it would say a page of its own."""

    def __init__(
        self,
        server: web.Server,
        place: Place,
        *,
        error_response: ErrorResponse,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # how aiohttp is told to have none
            keepalive_timeout=limits.idle,
            lingering_time=limits.body,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_HEADERS,
        )
        self._place = place
        self._error = error_response
        self._limits = limits
        self._is_answering = False
        # Of the request that is being answered or was last.
        self._body: StreamReader = EMPTY_PAYLOAD
        self._body_bytes = 0
        self._is_refused = False
        # Since when a head is expected, on the loop's clock.
        self._head_since: float | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self.certificate: bytes | None = None
        """The client's, as DER."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request."""
        super().connection_made(transport)
        encryption = transport.get_extra_info("ssl_object")
        self.certificate = encryption.getpeercert(binary_form=True) if encryption is not None else None
        both_ways = cast("asyncio.Transport", transport)
        both_ways.set_write_buffer_limits(high=_MAX_UNREAD)
        self._place.opened(both_ways.abort, known=self.certificate is not None)
        self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Expect nothing more."""
        self._have_head()
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._stop_read_timer()
        self._place.left()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent; a head that goes on for too long, in time or in bytes, ends the connection.

        So does what is left of a body when its request has been answered; aiohttp looks after the time.
        """
        if self._is_refused:
            return
        body = None if self._body.is_eof() else self._body
        before = 0 if body is None else body.total_bytes
        super().data_received(data)
        if body is None and data.endswith(_END) and self._messages and self._messages[-1][1] is EMPTY_PAYLOAD:
            return  # whole heads and no bodies, as nearly always: nothing of another head is there
        beyond = len(data) if body is None else self._beyond_body(body, len(data), body.total_bytes - before)
        if self._is_answering:
            return
        # aiohttp itself calls with nothing, when somebody has read of a body.
        if beyond:
            self._expect_head()
            self._place.hold(max(beyond, 0))
        if self._place.held > _MAX_HEAD:
            self._refuse_head()

    def _beyond_body(self, body: StreamReader, count: int, of_body: int) -> int:
        """How many of the bytes that came are of the next head; below zero if older ones were still to be read.

        Until the body has its end, what is not in it are sizes of chunks and trailers, which the parser collects.
        """
        self._body_bytes += count
        if self._body_bytes > _MAX_BODY and self.transport is not None:
            _log.debug("closed a connection: the body of its request is too large")
            # Not `force_close`, after which aiohttp fails where it waits for the body.
            self.transport.abort()
        if body.is_eof():
            return count - of_body
        self._place.hold(max(count - of_body, 0))
        if self._place.held > _MAX_HEAD and self.transport is not None:
            _log.debug("closed a connection: what goes with the body of its request is too large")
            self.transport.abort()
        return 0

    def _refuse_head(self) -> None:
        """Answer a head that has no end, as aiohttp does with what it refuses itself; no more of it is read."""
        self._is_refused = True
        self._messages.append((_ErrInfo(status=431, exc=_HeadTooLarge(), message="too large"), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def begin_answering(self, request: web.BaseRequest) -> None:
        """A request is being answered; what comes until `end_answering` is its body, or a request after it."""
        self._have_head()
        self._body, self._body_bytes = request.content, 0
        self._is_answering = self._place.busy = True

    def end_answering(self) -> None:
        """The answer is still to be sent.

        That is the client's work: were it ours, those who do not read would keep all others out.
        """
        self._is_answering = self._place.busy = False

    def pause_writing(self) -> None:
        """There is more to send than the client reads at the moment: it has its time."""
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self._loop.call_later(self._limits.read, self._not_read)

    def resume_writing(self) -> None:
        """The client has read on."""
        self._stop_read_timer()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what never became a request, and what our own handler failed on, and close the connection."""
        if status >= 500:
            _log.error("could not answer %s %s", request.method, request.raw_path, exc_info=exc)
            error = internal_error("see the log of the adapter")
        else:
            _log.debug("refused what %s sent: %s", request.remote, message)
            error = _refusal(status, exc)
        response = self._error(error)
        response.force_close()
        return response

    def _not_read(self) -> None:
        self._read_timer = None
        _log.debug("closed a connection: its client did not read the answer")
        if self.transport is not None:
            self.transport.abort()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _expect_head(self) -> None:
        if self._head_since is None:
            self._head_since = self._loop.time()
        # One that is running goes on, and looks then how long that head has taken: to set a timer for each request
        # takes longer.
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._limits.head, self._check_head)

    def _have_head(self) -> None:
        self._place.active()
        self._head_since = None

    def _check_head(self) -> None:
        self._head_timer = None
        if self._head_since is None:
            return
        left = self._head_since + self._limits.head - self._loop.time()
        if left > 0:
            self._head_timer = self._loop.call_later(left, self._check_head)
            return
        _log.debug("closed a connection: its request did not come in time")
        self.force_close()


class _HeadTooLarge(Exception):
    """A request's head is too large, though none of its lines is."""


def _leaves_something(request: web.BaseRequest) -> bool:
    """Whether aiohttp's parser may not be as new after a request.

    The last trailer of a chunked body becomes the first header of the next request, which may be another user's. What
    comes together with a request for another protocol is thrown away or kept, depending on the protocol.
    """
    return "Transfer-Encoding" in request.headers or "Upgrade" in request.headers or request.method == "CONNECT"


def _other_version() -> StatusError:
    return StatusError(505, "HTTPVersionNotSupported", "the request's version of HTTP is not spoken here: use HTTP/1.1")


def _refusal(code: int, exc: BaseException | None) -> StatusError:
    """What to say to something that aiohttp could make no request of. Its parser knows the usual methods only."""
    match exc:
        case BadHttpMethod():
            return method_not_allowed()
        case LineTooLong(args=(_, limit, *_)) if limit == _MAX_LINE:
            return StatusError(414, "RequestURITooLong", f"the request's URL is longer than {_MAX_LINE} bytes")
        case LineTooLong():
            return _too_large(f"a header of the request is longer than {_MAX_FIELD} bytes")
        case _ if exc is not None and _TOO_MANY_HEADERS in str(exc):
            return _too_large(f"the request has more than {_MAX_HEADERS} headers")
        case _HeadTooLarge():
            return _too_large(f"the head of the request is longer than {_MAX_HEAD} bytes")
    return StatusError(code, "BadRequest", "the request cannot be read: it is not HTTP")


def _too_large(message: str) -> StatusError:
    return StatusError(431, "RequestHeaderFieldsTooLarge", message)
