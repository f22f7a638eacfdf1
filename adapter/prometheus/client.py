"""The client: one pooled session for instant queries, and the door to series discovery."""

from __future__ import annotations

import asyncio
import logging
import os
from types import TracebackType
from typing import Self

import aiohttp

from adapter.prometheus.answers import Scalar, Vector, decode
from adapter.prometheus.errors import PrometheusBadAnswer, PrometheusTimeout, PrometheusUnavailable
from adapter.prometheus.options import PrometheusOptions, TokenFile, tls_context
from adapter.prometheus.series import Series, SeriesFinder

__all__ = ["PrometheusClient"]

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_MAX_ANSWER = 64 * 1024 * 1024
_MAX_WARNINGS = 200  # how many different ones are remembered, so that each is logged once


class PrometheusClient:
    """Asks one Prometheus. Use as an async context manager."""

    def __init__(self, options: PrometheusOptions) -> None:
        self._options = options
        self._token = TokenFile(options.token_file) if options.token_file is not None else None
        self._series = SeriesFinder(options, self._token)
        self._http: aiohttp.ClientSession | None = None
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        """Read the TLS files and make the pool; nothing is sent yet.

        Raises:
            PrometheusConfigError: a file cannot be used.
        """
        context = await asyncio.to_thread(tls_context, self._options)
        connector = aiohttp.TCPConnector(limit=self._options.connections, ssl=context if context is not None else True)
        self._http = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers=self._options.headers
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def instant(self, query: str, *, timeout: float | None = None) -> Vector | Scalar:
        """Evaluate a query now.

        Args:
            query: PromQL.
            timeout: the seconds that are left for it, or None; never more than the options allow. Prometheus is told.

        Raises:
            PrometheusError: one of the tree that the package draws.
        """
        allowed = self._options.query_timeout
        seconds = allowed if timeout is None else min(timeout, allowed)
        if seconds <= 0:
            raise PrometheusTimeout("no time was left for the query")
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._ask({"query": query, "timeout": f"{seconds:.3f}"})
        except aiohttp.ServerTimeoutError as error:
            raise PrometheusUnavailable("Prometheus cannot be reached: no connection in time") from error
        except TimeoutError as error:
            raise PrometheusTimeout(f"no answer within {seconds:.3g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PrometheusUnavailable(f"Prometheus cannot be reached: {_reason(error)}") from error
        answer = decode(status, body)
        for warning in answer.warnings:
            self._warn_once(warning)
        return answer.result

    async def series(self, selector: str, *, start: float, end: float) -> tuple[Series, ...]:
        """The series that a selector finds between two times, in seconds since the epoch; see `Series`.

        Raises:
            PrometheusError: one of the tree that the package draws.
        """
        return await self._series.find(selector, start=start, end=end)

    async def _ask(self, parameters: dict[str, str]) -> tuple[int, bytes]:
        """Send a query; once more if the connection broke, since a query changes nothing."""
        try:
            return await self._send(parameters)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError) as error:
            _log.debug("asking again: %s", type(error).__name__)
        return await self._send(parameters)

    async def _send(self, parameters: dict[str, str]) -> tuple[int, bytes]:
        assert self._http is not None, "the client is not open"
        post = self._options.verb == "POST"
        async with self._http.request(
            self._options.verb,
            self._options.endpoint("query"),
            params=None if post else parameters,
            data=parameters if post else None,
            headers={"Authorization": f"Bearer {self._token.token()}"} if self._token is not None else None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        ) as response:
            return response.status, await _read(response)

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
