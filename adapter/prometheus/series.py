"""Series discovery, through prometheus-api-client, whose calls block: each runs in a thread.

The library's own habits are tamed here. It retries three times with growing pauses on a session of its own; here a
request is tried once, and the catalog decides when to try again. It reads answers of any length; here there is a
bound, and a deadline for the whole answer. It keeps one dict for each series; here the answer is read series by
series while it arrives, and only the names of metrics and of their labels are kept, since that is all that discovery
needs, and a cluster has many more series than names. Reading piece by piece also lets the event loop run meanwhile: a
hundred thousand series decoded in one call would hold Python's lock for as long as it takes.

What is given up, because its time is over or nobody waits any more, ends at once: its socket is shut down, since a
thread that reads a head byte by byte would not look at a clock.

TLS is that of the queries: the context that Credentials makes, in the place of the library's own files and store.

Threads are daemons of our own and not an executor's: at exit, Python waits for an executor's threads, and a Prometheus
that does not answer would hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import requests
import urllib3.exceptions
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from adapter.prometheus.errors import (
    PrometheusBadAnswer,
    PrometheusError,
    PrometheusTimeout,
    PrometheusUnavailable,
    refusal,
)
from adapter.prometheus.options import PrometheusOptions
from adapter.prometheus.reduction import SeriesReducer
from adapter.upstream import Credentials, CredentialsError

__all__ = ["Series", "SeriesFinder"]

_THREADS = 4
_CONNECT_SECONDS = 5.0
_MAX_ANSWER = 256 * 1024 * 1024
_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one name together: the name, and every label that any of them has."""

    name: str
    labels: frozenset[str]


class SeriesFinder:
    """Finds series; at most a few requests at a time, the others wait."""

    def __init__(self, options: PrometheusOptions, credentials: Credentials) -> None:
        self._options = options
        self._credentials = credentials
        self._free = asyncio.Semaphore(_THREADS)
        if options.insecure_skip_tls_verify:
            # Credentials warn of it, once.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    async def find(
        self, selector: str, *, start: float, end: float, headers: tuple[tuple[str, str], ...] = ()
    ) -> tuple[Series, ...]:
        """See PrometheusClient.series."""
        async with self._free:
            return await self._find(selector, start, end, headers)

    async def _find(
        self, selector: str, start: float, end: float, headers: tuple[tuple[str, str], ...]
    ) -> tuple[Series, ...]:
        seconds = self._options.series_timeout
        loop = asyncio.get_running_loop()
        adapter = _BoundedAdapter(
            verb=self._options.verb, context=self._credentials.context(), deadline=time.monotonic() + seconds
        )
        outcome: asyncio.Future[tuple[Series, ...]] = loop.create_future()

        def settle(result: tuple[Series, ...] | PrometheusError) -> None:
            if outcome.done():
                return
            if isinstance(result, PrometheusError):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

        def work() -> None:
            # Whatever happens, the one who waits must hear of it.
            result: tuple[Series, ...] | PrometheusError = PrometheusBadAnswer("the request for series failed")
            try:
                result = self._ask(adapter, selector, start, end, headers)
            except PrometheusError as error:
                result = error
            finally:
                _call_back(loop, settle, result)

        threading.Thread(target=work, name="prometheus-series", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                return await outcome
        except TimeoutError as error:
            raise PrometheusTimeout(f"no answer within {seconds:.3g} s") from error
        finally:
            adapter.end()

    def _ask(
        self,
        adapter: _BoundedAdapter,
        selector: str,
        start: float,
        end: float,
        headers: tuple[tuple[str, str], ...],
    ) -> tuple[Series, ...]:
        """One request, in a thread."""
        options = self._options
        try:
            with requests.Session() as session:
                # Nothing from the environment: a netrc file would win over the token.
                session.trust_env = False
                session.verify = not options.insecure_skip_tls_verify
                session.headers.update(self._credentials.headers(*headers))
                connection = PrometheusConnect(
                    options.base, session=session, timeout=(_CONNECT_SECONDS, options.series_timeout)
                )
                # In the place of the one that the library has just put there, and of all others.
                for prefix in (options.base, "http://", "https://"):
                    session.mount(prefix, adapter)
                found = connection.get_series(_utc(start), _utc(end), params={"match[]": selector})
            return _merged(found)
        except CredentialsError as error:
            raise PrometheusUnavailable(str(error)) from error
        except requests.ConnectTimeout as error:
            raise PrometheusUnavailable("Prometheus cannot be reached: no connection in time") from error
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise PrometheusTimeout(f"no answer within {options.series_timeout:.3g} s") from error
        except requests.JSONDecodeError as error:
            raise PrometheusBadAnswer("Prometheus' answer is not JSON") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            # The text of these errors has the server's address.
            raise PrometheusUnavailable(f"Prometheus cannot be reached: {_reason(error)}") from error
        except (PrometheusApiClientException, KeyError, TypeError, ValueError, RecursionError) as error:
            raise PrometheusBadAnswer(f"Prometheus' answer cannot be read: {type(error).__name__}") from error


class _BoundedAdapter(HTTPAdapter):
    """Reads the whole answer at once, up to a size and a time, and turns refusals into our errors.

    A redirect is one of them, so nothing is ever asked of another server. The library knows no verb but GET for series;
    where it must be POST, that is made of its request here.
    """

    def __init__(self, *, verb: str, context: ssl.SSLContext | None, deadline: float) -> None:
        self._verb = verb
        self._context = context
        self._deadline = deadline
        self._connections: list[HTTPConnection] = []
        super().__init__(max_retries=0)

    def end(self) -> None:
        """Shut the connection down, from another thread; who reads from it gets an error."""
        for connection in self._connections:
            if (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    # On the socket itself: TLS would first be taken off it, under the reader's hands.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Use our TLS."""
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)

    def cert_verify(self, *_: object, **__: object) -> None:
        """The context has all that verifies; the library would add its own store to it."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        """Remember the connections that are made, for `end`."""
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        assert isinstance(pool, HTTPConnectionPool)
        make = pool.ConnectionCls

        def remembered(*args: Any, **kwargs: Any) -> HTTPConnection:
            connection = make(*args, **kwargs)
            assert isinstance(connection, HTTPConnection)
            self._connections.append(connection)
            return connection

        pool.ConnectionCls = remembered  # type: ignore[assignment]  # it is only called
        return pool

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send, and read the answer to its end."""
        if self._verb == "POST":
            _post(request)
        response = super().send(request, *args, **kwargs)
        reducer = SeriesReducer() if response.status_code == 200 else None
        try:
            body = self._read(response, reducer)
        except BaseException:
            response.raw.close()  # there is more to come, so the connection is of no more use
            raise
        if response.status_code >= 300:
            raise refusal(response.status_code, body)
        response.raw = io.BytesIO(body)
        return response

    def _read(self, response: requests.Response, reducer: SeriesReducer | None) -> bytes:
        body = bytearray()
        size = 0
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            size += len(chunk)
            if size > _MAX_ANSWER:
                raise PrometheusBadAnswer(f"Prometheus' answer is longer than {_MAX_ANSWER} bytes")
            if time.monotonic() > self._deadline:
                raise requests.ReadTimeout
            if reducer is None:
                body += chunk
            else:
                reducer.feed(chunk)
        response.raw.release_conn()
        return bytes(body) if reducer is None else reducer.result()


def _post(request: requests.PreparedRequest) -> None:
    """Make a request with a query one with a form."""
    request.url, _, form = str(request.url).partition("?")
    request.method = "POST"
    request.headers["Content-Type"] = "application/x-www-form-urlencoded"
    request.prepare_body(form, None)


def _call_back(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Call on the loop, unless it has ended: then nobody waits."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _utc(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)


def _merged(found: object) -> tuple[Series, ...]:
    """The names and their labels, in the order of the names."""
    if not isinstance(found, list):
        raise TypeError
    labels: dict[str, set[str]] = {}
    for series in found:
        if not isinstance(series, Mapping) or not isinstance(name := series.get("__name__", ""), str):
            raise TypeError
        if name:
            labels.setdefault(name, set()).update(series)
    return tuple(Series(name, frozenset(labels[name] - {"__name__"})) for name in sorted(labels))


def _reason(error: Exception) -> str:
    """Why there is no connection, without the address, from the innermost error that says so."""
    found = re.search(r"\[Errno -?\d+\] ([^'\")(]+)|(certificate verify failed[^()\"']*)", str(error))
    return (found[1] or found[2]).strip() if found else type(error).__name__
