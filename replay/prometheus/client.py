"""Queries to one Prometheus with prometheus-api-client, which knows its API and asks a session of requests.

The session sends by the adapter's client of upstream servers, so credentials, TLS and proxies are those of the adapter.
A query has one deadline for all its retries, also if a response comes in drops, and a limit of its size. Errors are
one sentence: what is wrong, and which flag to change.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import requests
from prometheus_api_client import PrometheusConnect
from yarl import URL

from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.prometheus.errors import decode_refusal, server_text
from adapter.prometheus.results import HISTOGRAMS, MAX_TIMESTAMP, Notices
from adapter.upstream import CredentialsError, UpstreamClient, UpstreamConfigError
from kube.aio.http import read_up_to
from kube.api.retries import Backoff
from replay.load import ReplayError

_T = TypeVar("_T")

_MAX_URL: Final = 8 * 1024
MAX_BYTES: Final = 256 * 1024 * 1024
# With less time left, a retry would end in a timeout that says less than the error before it.
_SHORTEST_SECONDS: Final = 1.0
_SHOWN: Final = 300
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
_MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Words of Prometheus, Thanos, Mimir and VictoriaMetrics for a range that is too long for one query.
_TOO_LARGE: Final = re.compile(r"exceed|too many|too large|too long|limit|maximum", re.IGNORECASE)

_Point = tuple[Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMESTAMP)], str]
"""Seconds since the epoch, and the value's text."""


class ResultSeries(msgspec.Struct, kw_only=True):
    """An entry of a query's result: labels, and `values` of a range or the `value` of a time."""

    metric: dict[str, str]
    values: list[_Point] = []
    value: _Point | None = None
    histogram: object = None
    histograms: object = None


Result = list[ResultSeries]
# msgspec describes a type at its first use, and crashes if two threads do that at the same time: so here.
msgspec.convert([], Result)
_NOTICES: Final = msgspec.json.Decoder(Notices)


class TooLargeError(ReplayError):
    """The server refuses a range query for its size or duration; a shorter range may work."""


class RefusedError(ReplayError):
    """The server refuses a query as wrong."""


class RetriableError(ReplayError):
    """There is no response for now."""


class ServerErrors:
    """The errors of one server, which the messages name without its password."""

    def __init__(self, options: PrometheusOptions) -> None:
        self._options = options
        parts = urlsplit(options.base)
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._is_default = options.name == DEFAULT_SERVER
        self._flag = "--prometheus-url" if self._is_default else f"the url of {options.name} in prometheusServers"

    def malformed(self) -> ReplayError:
        """Return the error for a response that is not Prometheus'."""
        return self._not_prometheus("its response is not that of Prometheus' API")

    def unreachable(self, error: Exception) -> ReplayError:
        """Return the error for a request without a response."""
        url, flag = self.url, self._flag
        match error:
            case CredentialsError():
                flag = "--prometheus-token-file" if self._options.auth is None else "--prometheus-auth"
                return ReplayError(f"{error}; check {flag}")
            case UpstreamConfigError():
                return ReplayError(str(error))
            case TimeoutError():
                return RetriableError(f"{url} sent no response in time; check {flag}")
            case aiohttp.ClientConnectorCertificateError():
                why = getattr(error.certificate_error, "verify_message", "") or "it is for another host"
                return ReplayError(
                    f"{url} has a certificate that cannot be verified ({why}); give --prometheus-ca-file"
                )
            case aiohttp.ClientSSLError():
                return ReplayError(f"TLS with {url} fails ({error.strerror}); check {flag}")
            case OSError(errno=int(errno)) if errno > 0:
                return RetriableError(f"{url} cannot be reached ({os.strerror(errno)}); check {flag}")
        return RetriableError(f"{url} cannot be reached ({type(error).__name__}); check {flag}")

    def refused(self, status: int, headers: Mapping[str, str], body: bytes, path: str, query: str) -> ReplayError:
        """Return the error for an unsuccessful response."""
        refusal = decode_refusal(body)
        why = server_text(refusal.text)
        if status in (401, 403):
            flags = "--prometheus-token-file, --prometheus-header, --prometheus-auth or --prometheus-auth-config"
            return ReplayError(f"{self.url} refuses the credentials (status {status}); give {flags}")
        if 300 <= status < 400:
            location = server_text(headers.get("Location", "another address"))
            return self._not_prometheus(f"it redirects to {location}")
        if status == 413 or refusal.error_type in ("timeout", "canceled"):
            return TooLargeError(why or f"status {status}")
        if status in (400, 422) and why:
            if _TOO_LARGE.search(why) and "parse error" not in why:
                return TooLargeError(why)
            return RefusedError(f"Prometheus refuses the query {shown(query)}: {why}; change it in --config")
        if status in _RETRIED:
            return RetriableError(f"{self.url} fails with status {status}{': ' * bool(why)}{why}; try again later")
        return self._not_prometheus(f"it has no {path} (status {status})")

    def check_complete(self, body: bytes) -> None:
        """Raise RetriableError for a partial response, unless it is allowed, and ReplayError for a malformed one."""
        try:
            partial = _NOTICES.decode(body).partial
        except _MALFORMED as error:
            raise self.malformed() from error
        if partial and self._options.partial_responses == "fail":
            flag = "--prometheus-partial-responses=allow" if self._is_default else "partialResponses: allow"
            raise RetriableError(
                f"{self.url} could read only a part of the series ({server_text(partial)}); try again later, or use"
                f" the part with {flag}"
            )

    def _not_prometheus(self, why: str) -> ReplayError:
        return ReplayError(f"{self.url} is no Prometheus: {why}; check {self._flag}")


def shown(query: str) -> str:
    """Return a query on one line, and not too long, for messages."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class RangeClient:
    """Queries one Prometheus. Use as a context manager."""

    def __init__(
        self,
        options: PrometheusOptions,
        destination: Destination,
        *,
        seconds: float = 120.0,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Send nothing yet. `seconds` are for one query with all its retries; the limit is that of a response."""
        self._options = options
        self._headers = destination.headers
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._sleep = sleep
        self._deadline = 0.0
        self._errors = ServerErrors(options)
        self._upstream = UpstreamClient(options, connections=1, max_waiting=1)
        # One loop for all requests, because connections are kept, and a refresh of a token may outlast its request.
        self._runner = asyncio.Runner()
        self._prometheus = PrometheusConnect(url=options.base, session=_Session(self._fetch))

    def __enter__(self) -> RangeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._upstream.close())
        self._runner.close()

    def server_time(self) -> float:
        """Return the server's clock, in seconds since the epoch.

        Raises:
            ReplayError: the server cannot be reached, or is no Prometheus. It is not retried.
        """

        def time() -> float:
            found = self._prometheus.custom_query("time()")
            if len(found) == 1:  # VictoriaMetrics has no scalars, but vectors of one series without labels
                found = found[0]["value"]
            seconds, _ = msgspec.convert(found, _Point)  # the value is 30 s older in VictoriaMetrics
            return float(seconds)

        self._deadline = self._clock() + self._seconds
        return self._checked(time)

    def instant(self, query: str, *, time_ms: int) -> Result:
        """Evaluate a query at a time.

        Raises:
            ReplayError: there is no result.
        """
        parameters = {"time": _seconds(time_ms)}
        return self._result(lambda: self._prometheus.custom_query(query, params=parameters))

    def range(self, query: str, *, start_ms: int, end_ms: int, step_ms: int) -> Result:
        """Evaluate a query at start, start + step, ... up to the end inclusive.

        Raises:
            TooLargeError: a shorter range may work.
            RefusedError: the query is wrong.
            ReplayError: there is no result.
        """
        # The library rounds the times to seconds, so exact ones replace its parameters. The server gives up before us,
        # since it says then that the query is too slow.
        timeout = f"{0.9 * self._seconds:g}s"
        exact = {"start": _seconds(start_ms), "end": _seconds(end_ms), "timeout": timeout}
        start, end = (datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in (start_ms, end_ms))
        return self._result(
            lambda: self._prometheus.custom_query_range(query, start, end, _seconds(step_ms), params=exact)
        )

    def metric_names(self) -> list[str]:
        """Return the names of all series of the server."""
        return self._retried(lambda: msgspec.convert(self._prometheus.get_label_values("__name__"), list[str]))

    def is_counter(self, name: str) -> bool:
        """Return whether the server's metadata says that a metric is a counter; False if it has no metadata."""
        self._deadline = self._clock() + self._seconds
        with contextlib.suppress(ReplayError):
            found = self._checked(lambda: self._prometheus.get_metric_metadata(name))
            return any(each["type"] == "counter" for each in found)
        return False

    def _result(self, send: Callable[[], object]) -> Result:
        found = self._retried(lambda: msgspec.convert(send(), Result))
        if any(one.histogram is not None or one.histograms is not None for one in found):
            raise ReplayError(f"Prometheus' result has {HISTOGRAMS}")
        return found

    def _retried(self, send: Callable[[], _T]) -> _T:
        """Send until there is a response or a final error, or the time is over."""
        self._deadline = self._clock() + self._seconds
        backoff = Backoff(0.5, 10.0, jitter=0.5)
        while True:
            try:
                return self._checked(send)
            except RetriableError:
                delay = backoff.next()
                if self._clock() + delay + _SHORTEST_SECONDS >= self._deadline:
                    raise
                self._sleep(delay)

    def _checked(self, send: Callable[[], _T]) -> _T:
        try:
            return send()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._errors.malformed() from error

    def _fetch(self, url: str, parameters: Mapping[str, str]) -> bytes:
        """Return the body of a response before the deadline. Raise ReplayError if it is no success, or only partial."""
        target, form = URL(url).with_query(self._options.query_parameters), None
        if parameters and (self._options.verb == "POST" or len(urlencode(parameters)) > _MAX_URL):
            form = parameters
        else:
            target = target.extend_query(parameters)
        try:
            status, headers, body = self._runner.run(self._send(target, form))
        except (CredentialsError, UpstreamConfigError, aiohttp.ClientError, OSError) as error:
            raise self._errors.unreachable(error) from error
        if len(body) > self._max_bytes:
            raise TooLargeError(f"the response of {self._errors.url} is longer than {self._max_bytes >> 20} MiB")
        if status != 200:
            raise self._errors.refused(status, headers, body, target.path, parameters.get("query", ""))
        self._errors.check_complete(body)
        return body

    async def _send(self, url: URL, form: Mapping[str, str] | None) -> tuple[int, Mapping[str, str], bytes]:
        async with (
            asyncio.timeout(max(self._deadline - self._clock(), 0.001)),
            self._upstream.send(url, form=form, headers=self._headers) as response,
        ):
            return response.status, response.headers, await read_up_to(response, self._max_bytes)


class _Session(requests.Session):
    """Has responses that `fetch` has read."""

    def __init__(self, fetch: Callable[[str, Mapping[str, str]], bytes]) -> None:
        super().__init__()
        self._fetch = fetch

    def request(self, method: str | bytes, url: str | bytes, *_: Any, **options: Any) -> requests.Response:
        """Return a successful response; see requests."""
        del method  # of a query it is the options'
        response = requests.Response()
        response.status_code = 200
        response.encoding = "utf-8"
        response.raw = io.BytesIO(self._fetch(str(url), options.get("params") or {}))
        return response


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"
