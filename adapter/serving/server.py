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
from typing import Any, Generic, TypeVar, cast

import msgspec
from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from cachetools import LRUCache
from multidict import CIMultiDict, CIMultiDictProxy

from adapter.content.encoding import COMPRESS_FROM, Representation, compress
from adapter.content.values import CUSTOM_GROUP, EXTERNAL_GROUP
from adapter.serving.routes import NOT_GUESSED, Request, RequestLine, Response, Router, accept
from adapter.serving.rule_sets import RuleSets
from adapter.settings import DEFAULTS
from adapter.telemetry import Telemetry
from kube.aio.fairness import FairSemaphore, QueueFullError, enter_namespace
from kube.api.status import StatusError, bad_request, too_many_requests
from kube.security.authentication import Authenticator
from kube.security.authorization import Authorizer
from kube.security.request_info import RequestInfo, Target
from kube.serving.local import is_local
from kube.serving.options import ServerLimits
from kube.values.durations import DurationError, parse_duration

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

# Providers enforce the deadline themselves and report what took too long; they get this much longer for it.
_GRACE_SECONDS = 0.1
# The status that is counted if the client disconnects; nginx's number for it.
_CLIENT_CLOSED_REQUEST = 499
_VERSIONS = (HttpVersion11, HttpVersion10)
_COMMON_HEADERS: dict[str, str] = {hdrs.CACHE_CONTROL: "no-cache, private", hdrs.SERVER: "milliscale"}
# An estimate of the bytes of a cached request line. Many short parameters are the worst case.
_LINE_BYTES = 1_000
_BYTES_OF_CHARACTER = 30
_NO_GZIP = re.compile(r"q\s*=\s*0(\.0*)?")


class DeadlineExceeded(TimeoutError):
    """The work was cancelled at its deadline; other TimeoutErrors come from the work itself."""


class RequestServer:
    """Responds to requests.

    Args:
        authenticator: finds the user.
        authorizer: decides whether the user may do this.
        rule_sets: has the current router; each request keeps the one that it began with.
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
        rule_sets: RuleSets,
        telemetry: Telemetry,
        limits: ServerLimits,
        is_overloaded: Callable[[web.BaseRequest], bool],
        cache_bytes: int = DEFAULTS.caches.requests_bytes,
        local_paths: Collection[str] = (),
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._rule_sets = rule_sets
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
        router, line, code = self._rule_sets.current.router, None, 500
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
    headers, content = _headers(response), response.content
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


def _headers(response: Response) -> CIMultiDict[str]:
    content = response.content
    headers = CIMultiDict({**_COMMON_HEADERS, hdrs.CONTENT_TYPE: content.content_type, **content.headers})
    if response.retry_after is not None:
        headers[hdrs.RETRY_AFTER] = str(response.retry_after)
    if content.tag:
        headers[hdrs.ETAG] = content.tag
        headers[hdrs.VARY] = "Accept"
    return headers


def _version_not_supported() -> StatusError:
    return StatusError(505, "HTTPVersionNotSupported", "the request's version of HTTP is not spoken here: use HTTP/1.1")


class RequestLines:
    """Parses request lines; controllers send the same ones every 15 seconds."""

    def __init__(self, is_public: Callable[[str], bool], max_bytes: int = DEFAULTS.caches.requests_bytes) -> None:
        """`is_public` returns True for a path without authentication; `max_bytes` is the size of the cache."""
        self._is_public = is_public
        self._cache: LRUCache[tuple[str, str], RequestLine] = LRUCache(max_bytes, getsizeof=_size)

    def parse(self, method: str, raw_target: str) -> RequestLine:
        """Parse a request line. Raises StatusError 400, as Target.parse."""
        key = (method, raw_target)
        try:
            return self._cache[key]
        except KeyError:
            pass
        target = _own_path(Target.parse(raw_target))
        info = RequestInfo.of(method, target)
        is_public = self._is_public(target.path)
        is_discovery = target.segments[:1] == ("apis",) and not info.is_resource
        timeout, error = _timeout(target)
        line = RequestLine(method, target, info, is_public, is_public or is_discovery, timeout, error, len(raw_target))
        self._cache[key] = line
        return line


def _own_path(target: Target) -> Target:
    """Return /debug/metrics/RESOURCE/METRIC for that path below a metrics API, where the API server forwards it.

    It is authorized as such a path: the right to all metrics does not include how they are made. The path of no metric
    has so many segments.
    """
    segments = target.segments
    if len(segments) == 7 and segments[1] in (CUSTOM_GROUP, EXTERNAL_GROUP) and segments[3:5] == ("debug", "metrics"):
        return Target("/" + "/".join(segments[3:]), target.query)
    return target


def _size(line: RequestLine) -> int:
    return _LINE_BYTES + _BYTES_OF_CHARACTER * line.length


def _timeout(target: Target) -> tuple[float, str | None]:
    text = target.query.get("timeout")
    try:
        seconds = parse_duration(text) if text else 0.0
    except DurationError as error:
        return 0.0, f"invalid timeout specified in the request URL - time: {error.what}"
    return seconds if seconds > 0 else float("inf"), None


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
