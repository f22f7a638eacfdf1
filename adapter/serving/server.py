"""The HTTP server: from a connection to an answer, and nothing about metrics.

A request passes, in this order, the limit on requests in flight, authentication, authorization and the router, all
within its deadline. Whatever goes wrong on the way, at any point, becomes a metav1.Status, because that is what
clients of an API server decode; also what aiohttp itself refuses before there is a request, and also our own
mistakes, which are logged with their traceback and shown to nobody (`connection`). A client that goes away takes its
request with it.

HTTP/2 is not spoken; clients settle for HTTP/1.1 during the TLS handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry

from adapter.content.encoding import Encoded, Representation
from adapter.fairness import FairSemaphore, QueueFullError, enter_namespace
from adapter.security.authentication import Authenticator, Credentials
from adapter.security.authorization import Authorizer
from adapter.security.request_info import RequestInfo, Target
from adapter.serving.accepting import LimitedSite, within_open_files
from adapter.serving.call import Answer, Call
from adapter.serving.connection import ConnectionLimits, ConnectionServer
from adapter.serving.discovery import Discovery
from adapter.serving.open_connections import OpenConnections
from adapter.serving.routes import Router
from adapter.serving.telemetry import RequestLabels, Telemetry
from kube.durations import DurationError, parse_duration
from kube.status import StatusError, bad_request, forbidden, too_many_requests

__all__ = ["Listener", "RequestServer", "ServerLimits"]

_log = logging.getLogger(__name__)

# Below this a body is not worth compressing; the number is Kubernetes'.
_COMPRESS_FROM = 128 * 1024
_COMPRESSION_LEVEL = 1
# The data path keeps to the deadline and knows for what the time was too short; it is given that much to say so.
_LAST_WORD_SECONDS = 0.1
# What a request is counted as whose client did not wait for the answer; web servers' common number for it.
_CLIENT_GONE = 499
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one client may cost the others.

    Attributes:
        connections: open at a time, those in their TLS handshake included.
        in_flight: requests that are worked on at a time; of each namespace a quarter as many may wait to be next, and
            more are answered with 429 at once.
        request_seconds: how long a request may take; a `timeout` parameter can only shorten it.
        shutdown_seconds: how long requests in flight may still take when the process is told to end.
        connection: how long clients may take their time.
    """

    connections: int = 2000
    in_flight: int = 400
    request_seconds: float = 60.0
    shutdown_seconds: float = 20.0
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


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
        self._slots = FairSemaphore(limits.in_flight, max_waiting=limits.in_flight // 4)

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
            message = await _message(answer, request)
            return message.response()
        except asyncio.CancelledError:
            code = _CLIENT_GONE
            raise
        finally:
            self._telemetry.observe(labels, code=code, seconds=time.monotonic() - started)

    async def _within_limits(self, request: web.BaseRequest, target: Target, info: RequestInfo) -> Answer:
        open_to_all = self._authorizer.always_allows(target.path)
        # A busy process must not look like a dead one: neither to probes, whose paths are open to all, nor to the API
        # server, which asks for discovery and takes the whole API for unavailable without it.
        never_refused = open_to_all or _is_discovery(target, info)
        enter_namespace(info.namespace)
        slot = contextlib.nullcontext() if never_refused else self._slots.slot(info.namespace)
        try:
            return await self._before_deadline(request, target, info, slot, open_to_all=open_to_all)
        except QueueFullError as error:
            raise too_many_requests("Too many requests, please try again later.", retry_after=1) from error

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._in_flight += 1
        self._telemetry.in_flight.set(self._in_flight)
        try:
            yield
        finally:
            self._in_flight -= 1
            self._telemetry.in_flight.set(self._in_flight)

    async def _before_deadline(
        self,
        request: web.BaseRequest,
        target: Target,
        info: RequestInfo,
        slot: AbstractAsyncContextManager[None],
        *,
        open_to_all: bool,
    ) -> Answer:
        seconds = min(_wanted_seconds(target), self._limits.request_seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            async with asyncio.timeout_at(deadline + _LAST_WORD_SECONDS) as timeout, slot:
                with self._counted():
                    if not open_to_all:
                        user = await self._authenticator.authenticate(_credentials(request))
                        _refuse_impersonation(request)
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
        registry: where connections are counted.
    """

    def __init__(
        self,
        server: RequestServer,
        context: ssl.SSLContext,
        limits: ServerLimits,
        *,
        registry: CollectorRegistry,
    ) -> None:
        self._connections = OpenConnections(most=within_open_files(limits.connections), registry=registry)
        self._server = server
        self._context = context
        self._limits = limits
        self._runner: web.ServerRunner | None = None

    async def start(self, listening: socket.socket) -> None:
        """Begin to accept connections on a bound socket, which is this listener's from now on."""
        server = ConnectionServer(
            self._server.handle,
            error_response=_unknown_clients_response,
            limits=self._limits.connection,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=self._limits.shutdown_seconds)
        await self._runner.setup()
        site = LimitedSite(
            self._runner,
            listening,
            context=self._context,
            handshake=self._limits.connection.handshake,
            connections=self._connections,
            protocol=server.connection,
        )
        await site.start()

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight end, then close every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _credentials(request: web.BaseRequest) -> Credentials:
    connection = request.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) if connection is not None else None
    return Credentials(certificate, request.headers)


def _refuse_impersonation(request: web.BaseRequest) -> None:
    """Whoever wants to be taken for somebody else must not be answered as who they are. Raises StatusError 403."""
    if any(name.lower().startswith("impersonate-") for name in request.headers):
        raise forbidden("impersonation is not possible here: ask the API server, which passes on who you are then")


def _is_discovery(target: Target, info: RequestInfo) -> bool:
    return target.segments[:1] == ("apis",) and not info.is_resource


def _wanted_seconds(target: Target) -> float:
    text = target.query.get("timeout")
    if not text:
        return float("inf")
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise bad_request(f"invalid timeout specified in the request URL - time: {error.what}") from error
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
    accept = "" if request is None else ",".join(request.headers.getall("Accept", ()))
    representation = Representation.for_error(accept)
    headers = {"X-Content-Type-Options": "nosniff"} if error.code == _FORBIDDEN else {}
    return Answer(error.code, representation.encode_error(error), retry_after=error.retry_after, headers=headers)


def _unknown_clients_response(error: StatusError) -> web.Response:
    answer = _error_answer(error, None)
    return _Message(answer.status, _headers(answer), answer.content.body).response()


@dataclass(frozen=True, slots=True)
class _Message:
    """An answer as it goes out."""

    status: int
    headers: dict[str, str]
    body: bytes

    def response(self) -> web.Response:
        return web.Response(status=self.status, body=self.body, headers=self.headers)


async def _message(answer: Answer, request: web.BaseRequest) -> _Message:
    """An answer, compressed where it is long and the client takes that."""
    headers, body = _headers(answer), answer.content.body
    if len(body) >= _COMPRESS_FROM and _takes_gzip(request.headers.getall("Accept-Encoding", ())):
        headers["Content-Encoding"] = "gzip"
        # The level is Kubernetes'; zlib lets other threads run meanwhile.
        body = await asyncio.to_thread(gzip.compress, body, _COMPRESSION_LEVEL, mtime=0)
    return _Message(answer.status, headers, body)


def _headers(answer: Answer) -> dict[str, str]:
    content: Encoded = answer.content
    headers = {"Content-Type": content.content_type, "Cache-Control": "no-cache, private", "Server": "milliscale"}
    varies = []
    if answer.retry_after is not None:
        headers["Retry-After"] = str(answer.retry_after)
    if answer.tag is not None:
        headers["ETag"] = answer.tag
        varies.append("Accept")
    if len(content.body) >= _COMPRESS_FROM:
        varies.append("Accept-Encoding")
    if varies:
        headers["Vary"] = ", ".join(varies)
    return {**headers, **answer.headers}


def _takes_gzip(accept_encoding: Iterable[str]) -> bool:
    """Whether a client lists gzip among the codings that it reads, and not with a quality of zero."""
    for clause in ",".join(accept_encoding).split(","):
        coding, *parameters = (part.strip().lower() for part in clause.split(";"))
        if coding in ("gzip", "x-gzip"):
            return not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", parameter) for parameter in parameters)
    return False
