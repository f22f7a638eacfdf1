"""HTTP for prometheus-api-client, which takes a session of requests.

Requests are sent by the adapter's client of upstream servers, so that credentials, TLS and proxies are the same. This
adds a deadline for a whole response, a limit of its size, and the reason of a refusal in one sentence.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import requests
from yarl import URL

from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.prometheus.errors import server_text
from adapter.prometheus.notices import Notices
from adapter.upstream import CredentialsError, UpstreamClient, UpstreamConfigError, read_up_to
from replay.load import ReplayError

_MAX_URL: Final = 8 * 1024
_MAX_BYTES: Final = 256 * 1024 * 1024
_SHOWN: Final = 300
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
_MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Words of Prometheus, Thanos, Mimir and VictoriaMetrics for a range that is too long for one query.
_TOO_LARGE: Final = re.compile(r"exceed|too many|too large|too long|limit|maximum", re.IGNORECASE)


class TooLargeError(ReplayError):
    """The server refuses a range query for its size or duration; a shorter range may work."""


class RefusedError(ReplayError):
    """The server refuses a query as wrong."""


class RetriableError(ReplayError):
    """There is no response for now."""


class _Refusal(msgspec.Struct, rename="camel"):
    error_type: str = ""
    error: str = ""


class PrometheusSession(requests.Session):
    """Raises ReplayError for everything that is not a success."""

    def __init__(self, options: PrometheusOptions, destination: Destination, *, clock: Callable[[], float]) -> None:
        super().__init__()
        self.deadline = 0.0
        self._clock = clock
        self._options = options
        self._headers = destination.headers
        self._upstream = UpstreamClient(options, connections=1, max_waiting=1)
        # One loop for all requests, because connections are kept, and a refresh of a token may outlast its request.
        self._runner = asyncio.Runner()
        self._url = urlsplit(options.base)._replace(netloc=urlsplit(options.base).netloc.rpartition("@")[2]).geturl()
        is_default = options.name == DEFAULT_SERVER
        self._flag = "--prometheus-url" if is_default else f"the url of {options.name} in prometheusServers"

    def not_prometheus(self, why: str) -> ReplayError:
        """Return the error for a server that is not Prometheus."""
        return ReplayError(f"{self._url} is no Prometheus: {why}; check {self._flag}")

    def request(self, method: str | bytes, url: str | bytes, *_: Any, **options: Any) -> requests.Response:
        """Send a request and read its response before the deadline; see requests.

        Raises:
            TooLargeError: the server refuses the query for its size or duration.
            ReplayError: there is no success, or only a partial one.
        """
        del method  # of a query it is the options'
        parameters: Mapping[str, str] = options.get("params") or {}
        target, form = URL(str(url)).with_query(self._options.query_parameters), None
        if parameters and (self._options.verb == "POST" or len(urlencode(parameters)) > _MAX_URL):
            form = parameters
        else:
            target = target.extend_query(parameters)
        try:
            status, headers, body = self._runner.run(self._send(target, form))
        except CredentialsError as error:
            flag = "--prometheus-token-file" if self._options.auth is None else "--prometheus-auth"
            raise ReplayError(f"{error}; check {flag}") from error
        except UpstreamConfigError as error:
            raise ReplayError(str(error)) from error
        except TimeoutError as error:
            raise RetriableError(f"{self._url} sent no response in time; check {self._flag}") from error
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or "it is for another host"
            raise ReplayError(
                f"{self._url} has a certificate that cannot be verified ({why}); give --prometheus-ca-file"
            ) from error
        except aiohttp.ClientSSLError as error:
            raise ReplayError(f"TLS with {self._url} fails ({error.strerror}); check {self._flag}") from error
        except (aiohttp.ClientError, OSError) as error:
            errno = error.errno if isinstance(error, OSError) else None
            why = os.strerror(errno) if errno and errno > 0 else type(error).__name__
            raise RetriableError(f"{self._url} cannot be reached ({why}); check {self._flag}") from error
        if len(body) > _MAX_BYTES:
            raise TooLargeError(f"the response of {self._url} is longer than {_MAX_BYTES >> 20} MiB")
        if status != 200:
            raise self._refused(status, headers, body, target.path, str(parameters.get("query", "")))
        self._check_complete(body)
        return _whole(body)

    def close(self) -> None:
        """Close the connections, and end what is in progress."""
        self._runner.run(self._upstream.close())
        self._runner.close()
        super().close()

    async def _send(self, url: URL, form: Mapping[str, str] | None) -> tuple[int, Mapping[str, str], bytes]:
        async with (
            asyncio.timeout(max(self.deadline - self._clock(), 0.001)),
            self._upstream.send(url, form=form, headers=self._headers) as response,
        ):
            return response.status, response.headers, await read_up_to(response, _MAX_BYTES)

    def _check_complete(self, body: bytes) -> None:
        """Raise RetriableError for a partial response, unless it is allowed."""
        try:
            partial = msgspec.json.decode(body, type=Notices).partial
        except _MALFORMED as error:
            raise self.not_prometheus("its response is not that of Prometheus' API") from error
        if partial and self._options.partial_responses == "fail":
            is_default = self._options.name == DEFAULT_SERVER
            flag = "--prometheus-partial-responses=allow" if is_default else "partialResponses: allow"
            raise RetriableError(
                f"{self._url} could read only a part of the series ({server_text(partial)}); try again later, or use"
                f" the part with {flag}"
            )

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes, path: str, query: str) -> ReplayError:
        try:
            refusal = msgspec.json.decode(body, type=_Refusal)
        except _MALFORMED:
            refusal = _Refusal()
        why = server_text(refusal.error)
        if status in (401, 403):
            flags = "--prometheus-token-file, --prometheus-header, --prometheus-auth or --prometheus-auth-config"
            return ReplayError(f"{self._url} refuses the credentials (status {status}); give {flags}")
        if 300 <= status < 400:
            return self.not_prometheus(f"it redirects to {server_text(headers.get('Location', 'another address'))}")
        if status == 413 or refusal.error_type in ("timeout", "canceled"):
            return TooLargeError(why or f"status {status}")
        if status in (400, 422) and why:
            if _TOO_LARGE.search(why) and "parse error" not in why:
                return TooLargeError(why)
            return RefusedError(f"Prometheus refuses the query {shown(query)}: {why}; change it in --config")
        if status in _RETRIED:
            return RetriableError(f"{self._url} fails with status {status}{': ' * bool(why)}{why}; try again later")
        return self.not_prometheus(f"it has no {path} (status {status})")


def shown(query: str) -> str:
    """Return a query on one line, and not too long, for messages."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _whole(body: bytes) -> requests.Response:
    """Return a response whose body has been read."""
    response = requests.Response()
    response.status_code = 200
    response.encoding = "utf-8"
    response.raw = io.BytesIO(body)
    return response
