"""The HTTP server: from a connection to an answer, and nothing about metrics.

A request passes, in this order, the limit on requests in flight, authentication, authorization and the router, all
within its deadline. Whatever goes wrong on the way, at any point, becomes a metav1.Status, because that is what
clients of an API server decode; also what aiohttp itself refuses before there is a request, and also our own
mistakes, which are logged with their traceback and shown to nobody. A client that goes away takes its request with
it.

HTTP/2 is not spoken; clients settle for HTTP/1.1 during the TLS handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod
from aiohttp.web_protocol import RequestHandler

from adapter.authentication import Authenticator, Credentials
from adapter.authorization import Authorizer
from adapter.discovery import Discovery
from adapter.encoding import Encoded, Representation
from adapter.request_info import RequestInfo, Target
from adapter.routes import Answer, Call, Router, method_not_allowed
from adapter.telemetry import RequestLabels, Telemetry
from kube.durations import DurationError, parse_duration
from kube.status import StatusError, bad_request, internal_error, too_many_requests

__all__ = ["Listener", "RequestServer", "ServerLimits"]

_log = logging.getLogger(__name__)

# A request line holds a label selector, which may be long; Go's limit for a whole head is 1 MiB.
_MAX_LINE = 64 * 1024
_MAX_FIELD = 64 * 1024
_MAX_HEADERS = 512
# Longer than Go clients keep an idle connection (90 s), so that it is they who close it and no request meets a closing.
_KEEPALIVE_SECONDS = 120.0
# Below this a body is not worth compressing; the number is Kubernetes'.
_COMPRESS_FROM = 128 * 1024
_BACKLOG = 512
# What a request is counted as whose client did not wait for the answer; web servers' common number for it.
_CLIENT_GONE = 499


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one client may cost the others.

    Attributes:
        in_flight: requests that are worked on at a time; more are answered with 429 at once.
        request_seconds: how long a request may take; a `timeout` parameter can only shorten it.
        shutdown_seconds: how long requests in flight may still take when the process is told to end.
    """

    in_flight: int = 400
    request_seconds: float = 60.0
    shutdown_seconds: float = 20.0


class RequestServer:
    """Answers requests.

    Args:
        authenticator: finds out who is asking.
        authorizer: decides whether they may.
        router: has the answers.
        telemetry: counts them.
        discovery: knows the resources that telemetry may tell apart.
        limits: see ServerLimits.
    """

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        router: Router,
        telemetry: Telemetry,
        discovery: Discovery,
        limits: ServerLimits,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._router = router
        self._telemetry = telemetry
        self._discovery = discovery
        self._limits = limits
        self._in_flight = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; aiohttp's handler."""
        started = time.monotonic()
        labels = RequestLabels(verb=request.method.lower())
        code = 500
        try:
            try:
                target = Target.parse(request.raw_path)
                info = RequestInfo.of(request.method, target)
                labels = self._labels(info)
                answer = await self._within_limits(request, target, info)
            except StatusError as error:
                answer = _error_answer(error, request)
            code = answer.status
            return _response(answer, request)
        except asyncio.CancelledError:
            code = _CLIENT_GONE
            raise
        finally:
            self._telemetry.observe(labels, code=code, seconds=time.monotonic() - started)

    async def _within_limits(self, request: web.BaseRequest, target: Target, info: RequestInfo) -> Answer:
        open_to_all = self._authorizer.always_allows(target.path)
        # Probes are open, and a busy process must not look like a dead one.
        if self._in_flight >= self._limits.in_flight and not open_to_all:
            raise too_many_requests("Too many requests, please try again later.", retry_after=1)
        self._in_flight += 1
        self._telemetry.in_flight.set(self._in_flight)
        try:
            return await self._before_deadline(request, target, info, open_to_all=open_to_all)
        finally:
            self._in_flight -= 1
            self._telemetry.in_flight.set(self._in_flight)

    async def _before_deadline(
        self, request: web.BaseRequest, target: Target, info: RequestInfo, *, open_to_all: bool
    ) -> Answer:
        seconds = min(_wanted_seconds(target), self._limits.request_seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout_at(deadline) as timeout:
                if not open_to_all:
                    user = await self._authenticator.authenticate(_credentials(request))
                    await self._authorizer.authorize(user, info)
                    _log.debug("%s asks %s %s", user.name, request.method, target.path)
                remaining = max(deadline - loop.time(), 0.0)
                return await self._router.answer(_call(request, target, info, remaining))
        except TimeoutError:
            if not timeout.expired():
                raise
        raise StatusError(504, "Timeout", "Timeout: request did not complete within the allotted timeout", details={})

    def _labels(self, info: RequestInfo) -> RequestLabels:
        if not info.is_resource:
            return RequestLabels(verb=info.verb)
        if not self._discovery.knows(info.group, info.resource):
            return RequestLabels(verb=info.verb, resource="unknown")
        return RequestLabels(info.verb, info.group, info.version, info.resource)


class Listener:
    """The listening socket and its connections.

    Args:
        server: answers the requests.
        context: TLS for new connections.
        limits: see ServerLimits.
    """

    def __init__(self, server: RequestServer, context: ssl.SSLContext, limits: ServerLimits) -> None:
        self._server = server
        self._context = context
        self._limits = limits
        self._runner: web.ServerRunner | None = None

    async def start(self, listening: socket.socket) -> None:
        """Begin to accept connections on a bound socket, which is this listener's from now on."""
        self._runner = web.ServerRunner(
            _StatusServer(
                self._server.handle,
                handler_cancellation=True,
                access_log=None,
                keepalive_timeout=_KEEPALIVE_SECONDS,
                max_line_size=_MAX_LINE,
                max_field_size=_MAX_FIELD,
                max_headers=_MAX_HEADERS,
            ),
            shutdown_timeout=self._limits.shutdown_seconds,
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listening, ssl_context=self._context, backlog=_BACKLOG).start()

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight end, then close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


class _StatusHandler(RequestHandler):
    """aiohttp's handler of one connection, which says a Status where aiohttp would say a page of its own."""

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
            error = _unreadable(status, exc)
        response = _response(_error_answer(error, None), None)
        response.force_close()
        return response


class _StatusServer(web.Server):
    def __call__(self) -> RequestHandler:
        return _StatusHandler(self, loop=self._loop, **self._kwargs)


def _unreadable(status: int, exc: BaseException | None) -> StatusError:
    """What aiohttp could not make a request of. Its parser knows the usual methods only, and refuses others here."""
    if isinstance(exc, BadHttpMethod):
        return method_not_allowed()
    return StatusError(status, "BadRequest", "the request cannot be read: it is not HTTP, or its head is too long")


def _credentials(request: web.BaseRequest) -> Credentials:
    connection = request.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) if connection is not None else None
    return Credentials(certificate, request.headers)


def _wanted_seconds(target: Target) -> float:
    text = target.query.get("timeout")
    if not text:
        return float("inf")
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise bad_request(f"invalid timeout specified in the request URL: {error}") from error
    return seconds if seconds > 0 else float("inf")


def _call(request: web.BaseRequest, target: Target, info: RequestInfo, seconds: float) -> Call:
    return Call(
        method=request.method,
        target=target,
        info=info,
        accept=",".join(request.headers.getall("Accept", ())),
        user_agent=request.headers.get("User-Agent", ""),
        timeout=seconds,
        known_tags=frozenset(tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")),
    )


def _error_answer(error: StatusError, request: web.BaseRequest | None) -> Answer:
    representation = Representation()
    if request is not None:
        with contextlib.suppress(StatusError):
            representation = Representation.negotiate(",".join(request.headers.getall("Accept", ())))
    return Answer(error.code, representation.encode_error(error), retry_after=error.retry_after)


def _response(answer: Answer, request: web.BaseRequest | None) -> web.Response:
    content: Encoded = answer.content
    headers = {"Content-Type": content.content_type, "Cache-Control": "no-cache, private", "Server": "milliscale"}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(answer.retry_after)
    if answer.tag is not None:
        headers["ETag"] = answer.tag
        headers["Vary"] = "Accept"
    response = web.Response(status=answer.status, body=content.body, headers=headers)
    if (
        request is not None
        and len(content.body) >= _COMPRESS_FROM
        and "gzip" in request.headers.get("Accept-Encoding", "")
    ):
        response.enable_compression(web.ContentCoding.gzip)
    return response
