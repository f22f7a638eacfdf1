"""The client of one Prometheus: a pooled session for instant queries, and for the series that discovery needs.

A query goes into the address with GET, as prometheus-adapter sends it, until the address would be longer than
servers and proxies take; then it goes into the body with POST. A proxy that takes even less says 414, and from then
on gets every query of that length by POST.

A response is not believed to be short. What is longer than 64 KiB is decoded piece by piece while it arrives, one
piece at a time of all responses, and within a MemoryBudget; a list of series is reduced to names as it comes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
from cachetools import LRUCache
from yarl import URL

from adapter.fairness import FairSemaphore, QueueFullError, current_namespace
from adapter.prometheus.answers import Answer, Scalar, Vector, VectorReader, decode
from adapter.prometheus.budget import MemoryBudget, Share
from adapter.prometheus.errors import (
    PrometheusBadAnswer,
    PrometheusBusy,
    PrometheusTimeout,
    PrometheusUnavailable,
    refusal,
)
from adapter.prometheus.options import PrometheusOptions
from adapter.prometheus.reduction import SeriesReducer
from adapter.prometheus.series import Series, read_series
from adapter.upstream import Credentials, CredentialsError
from kube.deadlines import NO_DEADLINE, Deadline

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
# The longest parameters in an address: half of what the largest defaults of proxies take.
_MAX_ADDRESS = 12 * 1024
_PIECE = 64 * 1024  # up to a millisecond and a half of decoding
# What is this short is decoded at once; and so much is read of a response that is an error.
_SHORT = 64 * 1024
# Compressing a short answer takes Prometheus longer than to evaluate the query. A query whose answer was longer is
# answered compressed the next time; so many are remembered.
_LONG_QUERIES = 4_096
_UNCOMPRESSED = ("Accept-Encoding", "identity")
_MAX_ANSWER = 64 * 1024 * 1024
_MAX_LISTING = 256 * 1024 * 1024
_LISTINGS = 4  # series requests at a time
_MAX_WARNINGS = 200  # how many different ones are remembered, so that each is logged once


class _AddressTooLong(Exception):
    """Somebody on the way takes no address of this length."""


class PrometheusClient:
    """Asks one Prometheus. Use as an async context manager."""

    def __init__(
        self,
        options: PrometheusOptions,
        *,
        observe: Callable[[str, float], None] | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`observe` is told of every request: its path on the server, and the seconds that it took.

        `budget` is for long responses; one of its own without it.
        """
        self._options = options
        self._observe = observe
        self._budget = budget or MemoryBudget()
        self._credentials = Credentials(options)
        self._slots = FairSemaphore(options.connections, max_waiting=options.max_waiting)
        self._listing = asyncio.Semaphore(_LISTINGS)
        self._http: aiohttp.ClientSession | None = None
        # Queries, by their hashes, that had long answers.
        self._long: LRUCache[int, bool] = LRUCache(_LONG_QUERIES)
        self._endpoints = {path: URL(options.endpoint(path)) for path in ("query", "series")}
        self._max_address = _MAX_ADDRESS
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        """Read the TLS files and make the pool; nothing is sent yet.

        Raises:
            PrometheusConfigError: a file cannot be used.
        """
        await asyncio.to_thread(self._credentials.load)
        connector = aiohttp.TCPConnector(limit=self._options.connections + _LISTINGS)
        self._http = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, headers: tuple[tuple[str, str], ...] = ()
    ) -> Vector | Scalar:
        """Evaluate a query now.

        Args:
            query: PromQL.
            deadline: when the result is due. Prometheus gets the seconds until then as
                `timeout`, and never more than the options allow.
            headers: sent in the place of the options' own of the same names.

        Raises:
            PrometheusError: one of the tree that the package draws.
        """
        left, allowed = deadline.remaining(), self._options.query_timeout
        seconds = allowed if left is None else min(left, allowed)
        if seconds <= 0:
            raise PrometheusTimeout("no time was left for the query")
        # Never rounded to nothing, which some take for no limit.
        parameters = {"query": query, "timeout": f"{max(seconds, 0.001):.3f}"}
        started = time.monotonic()
        try:
            answer = await _bounded(seconds, self._instant(parameters, headers))
        finally:
            self._took("/api/v1/query", started)
        for warning in answer.warnings:
            self._warn_once(warning)
        return dataclasses.replace(answer.result, seconds=time.monotonic() - started)

    async def series(
        self, selector: str, *, start: float, end: float, headers: tuple[tuple[str, str], ...] = ()
    ) -> tuple[Series, ...]:
        """The series that a selector finds between two times, in seconds since the epoch; see `Series`.

        Raises:
            PrometheusError: one of the tree that the package draws.
        """
        parameters = {"match[]": selector, "start": str(float(start)), "end": str(float(end))}
        async with self._listing:
            started = time.monotonic()
            try:
                asking = self._ask("series", parameters, headers, self._receive_series)
                return await _bounded(self._options.series_timeout, asking)
            finally:
                self._took("/api/v1/series", started)

    async def _instant(self, parameters: dict[str, str], headers: tuple[tuple[str, str], ...]) -> Answer:
        """Send a query, once it is its namespace's turn."""
        key = hash(parameters["query"])
        if key not in self._long:
            headers = (_UNCOMPRESSED, *headers)
        namespace = current_namespace()
        try:
            await self._slots.acquire(namespace)
        except QueueFullError as error:
            raise PrometheusBusy(namespace) from error
        try:
            return await self._ask("query", parameters, headers, functools.partial(self._receive_answer, key))
        finally:
            self._slots.release(namespace)

    async def _ask(
        self,
        path: str,
        parameters: dict[str, str],
        headers: tuple[tuple[str, str], ...],
        receive: Callable[[aiohttp.ClientResponse], Awaitable[_T]],
    ) -> _T:
        """Send a request, with its parameters in the address or in the body; `receive` reads the response."""
        endpoint = self._endpoints[path]
        address = endpoint.with_query(parameters)
        size = len(address.raw_query_string)
        if self._options.verb == "POST" or size > self._max_address:
            return await self._send_safely(endpoint, parameters, headers, receive)
        try:
            return await self._send_safely(address, None, headers, receive)
        except _AddressTooLong:
            _log.info("Prometheus, or a proxy before it, takes no address of %d bytes; long queries go by POST", size)
        self._max_address = min(self._max_address, size - 1)
        return await self._send_safely(endpoint, parameters, headers, receive)

    async def _send_safely(
        self,
        address: URL,
        form: dict[str, str] | None,
        headers: tuple[tuple[str, str], ...],
        receive: Callable[[aiohttp.ClientResponse], Awaitable[_T]],
    ) -> _T:
        """Send; once more if the connection broke before there was an answer, since a query changes nothing."""
        try:
            return await self._send(address, form, headers, receive)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            _log.debug("asking again: %s", type(error).__name__)
        return await self._send(address, form, headers, receive)

    async def _send(
        self,
        address: URL,
        form: dict[str, str] | None,
        headers: tuple[tuple[str, str], ...],
        receive: Callable[[aiohttp.ClientResponse], Awaitable[_T]],
    ) -> _T:
        """GET an address, or POST a form to it."""
        assert self._http is not None, "the client is not open"
        context: ssl.SSLContext | None = self._credentials.context()
        async with self._http.request(
            "GET" if form is None else "POST",
            address,
            data=form,
            headers=self._credentials.headers(*headers),
            ssl=context if context is not None else True,
            allow_redirects=False,  # who it leads to was not chosen to see our credentials
            timeout=_TIMEOUT,
        ) as response:
            if response.status in (414, 431) and form is None:
                raise _AddressTooLong
            if not 200 <= response.status < 300:
                raise refusal(response.status, await _beginning(response))
            return await receive(response)

    async def _receive_answer(self, query: int, response: aiohttp.ClientResponse) -> Answer:
        """Read the answer to an instant query; `query` is its hash."""
        body = await _beginning(response)
        if len(body) > _SHORT:
            self._long[query] = True
        if response.content.at_eof():
            return decode(response.status, body)
        with self._budget.share() as share:
            reader = VectorReader()
            try:
                await self._feed(reader.feed, response, body, share, limit=_MAX_ANSWER)
                return await asyncio.to_thread(reader.finish)
            finally:
                reader.clear()

    async def _receive_series(self, response: aiohttp.ClientResponse) -> tuple[Series, ...]:
        """Read a list of series."""
        reducer = SeriesReducer()
        with self._budget.share() as share:
            try:
                await self._feed(reducer.feed, response, b"", share, limit=_MAX_LISTING)
                return read_series(reducer.rest()) or await asyncio.to_thread(reducer.series)
            except (ValueError, RecursionError) as error:
                raise PrometheusBadAnswer(f"Prometheus' answer cannot be read: {type(error).__name__}") from error

    async def _feed(
        self,
        feed: Callable[[bytes], int],
        response: aiohttp.ClientResponse,
        first: bytes,
        share: Share,
        *,
        limit: int,
    ) -> None:
        """Give a body to `feed`, which decodes it, in pieces of which none takes long; it returns the memory taken.

        Args:
            feed: takes a piece.
            response: whose body it is.
            first: what has been read of it.
            share: takes the memory.
            limit: the most bytes that a body may have.

        Raises:
            PrometheusBadAnswer: it has more, or takes too much memory.
        """
        size = len(first)
        waiting = bytearray(first)
        ended = False
        while not ended:
            ended = response.content.at_eof()
            while len(waiting) >= _PIECE or (ended and waiting):
                async with self._budget.decoding:
                    taken = feed(bytes(waiting[:_PIECE]))
                    await asyncio.sleep(0)  # other work goes on between the pieces
                del waiting[:_PIECE]
                await share.take(taken)
            if not ended:
                chunk = await response.content.read(_PIECE)
                waiting += chunk
                size += len(chunk)
                if size > limit:
                    raise PrometheusBadAnswer(f"Prometheus' answer is longer than {limit} bytes")

    def _took(self, path: str, started: float) -> None:
        if self._observe is not None:
            self._observe(path, time.monotonic() - started)

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(warning)
            _log.warning("Prometheus warns: %s", " ".join(warning.split())[:300])


async def _bounded(seconds: float, asking: Awaitable[_T]) -> _T:
    """Wait for a request for at most so long, and say of what went wrong what our callers know."""
    try:
        async with asyncio.timeout(seconds):
            return await asking
    except aiohttp.ServerTimeoutError as error:
        raise PrometheusUnavailable("Prometheus cannot be reached: no connection in time") from error
    except TimeoutError as error:
        raise PrometheusTimeout(f"no answer within {seconds:.3g} s") from error
    except CredentialsError as error:
        raise PrometheusUnavailable(str(error)) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise PrometheusUnavailable(f"Prometheus cannot be reached: {_reason(error)}") from error


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The body up to its end, or to a little more than what is short."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _SHORT:
            break
    return body


def _reason(error: Exception) -> str:
    """Why there is no connection, without the address that the error's own text has."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not accepted"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return type(error).__name__
