"""The request path: authenticate, authorize, route, encode.

All of it is subject to the request's deadline and the limit on requests in flight. Every error becomes a metav1.Status,
which clients of an API server decode. Internal errors are logged with their traceback and not shown
(`kube.serving.connection`). When a client disconnects, its request is cancelled.

HTTP/2 is not served; clients settle for HTTP/1.1 during the TLS handshake.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Coroutine, Generator
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec
from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy

from adapter.content.encoding import COMPRESS_FROM, Representation, compress
from adapter.serving.requests import NOT_GUESSED, Request, RequestLine, RequestLines, Response, accept
from adapter.serving.routes import Router
from adapter.settings import DEFAULTS
from adapter.telemetry import Telemetry
from kube.aio.fairness import FairSemaphore, QueueFullError, enter_namespace
from kube.api.status import StatusError, bad_request, too_many_requests
from kube.security.authentication import Authenticator
from kube.security.authorization import Authorizer
from kube.serving.local import is_local
from kube.serving.options import ServerLimits

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

# Providers enforce the deadline themselves and report what took too long; they get this much longer for it.
_GRACE_SECONDS = 0.1
# The status that is counted if the client disconnects; nginx's number for it.
_CLIENT_CLOSED_REQUEST = 499
_VERSIONS = (HttpVersion11, HttpVersion10)
# Few content types: those of documents and of discovery's forms.
_CONTENT_TYPES = 64
_NO_GZIP = re.compile(r"q\s*=\s*0(\.0*)?")


class DeadlineExceeded(TimeoutError):
    """The work was cancelled at its deadline; other TimeoutErrors come from the work itself."""


class RequestServer:
    """Responds to requests.

    Args:
        authenticator: finds the user.
        authorizer: decides whether the user may do this.
        router: returns the current router; each request keeps the one that it began with.
        telemetry: counts requests.
        limits: see ServerLimits.
        is_overloaded: decides whether a request gets 429, see kube.serving.connection.overload_check.
        cache_bytes: the size of the cache of parsed request lines.
        local_paths: paths that clients inside the pod may read without credentials, see kube.serving.local.
    """

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        authorizer: Authorizer,
        router: Callable[[], Router],
        telemetry: Telemetry,
        limits: ServerLimits,
        is_overloaded: Callable[[web.BaseRequest], bool],
        cache_bytes: int = DEFAULTS.caches.requests_bytes,
        local_paths: Collection[str] = (),
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._router = router
        self._telemetry = telemetry
        self._limits = limits
        self._is_overloaded = is_overloaded
        self._local_paths = local_paths
        self._lines = RequestLines(authorizer.always_allows, cache_bytes)
        self._in_flight = 0
        self._slots = FairSemaphore(limits.in_flight, max_waiting=limits.in_flight // 4)
        telemetry.count_in_flight(lambda: self._in_flight)

    async def respond(self, request: web.BaseRequest, certificate: bytes | None) -> web.Response:
        """Respond to a request. `certificate` is the client's (DER), verified by one of the CAs."""
        started = time.monotonic()
        router, line, code = self._router(), None, 500
        try:
            try:
                if request.version not in _VERSIONS:
                    raise _version_not_supported()
                line = self._lines.parse(request.method, request.raw_path)
                if line.timeout_error is not None:
                    raise bad_request(line.timeout_error)
                deadline = asyncio.get_running_loop().time() + min(line.timeout, self._limits.request_seconds)
                work = self._process(request, certificate, line, router, deadline)
                response = await within(deadline + _GRACE_SECONDS, work)
            except QueueFullError:
                error = too_many_requests("Too many requests, please try again later.", retry_after=1)
                response = error_response(error, request.headers)
            except DeadlineExceeded:
                message = "Timeout: request did not complete within the allotted timeout"
                response = error_response(StatusError(504, "Timeout", message, details={}), request.headers)
            except StatusError as error:
                response = error_response(error, request.headers)
            code = response.status
            return response
        except asyncio.CancelledError:
            code = _CLIENT_CLOSED_REQUEST
            raise
        finally:
            seconds = time.monotonic() - started
            if line is not None:
                self._telemetry.observe(line.info, router.knows, code=code, seconds=seconds)
            else:
                self._telemetry.observe_unparsed(request.method, code=code, seconds=seconds)

    async def _process(
        self, request: web.BaseRequest, certificate: bytes | None, line: RequestLine, router: Router, deadline: float
    ) -> web.Response:
        """Authenticate, authorize and route a request, within the limit on requests in flight."""
        namespace = line.info.namespace
        enter_namespace(namespace)
        # Clients without a verified certificate share one queue, so that they gain nothing by inventing namespaces.
        queue = namespace if certificate is not None else ""
        if not line.is_exempt and self._is_overloaded(request):
            raise QueueFullError
        if not line.is_exempt and not self._slots.try_acquire(queue):
            await self._slots.acquire(queue)
        self._in_flight += 1
        try:
            if not (line.is_public or (line.target.path in self._local_paths and is_local(request))):
                user = await self._authenticator.authenticate(certificate, request.raw_headers)
                await self._authorizer.authorize(user, line.info)
            response = await router.respond(Request(line, request.headers, deadline))
            body = response.content.body
            if len(body) < COMPRESS_FROM:
                return web.Response(status=response.status, body=body, headers=_headers(response))
            return await _compressed(response, request.headers)
        finally:
            self._in_flight -= 1
            if not line.is_exempt:
                self._slots.release(queue)


def error_response(error: StatusError, headers: CIMultiDictProxy[str] | None = None) -> web.Response:
    """Return the response for an error to a request with these headers; None: unknown."""
    content = Representation.for_error(accept(headers) if headers is not None else "").encode_error(error)
    if error.code == 403:
        content = msgspec.structs.replace(content, headers=NOT_GUESSED)
    return web.Response(
        status=error.code, body=content.body, headers=_headers(Response(error.code, content, error.retry_after))
    )


async def _compressed(response: Response, request_headers: CIMultiDictProxy[str]) -> web.Response:
    """Compress a long response, if the client accepts it."""
    headers, content = CIMultiDict(_headers(response)), response.content
    body = content.body
    headers[hdrs.VARY] = "Accept, Accept-Encoding" if content.tag else "Accept-Encoding"
    if _accepts_gzip(request_headers):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        body = content.gzip if content.gzip is not None else await asyncio.to_thread(compress, body)
    return web.Response(status=response.status, body=body, headers=headers)


def _accepts_gzip(headers: CIMultiDictProxy[str]) -> bool:
    for clause in ",".join(headers.getall(hdrs.ACCEPT_ENCODING, ())).split(","):
        coding, *parameters = (part.strip().lower() for part in clause.split(";"))
        if coding in ("gzip", "x-gzip"):
            return not any(_NO_GZIP.fullmatch(parameter) for parameter in parameters)
    return False


def _headers(response: Response) -> CIMultiDictProxy[str]:
    content = response.content
    common = _common_headers(content.content_type)
    if response.retry_after is None and not content.tag and not content.headers:
        return common
    headers = CIMultiDict(common)
    if response.retry_after is not None:
        headers[hdrs.RETRY_AFTER] = str(response.retry_after)
    if content.tag:
        headers[hdrs.ETAG] = content.tag
        headers[hdrs.VARY] = "Accept"
    headers.update(content.headers)
    return CIMultiDictProxy(headers)


@lru_cache(maxsize=_CONTENT_TYPES)
def _common_headers(content_type: str) -> CIMultiDictProxy[str]:
    """Return the headers of every response of a content type."""
    named = {hdrs.CONTENT_TYPE: content_type, hdrs.CACHE_CONTROL: "no-cache, private", hdrs.SERVER: "milliscale"}
    return CIMultiDictProxy(CIMultiDict(named))


def _version_not_supported() -> StatusError:
    return StatusError(505, "HTTPVersionNotSupported", "the request's version of HTTP is not spoken here: use HTTP/1.1")


async def within(deadline: float, work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of `work`, a coroutine that has not been started; cancel it at the deadline (event loop time).

    Like `asyncio.timeout_at`, but work that never waits sets no timer, which would cost a tenth of a response from the
    cache.

    Raises:
        DeadlineExceeded: the work did not end in time.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    try:
        async with asyncio.timeout_at(deadline) as timeout:
            return await _Rest(work, waits_for)
    except TimeoutError as error:
        if timeout.expired():
            raise DeadlineExceeded from error
        raise


class _Rest(Generic[_T]):
    """The rest of a coroutine after its first await: `yield from`, started in the middle (PEP 380)."""

    def __init__(self, work: Coroutine[Any, Any, _T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, _T]:
        work, waits_for = self._work, self._waits_for
        while True:
            failure: BaseException | None = None
            sent: Any = None
            try:
                sent = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - raised in the work, above all cancellation
                failure = error
            try:
                waits_for = work.send(sent) if failure is None else work.throw(failure)
            except StopIteration as done:
                return cast("_T", done.value)
