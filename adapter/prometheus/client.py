"""The client of one Prometheus: a pooled session for instant queries, and the door to series discovery.

A query goes into the address with GET, as prometheus-adapter sends it, until the address would be longer than
servers and proxies take; then it goes into the body with POST. A proxy that takes even less says 414, and from then
on gets every query of that length by POST.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp
from cachetools import LRUCache
from yarl import URL

from adapter.prometheus.answers import Scalar, Vector, decode
from adapter.prometheus.errors import PrometheusBadAnswer, PrometheusTimeout, PrometheusUnavailable
from adapter.prometheus.options import PrometheusOptions
from adapter.prometheus.series import Series, SeriesFinder
from adapter.upstream import Credentials, CredentialsError

__all__ = ["PrometheusClient"]

_log = logging.getLogger(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
# The longest parameters in an address: half of what the largest defaults of proxies take.
_MAX_ADDRESS = 12 * 1024
_LONG_ANSWER = 256 * 1024
# Compressing a short answer takes Prometheus longer than to evaluate the query. A query whose answer was this long is
# answered compressed the next time; so many are remembered.
_COMPRESSED_FROM = 64 * 1024
_LONG_QUERIES = 4_096
_UNCOMPRESSED = ("Accept-Encoding", "identity")
_MAX_ANSWER = 64 * 1024 * 1024
_MAX_WARNINGS = 200  # how many different ones are remembered, so that each is logged once


class PrometheusClient:
    """Asks one Prometheus. Use as an async context manager."""

    def __init__(self, options: PrometheusOptions, *, observe: Callable[[str, float], None] | None = None) -> None:
        """`observe` is told of every request: its path on the server, and the seconds that it took."""
        self._options = options
        self._observe = observe
        self._credentials = Credentials(options)
        self._series = SeriesFinder(options, self._credentials)
        self._http: aiohttp.ClientSession | None = None
        # Queries, by their hashes, that had long answers.
        self._long: LRUCache[int, bool] = LRUCache(_LONG_QUERIES)
        self._endpoint = URL(options.endpoint("query"))
        self._max_address = _MAX_ADDRESS
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        """Read the TLS files and make the pool; nothing is sent yet.

        Raises:
            PrometheusConfigError: a file cannot be used.
        """
        await asyncio.to_thread(self._credentials.load)
        connector = aiohttp.TCPConnector(limit=self._options.connections)
        self._http = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def instant(
        self, query: str, *, timeout: float | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> Vector | Scalar:
        """Evaluate a query now.

        Args:
            query: PromQL.
            timeout: the seconds that are left for it, or None; never more than the options allow. Prometheus is told.
            headers: sent in the place of the options' own of the same names.

        Raises:
            PrometheusError: one of the tree that the package draws.
        """
        allowed = self._options.query_timeout
        seconds = allowed if timeout is None else min(timeout, allowed)
        if seconds <= 0:
            raise PrometheusTimeout("no time was left for the query")
        # Never rounded to nothing, which some take for no limit.
        parameters = {"query": query, "timeout": f"{max(seconds, 0.001):.3f}"}
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._ask(parameters, headers)
        except aiohttp.ServerTimeoutError as error:
            raise PrometheusUnavailable("Prometheus cannot be reached: no connection in time") from error
        except TimeoutError as error:
            raise PrometheusTimeout(f"no answer within {seconds:.3g} s") from error
        except CredentialsError as error:
            raise PrometheusUnavailable(str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PrometheusUnavailable(f"Prometheus cannot be reached: {_reason(error)}") from error
        finally:
            self._took("/api/v1/query", started)
        if len(body) >= _COMPRESSED_FROM:
            self._long[hash(query)] = True
        # In a thread where it takes long, so that the loop goes on meanwhile.
        is_long = len(body) >= _LONG_ANSWER
        answer = await asyncio.to_thread(decode, status, body, in_thread=True) if is_long else decode(status, body)
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
        started = time.monotonic()
        try:
            return await self._series.find(selector, start=start, end=end, headers=headers)
        finally:
            self._took("/api/v1/series", started)

    async def _ask(self, parameters: dict[str, str], headers: tuple[tuple[str, str], ...]) -> tuple[int, bytes]:
        """Send a query, in the address or in the body."""
        if hash(parameters["query"]) not in self._long:
            headers = (_UNCOMPRESSED, *headers)
        address = self._endpoint.with_query(parameters)
        size = len(address.raw_query_string)
        if self._options.verb == "POST" or size > self._max_address:
            return await self._send_safely(self._endpoint, parameters, headers)
        status, body = await self._send_safely(address, None, headers)
        if status not in (414, 431):
            return status, body
        _log.info("Prometheus, or a proxy before it, takes no address of %d bytes; long queries go by POST", size)
        self._max_address = min(self._max_address, size - 1)
        return await self._send_safely(self._endpoint, parameters, headers)

    async def _send_safely(
        self, address: URL, form: dict[str, str] | None, headers: tuple[tuple[str, str], ...]
    ) -> tuple[int, bytes]:
        """Send; once more if the connection broke before there was an answer, since a query changes nothing."""
        try:
            return await self._send(address, form, headers)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            _log.debug("asking again: %s", type(error).__name__)
        return await self._send(address, form, headers)

    async def _send(
        self, address: URL, form: dict[str, str] | None, headers: tuple[tuple[str, str], ...]
    ) -> tuple[int, bytes]:
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
            return response.status, await _read(response)

    def _took(self, path: str, started: float) -> None:
        if self._observe is not None:
            self._observe(path, time.monotonic() - started)

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(warning)
            _log.warning("Prometheus warns: %s", " ".join(warning.split())[:300])


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > _MAX_ANSWER:
            raise PrometheusBadAnswer(f"Prometheus' answer is longer than {_MAX_ANSWER} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _reason(error: Exception) -> str:
    """Why there is no connection, without the address that the error's own text has."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not accepted"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return type(error).__name__
