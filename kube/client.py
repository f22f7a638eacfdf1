"""The API client: plain JSON over kubernetes-asyncio's configuration and connection pool.

kubernetes-asyncio knows kubeconfigs, exec plugins and in-cluster credentials (kube.credentials); its models are not
used, because decoding into them costs many times what the JSON costs. Nor is its way of sending: for every request it
lets aiohttp look for proxies and passwords in the environment and in the home directory, on another thread. Here
proxies are looked up once. So this speaks in paths and dicts, and turns every failure into one of two errors:

    StatusError       the server answered, with 400 or more (kube.status)
    KubeError
      KubeConfigError   there is no usable configuration; the message says what to give
      KubeUnreachable   no answer: refused, reset, timed out, not TLS, not JSON
        WatchSilent       a watch was open, and nothing came for longer than bookmarks take
        ResponseTooLarge    more than this client reads of one response

Requests are repeated as client-go repeats them (kube.retries), within their time. A peer that vanishes without a word
is noticed after 45 seconds by TCP, and on a watch after one and a quarter bookmark intervals in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import urllib.request
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from kubernetes_asyncio import config as kubernetes_config
from yarl import URL

from kube.credentials import BadCredentialsError, Credentials, credentials
from kube.retries import Answer, BeforeRetry, Retries
from kube.status import StatusError

Query = Mapping[str, str | int | bool]

BOOKMARK_SECONDS = 60.0
"""API servers send a bookmark about once a minute to each watch that allows them."""

_CONNECT_SECONDS = 10.0
# Kubernetes' HTTP/2 pings: 30 seconds without a byte, then 15 for the answer.
_IDLE_SECONDS = 30
_PROBE_SECONDS = 5
_PROBES = 3
# Of one response; 60,000 values of a custom metric. Only so many responses of more than a mebibyte are read at a time.
_MAX_BYTES = 16 * 2**20
_LARGE_BYTES = 2**20
_LARGE_AT_ONCE = 4
# etcd takes objects of up to 1.5 MiB.
_LONGEST_LINE = 2**21


class KubeError(Exception):
    """No usable answer from the API server."""


class KubeConfigError(KubeError):
    """There is no usable configuration; the message says what to give."""


class KubeUnreachable(KubeError):
    """The API server did not answer, or what answered is none."""


class WatchSilent(KubeUnreachable):
    """A watch was open, and nothing came for too long: its peer may be gone."""


class ResponseTooLarge(KubeUnreachable):
    """A response is larger than this client reads; the rest of it was not read."""


class KubeClient:
    """A connection pool to one API server. Use as an async context manager, or close it.

    Attributes:
        host: the API server's host and port.
        retries: repeats requests; its counts are for metrics.
        bookmark_seconds: how often the API server sends a bookmark to a watch.
        large_responses: how many responses of more than a mebibyte are being read: at most four of lists and four
            others.
    """

    def __init__(
        self,
        server: Credentials,
        *,
        user_agent: str,
        proxy: str | None,
        timeout: float,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        retries: Retries | None = None,
    ) -> None:
        self.host = str(urlsplit(server.configuration.host).netloc)
        self.retries = retries or Retries()
        self.bookmark_seconds = bookmark_seconds
        self._configuration = server.configuration
        self._user_agent = user_agent
        self._proxy = proxy
        self._timeout = timeout
        # Lists have slots of their own: a metrics API whose large responses drip must not hold up those of pods.
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._large_lists = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.large_responses = 0
        self._session = aiohttp.ClientSession(
            # No limit: a watch holds its connection, and requests must not wait for one.
            connector=aiohttp.TCPConnector(limit=0, ssl=server.tls, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            # An event of a watch is a line, and holds a whole object.
            read_bufsize=_LONGEST_LINE,
        )

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        user_agent: str = "milliscale",
        timeout: float = 30.0,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        retries: Retries | None = None,
    ) -> KubeClient:
        """Read the configuration and make the pool; nothing is sent yet.

        Args:
            kubeconfig: the file, or None for the service account of the pod that this runs in.
            context: the kubeconfig's context, or None for its current one.
            user_agent: how this client calls itself.
            timeout: seconds that a request may take with all its repetitions, unless it says otherwise; watches are not
                bound by it.
            bookmark_seconds: how often the API server sends a bookmark to a watch.
            retries: repeats requests; None: with the real time.

        Raises:
            KubeConfigError: there is no configuration, or it cannot be used.
        """
        try:
            server = await credentials(kubeconfig, context)
        except BadCredentialsError as error:
            raise KubeConfigError(str(error)) from error
        configuration = server.configuration
        proxy = configuration.proxy or await asyncio.to_thread(_environment_proxy, configuration.host)
        return cls(
            server,
            user_agent=user_agent,
            proxy=proxy,
            timeout=timeout,
            bookmark_seconds=bookmark_seconds,
            retries=retries,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    @property
    def silence_seconds(self) -> float:
        """How long a watch may be silent before it is closed: a bookmark interval, and a quarter for its lateness."""
        return 1.25 * self.bookmark_seconds

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        accept: str = "application/json",
        timeout: float | None = None,
        before_retry: BeforeRetry | None = None,
    ) -> dict[str, Any]:
        """GET an object or a list.

        Args:
            path: percent-encoded.
            query: its parameters.
            accept: the media type to ask for.
            timeout: seconds for the request and all its repetitions; None: those of this client.
            before_retry: awaited before each repetition. These two are the same for all methods.

        Raises:
            StatusError, KubeUnreachable: as the module says.
        """
        content = await self._content(
            "GET", path, query, accept=accept, timeout=timeout, before_retry=before_retry, max_bytes=_MAX_BYTES
        )
        return _decode(content)

    async def get_bytes(
        self,
        path: str,
        query: Query | None = None,
        *,
        accept: str = "application/json",
        max_bytes: int = _MAX_BYTES,
    ) -> bytes:
        """GET something as it is sent, of `max_bytes` at most; `kube.listing` reads lists that way."""
        return await self._content("GET", path, query, accept=accept, max_bytes=max_bytes, large=self._large_lists)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        query: Query | None = None,
        *,
        timeout: float | None = None,
        before_retry: BeforeRetry | None = None,
    ) -> dict[str, Any]:
        """Create an object."""
        return await self._write("POST", path, query, body=body, timeout=timeout, before_retry=before_retry)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        query: Query | None = None,
        *,
        timeout: float | None = None,
        before_retry: BeforeRetry | None = None,
    ) -> dict[str, Any]:
        """Replace an object; a conflict is a StatusError with code 409."""
        return await self._write("PUT", path, query, body=body, timeout=timeout, before_retry=before_retry)

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[dict[str, Any]],
        query: Query | None = None,
        *,
        content_type: str = "application/merge-patch+json",
        timeout: float | None = None,
        before_retry: BeforeRetry | None = None,
    ) -> dict[str, Any]:
        """Change an object."""
        return await self._write(
            "PATCH", path, query, body=body, content_type=content_type, timeout=timeout, before_retry=before_retry
        )

    async def delete(self, path: str, query: Query | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Delete an object."""
        return await self._write("DELETE", path, query, timeout=timeout)

    async def watch(
        self,
        path: str,
        query: Query | None = None,
        *,
        seconds: float = 300.0,
        accept: str = "application/json",
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a collection, as `{"type": ..., "object": {...}}`, until the server ends the watch.

        Args:
            path: the collection's path.
            query: what to watch: resourceVersion, labelSelector, allowWatchBookmarks and so on.
            seconds: how long the server is asked to go on.
            accept: the media type to ask for.
            on_open: called once when the server has accepted the watch, which may be long before its first event.

        Raises:
            StatusError: the server refuses, or sends an ERROR event (410 when the version is too old).
            WatchSilent: nothing came for `silence_seconds`; where bookmarks are not allowed it may just be quiet.
            KubeUnreachable: as ever.
        """
        asked: dict[str, str | int | bool] = {**(query or {}), "watch": True, "timeoutSeconds": int(seconds)}
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
        with _no_answer():
            async with asyncio.timeout(self._timeout):
                sent = await self._send("GET", path, asked, accept=accept, timeout=timeout)
            async with sent as response:
                if response.status >= 400:
                    async with asyncio.timeout(self._timeout):
                        raise _status_error(await self._read(response, _MAX_BYTES, self._large))
                if on_open is not None:
                    on_open()
                while line := await self._line(response):
                    event = _decode(line)
                    if event.get("type") == "ERROR":
                        raise _event_error(event.get("object"))
                    yield event

    async def _line(self, response: aiohttp.ClientResponse) -> bytes:
        """The next line of a watch; empty at its end."""
        try:
            async with asyncio.timeout(self.silence_seconds):
                return await response.content.readline()
        except TimeoutError as error:
            raise WatchSilent(f"the watch has been silent for {self.silence_seconds:g} seconds") from error

    async def _write(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        body: Mapping[str, Any] | list[dict[str, Any]] | None = None,
        content_type: str = "application/json",
        timeout: float | None,
        before_retry: BeforeRetry | None = None,
    ) -> dict[str, Any]:
        content = await self._content(
            method,
            path,
            query,
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            timeout=timeout,
            before_retry=before_retry,
            max_bytes=_MAX_BYTES,
        )
        return _decode(content)

    async def _content(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        body: bytes | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
        timeout: float | None = None,
        before_retry: BeforeRetry | None = None,
        max_bytes: int,
        large: asyncio.Semaphore | None = None,
    ) -> bytes:
        seconds = self._timeout if timeout is None else timeout
        limit = aiohttp.ClientTimeout(total=None, connect=min(seconds, _CONNECT_SECONDS))

        async def send() -> Answer:
            sent = await self._send(
                method, path, query, body=body, accept=accept, content_type=content_type, timeout=limit
            )
            async with sent as response:
                return await self._read(response, max_bytes, large or self._large)

        with _no_answer():
            async with asyncio.timeout(seconds):
                deadline = self.retries.clock() + seconds
                answer = await self.retries.run(method, send, deadline=deadline, before_retry=before_retry)
        if answer.status >= 400:
            raise _status_error(answer)
        return answer.content

    async def _read(self, response: aiohttp.ClientResponse, max_bytes: int, large: asyncio.Semaphore) -> Answer:
        """The whole response. Of several large ones at a time, some wait until others have been read."""
        content = bytearray()
        async with contextlib.AsyncExitStack() as stack:
            async for piece in response.content.iter_any():
                if len(content) <= _LARGE_BYTES < len(content) + len(piece):
                    await stack.enter_async_context(self._reading_large(large))
                content += piece
                if len(content) > max_bytes:
                    size = f"more than {max_bytes // 2**20} MiB" if max_bytes >= 2**20 else f"over {max_bytes} bytes"
                    raise ResponseTooLarge(f"the API server's answer is too large to be read: {size}")
        return Answer(response.status, response.headers, bytes(content))

    @contextlib.asynccontextmanager
    async def _reading_large(self, large: asyncio.Semaphore) -> AsyncGenerator[None, None]:
        async with large:
            self.large_responses += 1
            try:
                yield
            finally:
                self.large_responses -= 1

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        accept: str,
        timeout: aiohttp.ClientTimeout,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = content_type
        configuration = self._configuration
        for setting in (await configuration.auth_settings()).values():
            headers[setting["key"]] = setting["value"]
        return await self._session.request(
            method,
            URL(f"{configuration.host}{path}{_query_text(query)}", encoded=True),
            data=body,
            headers=headers,
            timeout=timeout,
            proxy=self._proxy,
            proxy_headers=configuration.proxy_headers,
            server_hostname=configuration.tls_server_name,
        )


@contextlib.contextmanager
def _no_answer() -> Iterator[None]:
    """Every way in which there was no usable answer, as the one error for it."""
    try:
        yield
    except TimeoutError as error:
        raise KubeUnreachable("the API server did not answer in time") from error
    except (aiohttp.ClientError, OSError, kubernetes_config.ConfigException) as error:
        raise KubeUnreachable(f"the API server cannot be reached: {str(error) or type(error).__name__}") from error
    except ValueError as error:  # aiohttp's word for a line that is too long
        raise KubeUnreachable(f"the API server's answer cannot be read: {error}") from error


def _status_error(answer: Answer) -> StatusError:
    return StatusError.from_body(answer.status, answer.content, content_type=answer.headers.get("Content-Type", ""))


def _event_error(status: object) -> StatusError:
    """The error that an ERROR event carries."""
    code = status.get("code") if isinstance(status, dict) else None
    return StatusError.from_body(code if isinstance(code, int) else 500, msgspec.json.encode(status))


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within 45 seconds that its peer is gone, whether or not something was sent."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": _IDLE_SECONDS,
        "TCP_KEEPINTVL": _PROBE_SECONDS,
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": (_IDLE_SECONDS + _PROBE_SECONDS * _PROBES) * 1000,
    }
    for name, value in options.items():
        if hasattr(socket, name):  # of Linux; others have some of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _decode(content: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise KubeUnreachable(f"the API server's answer is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise KubeUnreachable("the API server's answer is not a JSON object")
    return decoded


def _query_text(query: Query | None) -> str:
    """The query with its question mark; nothing where there is none."""
    if not query:
        return ""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
    return f"?{urlencode(texts)}"


def _environment_proxy(url: str | None) -> str | None:
    """The proxy that the environment wants for this URL (HTTPS_PROXY, NO_PROXY and so on)."""
    parts = urlsplit(url or "")
    if parts.hostname is None or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)
