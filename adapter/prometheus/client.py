"""The client of one Prometheus: instant queries, and the series that discovery needs.

A query goes into the URL with GET, as prometheus-adapter sends it, until the URL would be longer than servers and
proxies accept; then it goes into the body with POST. After a proxy has refused a URL (414, 431), queries of that length
are sent by POST.

A response of more than 64 KiB is decoded in pieces while it arrives. All responses share a MemoryBudget, and one
piece is decoded at a time. A list of series is reduced to names as it arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
from cachetools import LRUCache
from yarl import URL

from adapter.prometheus.errors import (
    PrometheusAccessError,
    PrometheusBadResponse,
    PrometheusBusy,
    PrometheusError,
    PrometheusPartialResponse,
    PrometheusQueryError,
    PrometheusTimeout,
    PrometheusUnavailable,
    refusal,
    server_text,
)
from adapter.prometheus.long_responses import MemoryBudget, read_list
from adapter.prometheus.options import DEFAULT_DESTINATION, Destination, PrometheusOptions
from adapter.prometheus.results import Notices, RangeSeries, Vector, VectorReader, decode, decode_range
from adapter.prometheus.series import Series, SeriesReader, decode_names, with_label
from adapter.settings import DEFAULTS, PrometheusSettings
from adapter.upstream import CredentialsError, UpstreamClient, UpstreamConfigError, without_credentials
from kube.aio.fairness import QueueFullError, current_namespace
from kube.aio.http import read_up_to

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_Headers = tuple[tuple[str, str], ...]
_Receive = Callable[[aiohttp.ClientResponse], Awaitable[_T]]

# Responses up to this length are decoded in one piece. At most this much of an error's body is read.
_SHORT = 64 * 1024
_MAX_RANGE = 4 * 1024 * 1024  # a day of minutes of a hundred series
_RANGE_MEMORY = 14  # times the length of its response, while that is decoded
# Compressing a short response takes Prometheus longer than to evaluate the query. The client accepts compression for
# queries whose last response was long, and stores this many of them.
_LONG_QUERIES = 4_096
_UNCOMPRESSED = ("Accept-Encoding", "identity")
_MAX_NAMES_LISTING = 4 * 1024 * 1024  # takes 5 ms to decode
_NAMES = "label/__name__/values"
_MAX_LABELS = 200  # each is a request
# How servers refuse a list for its length.
_TOO_MANY = re.compile(r"exceed|too many|too large|limit", re.IGNORECASE)
_MAX_WARNINGS = 200  # distinct warnings that are logged, each once


@dataclasses.dataclass(slots=True)
class QueryProgress:
    """Since when a query is in flight, in seconds of the event loop; infinite while it waits for a slot."""

    since: float


query_progress: ContextVar[QueryProgress | None] = ContextVar("query_progress", default=None)
"""The progress of the query that this task sends; None: nobody reads it."""


class _UrlTooLong(Exception):
    """Prometheus, or a proxy before it, accepts no URL of this length."""


class PrometheusClient:
    """Queries one Prometheus. Use as an async context manager."""

    def __init__(
        self,
        options: PrometheusOptions,
        *,
        observe: Callable[[str, float], None] = lambda *_: None,
        budget: MemoryBudget | None = None,
        settings: PrometheusSettings = DEFAULTS.prometheus,
    ) -> None:
        """`observe` is called after every request with its path and duration in seconds.

        `budget` is for long responses; by default the client has its own.
        """
        self._options = options
        self._settings = settings
        self._query_seconds = settings.query_seconds if options.query_timeout is None else options.query_timeout
        self._observe = observe
        self._budget = budget or MemoryBudget()
        self._upstream = UpstreamClient(
            options,
            connections=options.connections,
            max_waiting=settings.waiting,
            spare=options.connections // 2,
            reserved=settings.lists,
        )
        self._listing = asyncio.Semaphore(settings.lists)
        # The hashes of queries with long responses.
        self._long: LRUCache[int, bool] = LRUCache(_LONG_QUERIES)
        more = options.query_parameters
        paths = ("query", "query_range", "series", "labels", _NAMES)
        self._endpoints = {path: URL(options.endpoint(path)).with_query(more) for path in paths}
        self._max_url = settings.url_bytes
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        """Read the TLS files, and send nothing yet.

        Raises:
            PrometheusConfigError: a file cannot be used.
        """
        await self._upstream.load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._upstream.close()

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Evaluate a query now, within the limits of the destination's tenant.

        The destination's headers replace those of the options with the same names. Prometheus gets the seconds until
        the deadline (event loop time) as `timeout`, limited by the options and the tenant. A result of more samples
        than the tenant may get is an error.

        Raises:
            PrometheusError: one of the subclasses that `adapter.prometheus` lists.
        """
        left = deadline - asyncio.get_running_loop().time()
        seconds = min(self._query_seconds, destination.tenant.query_seconds, left)
        if seconds <= 0:
            raise PrometheusTimeout("no time was left for the query")
        # Never rounded to 0, which some servers interpret as no limit.
        parameters = {"query": query, "timeout": f"{max(seconds, 0.001):.3f}"}
        with self._timed("/api/v1/query"):
            result = await _bounded(seconds, self._instant(parameters, destination))
        self._check(result.notices)
        return result

    async def range(
        self, query: str, *, start: int, end: int, step: int, destination: Destination = DEFAULT_DESTINATION
    ) -> list[RangeSeries]:
        """Evaluate a query at times from `start` to `end`, both included, in seconds; see `instant`.

        Raises:
            PrometheusError: one of the subclasses that `adapter.prometheus` lists.
        """
        seconds = min(self._query_seconds, destination.tenant.query_seconds)
        times = {"start": str(start), "end": str(end), "step": str(step), "timeout": f"{seconds:.3f}"}
        receive = functools.partial(self._receive_range, destination.tenant.max_samples)
        with self._timed("/api/v1/query_range"):
            try:
                async with self._upstream.slot():
                    request = self._request("query_range", {"query": query, **times}, destination.headers, receive)
                    found, notices = await _bounded(seconds, request)
            except QueueFullError as error:
                raise PrometheusBusy(current_namespace()) from error
        self._check(notices)
        return found

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """Return the series that a selector finds between two times, in seconds since the epoch; see `Series`.

        A list that takes longer, or has more series, than the destination's tenant may is an error.

        Raises:
            PrometheusError: one of the subclasses that `adapter.prometheus` lists.
        """
        parameters = {"match[]": selector, "start": str(float(start)), "end": str(float(end))}
        seconds = min(self._settings.list_seconds, destination.tenant.query_seconds)
        async with self._listing:
            with self._timed("/api/v1/series"):
                found = await _bounded(seconds, self._series(parameters, destination))
                if self._options.partial_responses == "fail":
                    await self._check_labels(seconds, parameters, destination.headers)
                return found

    async def _series(self, parameters: dict[str, str], destination: Destination) -> tuple[Series, ...]:
        """List series; if they are too many for the server (VictoriaMetrics: 30,000), the names with each label."""
        headers, max_series = destination.headers, destination.tenant.max_samples
        receive = functools.partial(self._receive_series, max_series)
        try:
            return await self._request("series", parameters, headers, receive)
        except PrometheusQueryError as error:
            if destination.tenant.namespace or not _TOO_MANY.search(str(error)):
                raise
            labels = await self._request("labels", parameters, headers, self._receive_names)
            if len(labels) > _MAX_LABELS:
                raise
        found: dict[str, set[str]] = {}
        for label in labels:
            selector = {"match[]": with_label(parameters["match[]"], label)}
            for name in await self._request(_NAMES, parameters | selector, headers, self._receive_names):
                found.setdefault(name, set()).add(label)
        return tuple(Series(name, frozenset(labels - {"__name__"})) for name, labels in sorted(found.items()))

    async def _check_labels(self, seconds: float, parameters: dict[str, str], headers: _Headers) -> None:
        """Raise PrometheusPartialResponse if the labels of series are partial: Thanos does not say so of the series."""
        try:
            await _bounded(seconds, self._request("labels", parameters, headers, self._receive_names))
        except PrometheusPartialResponse:
            raise
        except PrometheusError as error:  # not all servers and proxies have labels
            _log.debug("the labels of series cannot be listed: %s", error)

    async def _instant(self, parameters: dict[str, str], destination: Destination) -> Vector:
        """Send a query once its namespace has a slot."""
        headers = destination.headers
        progress = query_progress.get() or QueryProgress(math.inf)
        progress.since = math.inf
        key = hash(parameters["query"])
        if key not in self._long:
            headers = (_UNCOMPRESSED, *headers)
        try:
            async with self._upstream.slot():
                progress.since = asyncio.get_running_loop().time()
                started = time.monotonic()
                receive = functools.partial(self._receive_result, key, destination.tenant.max_samples)
                result = await self._request("query", parameters, headers, receive)
                return dataclasses.replace(result, seconds=time.monotonic() - started)
        except QueueFullError as error:
            raise PrometheusBusy(current_namespace()) from error

    async def _request(self, path: str, parameters: dict[str, str], headers: _Headers, receive: _Receive[_T]) -> _T:
        """Send a request, with its parameters in the URL or in the body; `receive` reads the response."""
        endpoint = self._endpoints[path]
        url = endpoint.extend_query(parameters)
        size = len(url.raw_query_string)
        if self._options.verb == "GET" and size <= self._max_url:
            try:
                return await self._send(url, None, headers, receive)
            except _UrlTooLong:
                _log.info("Prometheus, or a proxy before it, accepts no URL of %d bytes; long queries go by POST", size)
            self._max_url = min(self._max_url, size - 1)
        return await self._send(endpoint, parameters, headers, receive)

    async def _send(self, url: URL, form: dict[str, str] | None, headers: _Headers, receive: _Receive[_T]) -> _T:
        """Send; retry once if the connection broke before the response, since queries have no side effects."""
        try:
            return await self._send_once(url, form, headers, receive)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            _log.debug("sending again: %s", type(error).__name__)
        return await self._send_once(url, form, headers, receive)

    async def _send_once(self, url: URL, form: dict[str, str] | None, headers: _Headers, receive: _Receive[_T]) -> _T:
        async with self._upstream.send(url, form=form, headers=headers) as response:
            if response.status in (414, 431) and form is None:
                raise _UrlTooLong
            if not 200 <= response.status < 300:
                body = await read_up_to(response, _SHORT)
                raise refusal(response.status, without_credentials(body, response.request_info.headers))
            return await receive(response)

    async def _receive_result(self, query: int, max_samples: float, response: aiohttp.ClientResponse) -> Vector:
        """Read the response to an instant query; `query` is its hash."""
        body = await read_up_to(response, _SHORT)
        if len(body) <= _SHORT:
            return decode(body, max_samples=max_samples)
        self._long[query] = True
        reader = VectorReader(max_samples=max_samples)
        return await read_list(reader, response, body, self._budget, limit=self._settings.response_bytes)

    async def _receive_range(
        self, max_samples: float, response: aiohttp.ClientResponse
    ) -> tuple[list[RangeSeries], Notices]:
        body = await _whole_body(response, _MAX_RANGE)
        decoded = functools.partial(decode_range, body, max_samples=max_samples)
        if len(body) <= _SHORT:
            return decoded()
        with self._budget.share() as share:
            await share.take(_RANGE_MEMORY * len(body))
            return await asyncio.to_thread(decoded)

    async def _receive_series(self, max_series: float, response: aiohttp.ClientResponse) -> tuple[Series, ...]:
        reader = SeriesReader(max_series=max_series, max_names=self._settings.names)
        found = await read_list(reader, response, b"", self._budget, limit=self._settings.list_bytes)
        self._check(reader.notices)
        return found

    async def _receive_names(self, response: aiohttp.ClientResponse) -> list[str]:
        """Read the names of labels, or the values of one."""
        listing = decode_names(await _whole_body(response, _MAX_NAMES_LISTING))
        self._check(listing)
        return listing.data

    @contextlib.contextmanager
    def _timed(self, path: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._observe(path, time.monotonic() - started)

    def _check(self, notices: Notices) -> None:
        """Log warnings, each once; raise PrometheusPartialResponse if the response is partial and may not be."""
        partial = notices.partial
        if partial and self._options.partial_responses == "fail":
            raise PrometheusPartialResponse(f"Prometheus' response is partial: {server_text(partial)}")
        for warning in dict.fromkeys((*([partial] if partial else ()), *(notices.warnings or ()))):
            if warning not in self._warned and len(self._warned) < _MAX_WARNINGS:
                self._warned.add(warning)
                _log.warning("Prometheus warns: %s", server_text(warning))


async def _whole_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = await read_up_to(response, limit)
    if len(body) > limit:
        raise PrometheusBadResponse(f"Prometheus' response is longer than {limit} bytes")
    return body


async def _bounded(seconds: float, request: Awaitable[_T]) -> _T:
    """Await a request for at most `seconds`. Raise a PrometheusError for any failure."""
    try:
        async with asyncio.timeout(seconds):
            return await request
    except aiohttp.ServerTimeoutError as error:
        raise PrometheusUnavailable("Prometheus cannot be reached: no connection in time") from error
    except TimeoutError as error:
        raise PrometheusTimeout(f"no response within {seconds:.3g} s") from error
    except (CredentialsError, UpstreamConfigError) as error:
        raise PrometheusAccessError(str(error)) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise PrometheusUnavailable(f"Prometheus cannot be reached: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return why there is no connection, without the address that the error's text contains."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"its proxy refuses the connection with status {error.status}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return "its proxy cannot be reached"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not accepted"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return type(error).__name__
