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
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from aiohttp import HttpVersion10, HttpVersion11, web
from multidict import CIMultiDict

from adapter.content.encoding import Encoded, Representation
from adapter.fairness import FairSemaphore, QueueFullError, enter_namespace
from adapter.security.authentication import USUAL_HEADERS, Authenticator, Credentials
from adapter.security.authorization import Authorizer
from adapter.security.request_info import RequestInfo
from adapter.serving.call import Answer, Call
from adapter.serving.compression import COMPRESS_FROM, compressed, takes_gzip
from adapter.serving.connection import ConnectionLimits, connection_of
from adapter.serving.parsed_targets import ParsedTarget, ParsedTargets
from adapter.serving.routes import Router
from adapter.serving.telemetry import RequestLabels, Telemetry
from kube.deadlines import Deadline, DeadlineExceeded, within
from kube.status import StatusError, forbidden, too_many_requests

_log = logging.getLogger(__name__)

# The data path keeps to the deadline and knows for what the time was too short; it is given that much to say so.
_LAST_WORD_SECONDS = 0.1
# What a request is counted as whose client did not wait for the answer; web servers' common number for it.
_CLIENT_GONE = 499
_FORBIDDEN = 403
_VERSIONS = (HttpVersion11, HttpVersion10)
# Beside those of the documents there are few, of discovery's forms.
_CONTENT_TYPES = 64


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
        router: has the answers; each request takes one at its start and keeps it to its end.
        telemetry: counts them.
        limits: see ServerLimits.
    """

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        router: Callable[[], Router],
        telemetry: Telemetry,
        limits: ServerLimits,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._router = router
        self._telemetry = telemetry
        self._limits = limits
        self._targets = ParsedTargets(authorizer.always_allows)
        self._in_flight = 0
        self._slots = FairSemaphore(limits.in_flight, max_waiting=limits.in_flight // 4)
        telemetry.count_in_flight(lambda: self._in_flight)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        started = time.monotonic()
        connection = connection_of(request)
        connection.begin_request(request)
        router, labels, code = self._router(), None, 500
        try:
            try:
                if request.version not in _VERSIONS:
                    raise _other_version()
                parsed = self._targets.parse(request.method, request.raw_path)
                labels = _labels(parsed.info, router)
                response = await self._within_limits(request, connection.certificate, parsed, router)
            except StatusError as error:
                response = await _response(_error_answer(error, request), request)
            code = response.status
            if not connection.end_request():
                response.force_close()
            return response
        except asyncio.CancelledError:
            code = _CLIENT_GONE
            raise
        finally:
            connection.busy = False
            labels = labels or RequestLabels(verb=request.method.lower())
            self._telemetry.observe(labels, code=code, seconds=time.monotonic() - started)

    async def _within_limits(
        self, request: web.BaseRequest, certificate: bytes | None, parsed: ParsedTarget, router: Router
    ) -> web.Response:
        enter_namespace(parsed.info.namespace)
        deadline = Deadline.after(min(parsed.seconds(), self._limits.request_seconds))
        work = self._in_turn(request, certificate, parsed, router, deadline)
        try:
            return await within(Deadline(deadline.at + _LAST_WORD_SECONDS), work)
        except QueueFullError as error:
            raise too_many_requests("Too many requests, please try again later.", retry_after=1) from error
        except DeadlineExceeded as error:
            message = "Timeout: request did not complete within the allotted timeout"
            raise StatusError(504, "Timeout", message, details={}) from error

    async def _in_turn(
        self,
        request: web.BaseRequest,
        certificate: bytes | None,
        parsed: ParsedTarget,
        router: Router,
        deadline: Deadline,
    ) -> web.Response:
        """Answer within the limit on requests in flight, which namespaces share."""
        # Clients without a certificate that some CA signed share one queue, so that none gets ahead by inventing names.
        namespace = parsed.info.namespace if certificate is not None else ""
        if not parsed.never_refused:
            await self._slots.acquire(namespace)
        self._in_flight += 1
        try:
            return await self._answer(request, certificate, parsed, router, deadline)
        finally:
            self._in_flight -= 1
            if not parsed.never_refused:
                self._slots.release(namespace)

    async def _answer(
        self,
        request: web.BaseRequest,
        certificate: bytes | None,
        parsed: ParsedTarget,
        router: Router,
        deadline: Deadline,
    ) -> web.Response:
        if not parsed.open_to_all:
            user = await self._authenticator.authenticate(Credentials(certificate, request.raw_headers))
            _refuse_impersonation(request)
            await self._authorizer.authorize(user, parsed.info)
            _log.debug("%s asks %s %s", user.name, request.method, parsed.target.path)
        return await _response(await router.answer(_call(request, parsed, deadline)), request)


def _labels(info: RequestInfo, router: Router) -> RequestLabels:
    if not info.is_resource:
        return RequestLabels(verb=info.verb)
    if not router.knows(info.group, info.resource):
        return RequestLabels(verb=info.verb, resource="unknown")
    return RequestLabels(info.verb, info.group, info.version, info.resource)


def _refuse_impersonation(request: web.BaseRequest) -> None:
    """Whoever wants to be taken for somebody else must not be answered as who they are. Raises StatusError 403."""
    for name, _ in request.raw_headers:
        if name not in USUAL_HEADERS and name.lower().startswith(b"impersonate-"):
            raise forbidden("impersonation is not possible here: ask the API server, which passes on who you are then")


def _call(request: web.BaseRequest, parsed: ParsedTarget, deadline: Deadline) -> Call:
    headers = request.headers
    known_tags = headers.get("If-None-Match")
    return Call(
        method=request.method,
        target=parsed.target,
        info=parsed.info,
        accept=",".join(headers.getall("Accept", ())),
        user_agent=headers.get("User-Agent", ""),
        deadline=deadline,
        known_tags=frozenset(tag.strip() for tag in known_tags.split(",")) if known_tags else frozenset(),
    )


def _error_answer(error: StatusError, request: web.BaseRequest | None) -> Answer:
    accept = "" if request is None else ",".join(request.headers.getall("Accept", ()))
    representation = Representation.for_error(accept)
    headers = {"X-Content-Type-Options": "nosniff"} if error.code == _FORBIDDEN else {}
    return Answer(error.code, representation.encode_error(error), retry_after=error.retry_after, headers=headers)


def _other_version() -> StatusError:
    return StatusError(505, "HTTPVersionNotSupported", "the request's version of HTTP is not spoken here: use HTTP/1.1")


def error_response(error: StatusError) -> web.Response:
    """Return the response to a client about which nothing is known."""
    answer = _error_answer(error, None)
    return web.Response(status=answer.status, body=answer.content.body, headers=_headers(answer))


async def _response(answer: Answer, request: web.BaseRequest) -> web.Response:
    """An answer as it goes out, compressed where it is long and the client takes that."""
    headers, body = _headers(answer), answer.content.body
    if len(body) >= COMPRESS_FROM and takes_gzip(request.headers.getall("Accept-Encoding", ())):
        headers["Content-Encoding"] = "gzip"
        body = answer.gzip if answer.gzip is not None else await asyncio.to_thread(compressed, body)
    return web.Response(status=answer.status, body=body, headers=headers)


def _headers(answer: Answer) -> CIMultiDict[str]:
    content: Encoded = answer.content
    headers = _common_headers(content.content_type).copy()
    varies = []
    if answer.retry_after is not None:
        headers["Retry-After"] = str(answer.retry_after)
    if answer.tag is not None:
        headers["ETag"] = answer.tag
        varies.append("Accept")
    if len(content.body) >= COMPRESS_FROM:
        varies.append("Accept-Encoding")
    if varies:
        headers["Vary"] = ", ".join(varies)
    for name, value in answer.headers.items():
        headers[name] = value
    return headers


@lru_cache(maxsize=_CONTENT_TYPES)
def _common_headers(content_type: str) -> CIMultiDict[str]:
    """What every answer of a content type has; to be copied."""
    named = {"Content-Type": content_type, "Cache-Control": "no-cache, private", "Server": "milliscale"}
    return CIMultiDict(named)
