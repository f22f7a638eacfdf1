"""HTTP for prometheus-api-client, which takes a session of requests.

It adds to the library: the adapter's credentials, long queries in the body, a limit on the time and size of
a whole response, and the reason of a refusal in one sentence.
"""

from __future__ import annotations

import asyncio
import functools
import io
import re
import ssl
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
import requests
from multidict import CIMultiDict
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import InsecureRequestWarning
from yarl import URL

from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.upstream import Credentials, CredentialsError
from adapter.upstream.authenticators import OutgoingRequest
from replay.load import ReplayError

_MAX_URL: Final = 8 * 1024
_MAX_BYTES: Final = 256 * 1024 * 1024
_SHOWN: Final = 300
_CONNECT_SECONDS: Final = 10.0
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
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


class CredentialsAdapter(HTTPAdapter):
    """Connects with the TLS context of the adapter's client: CA, client certificate, system's CAs."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Create the connections; see requests."""
        self._credentials.load()
        super().init_poolmanager(*args, ssl_context=self._credentials.context(), **options)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """Create the connections through a proxy; see requests."""
        return super().proxy_manager_for(proxy, ssl_context=self._credentials.context(), **options)

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Add no CAs of requests' own to the context."""


class _Authentication(AuthBase):
    """Authenticates requests as `auth` of the server says."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        # One loop for all requests, because a refresh of a token may go on after the request that caused it.
        self._runner = asyncio.Runner()
        self._sent: OutgoingRequest | None = None

    def __call__(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
        assert isinstance(body, bytes | None), "queries and forms are no streams"
        url, headers = URL(prepared.url or "", encoded=True), CIMultiDict(prepared.headers)
        request = OutgoingRequest(prepared.method or "GET", url, headers, body)
        self._sent = self._runner.run(self._credentials.authenticate(request))
        prepared.url = str(self._sent.url)
        prepared.headers.update(self._sent.headers)
        return prepared

    def renewed(self, status: int) -> bool:
        """Return whether the last request can be sent again with another credential."""
        return self._sent is not None and self._runner.run(self._credentials.renewed(self._sent, status))

    def close(self) -> None:
        self._runner.run(self._credentials.close())
        self._runner.close()


class PrometheusSession(requests.Session):
    """Raises ReplayError for everything that is not a success."""

    def __init__(self, options: PrometheusOptions, destination: Destination, *, clock: Callable[[], float]) -> None:
        super().__init__()
        self.deadline = 0.0
        self._clock = clock
        self._destination = destination
        self.credentials = Credentials(options)
        self._authentication = _Authentication(self.credentials) if options.auth is not None else None
        self._more_parameters: dict[str, list[str]] = {}
        for name, value in options.query_parameters:
            self._more_parameters.setdefault(name, []).append(value)
        if options.proxy_url:
            self.proxies = {"http": options.proxy_url, "https": options.proxy_url}
        self._post = options.verb == "POST"
        self._url = urlsplit(options.base)._replace(netloc=urlsplit(options.base).netloc.rpartition("@")[2]).geturl()
        is_default = options.name == DEFAULT_SERVER
        self._flag = "--prometheus-url" if is_default else f"the url of {options.name} in prometheusServers"
        # As in the adapter: proxies and passwords come from flags, not from the environment.
        self.trust_env = False
        self.verify = not options.insecure_skip_tls_verify

    def not_prometheus(self, why: str) -> ReplayError:
        """Return the error for a server that is not Prometheus."""
        return ReplayError(f"{self._url} is no Prometheus: {why}; check {self._flag}")

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **options: Any) -> requests.Response:
        """Send a request and read its response before the deadline; see requests.

        Raises:
            TooLargeError: the server refuses the query for its size or duration.
            ReplayError: there is no success.
        """
        parameters: Mapping[str, Any] = options.pop("params", None) or {}
        form = bool(parameters) and (self._post or len(urlencode(parameters)) > _MAX_URL)
        more = self._more_parameters
        options |= {"data": parameters, "params": more} if form else {"params": {**more, **parameters}}
        options |= {"auth": self._authentication}
        options |= {"verify": self.verify, "stream": True, "allow_redirects": False}
        left = max(self.deadline - self._clock(), 0.001)
        options["timeout"] = (min(left, _CONNECT_SECONDS), left)
        try:
            options["headers"] = dict(asyncio.run(self.credentials.headers(*self._destination.headers)))
            with warnings.catch_warnings():
                # The flag's name says that it is insecure.
                warnings.simplefilter("ignore", InsecureRequestWarning)
                send = functools.partial(super().request, "POST" if form else method, url, *args, **options)
                with send() as response:
                    body = self._read(response)
                if self._authentication is not None and self._authentication.renewed(response.status_code):
                    with send() as response:
                        body = self._read(response)
        except CredentialsError as error:
            flag = "--prometheus-token-file" if self._authentication is None else "--prometheus-auth"
            raise ReplayError(f"{error}; check {flag}") from error
        except requests.Timeout as error:
            raise RetriableError(f"{self._url} sent no response in time; check {self._flag}") from error
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" not in str(error):
                raise ReplayError(f"TLS with {self._url} fails ({_root(error)}); check {self._flag}") from error
            raise ReplayError(
                f"{self._url} has a certificate that cannot be verified ({_root(error)}); give --prometheus-ca-file"
            ) from error
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            raise RetriableError(f"{self._url} cannot be reached ({_root(error)}); check {self._flag}") from error
        except (requests.RequestException, OSError) as error:
            raise ReplayError(f"{self._url}: {_root(error)}; check {self._flag}") from error
        if response.status_code != 200:
            raise self._refused(response, body, str(parameters.get("query", "")))
        return _whole(body)

    def close(self) -> None:
        """Close the connections, and end what is in progress."""
        super().close()
        if self._authentication is not None:
            self._authentication.close()

    def _read(self, response: requests.Response) -> bytes:
        """Read a body before the deadline, which a slow server could otherwise extend with every byte."""
        body = bytearray()
        for piece in response.iter_content(256 * 1024):
            body += piece
            if len(body) > _MAX_BYTES:
                raise TooLargeError(f"the response of {self._url} is longer than {_MAX_BYTES >> 20} MiB")
            if self._clock() > self.deadline:
                raise requests.ReadTimeout
        return bytes(body)

    def _refused(self, response: requests.Response, body: bytes, query: str) -> ReplayError:
        status = response.status_code
        try:
            refusal = msgspec.json.decode(body, type=_Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            refusal = _Refusal()
        why = " ".join(refusal.error.split())[:_SHOWN]
        if status in (401, 403):
            flags = "--prometheus-token-file, --prometheus-header, --prometheus-auth or --prometheus-auth-config"
            return ReplayError(f"{self._url} refuses the credentials (status {status}); give {flags}")
        if 300 <= status < 400:
            return self.not_prometheus(f"it redirects to {response.headers.get('Location', 'another address')}")
        if status == 413 or refusal.error_type in ("timeout", "canceled"):
            return TooLargeError(why or f"status {status}")
        if status in (400, 422) and why:
            if _TOO_LARGE.search(why) and "parse error" not in why:
                return TooLargeError(why)
            return RefusedError(f"Prometheus refuses the query {shown(query)}: {why}; change it in --config")
        if status in _RETRIED:
            return RetriableError(f"{self._url} fails with status {status}{': ' * bool(why)}{why}; try again later")
        return self.not_prometheus(f"it has no {urlsplit(response.url).path} (status {status})")


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


def _root(error: BaseException) -> str:
    """Return the reason of an error, which the libraries wrap several times."""
    cause: BaseException | None = error
    text = type(error).__name__
    for _ in range(10):
        if cause is None:
            break
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        if isinstance(cause, OSError) and cause.strerror:
            text = cause.strerror
        cause = cause.__cause__ or cause.__context__
    return text
