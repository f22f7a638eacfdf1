"""The API client: plain JSON over aiohttp, with kubernetes-asyncio's configuration (kube.api.config).

kubernetes-asyncio's models are not used, because decoding into them takes many times as long as decoding JSON. Nor is
its transport: it makes aiohttp look up proxies and passwords on another thread for every request. This client works
with paths and dicts, and raises one of two errors:

    StatusError       the server responded with 400 or more (kube.api.status)
    KubeError
      KubeConfigError   there is no usable configuration; the message says what to give
      KubeUnreachable   no response: refused, reset, timed out, not TLS, not JSON, a redirect
        WatchSilent       an open watch received nothing for longer than bookmarks take
        ResponseTooLarge  the response is larger than this client reads

Requests are retried as client-go retries them (kube.api.retries), within their timeout. TCP notices a peer that
vanished after 45 seconds; a watch ends after one and a quarter bookmark intervals without a line in any case.

The lines of watches may be as long as an API server sends them: etcd takes objects of up to 1.5 MiB, and "<" has six
bytes in JSON. Few lines and pages of lists of more than a mebibyte are in memory at a time (ClientSettings). A watch
goes on after an object that cannot be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from yarl import URL

from kube.aio.fairness import FairSemaphore, current_namespace
from kube.api.config import RestConfig, RestConfigError, client_socket, load_config
from kube.api.objects import UNREADABLE, event_of
from kube.api.retries import BeforeRetry, Response, Retries
from kube.api.status import StatusError

Query = Mapping[str, str | int | bool]

BOOKMARK_SECONDS = 60.0
"""API servers send a bookmark about once a minute to each watch that allows them."""

_JSON = "application/json"
_LARGE_BYTES = 2**20
_START_BYTES = 2**13  # of a line that is too long: has the object's name


class KubeError(Exception):
    """No usable response from the API server."""


class KubeConfigError(KubeError):
    """There is no usable configuration; the message says what to give."""


class KubeUnreachable(KubeError):
    """The API server did not respond, or sent a response that is not one of the API."""


class WatchSilent(KubeUnreachable):
    """An open watch received nothing for too long: the connection may be dead."""


class ResponseTooLarge(KubeUnreachable):
    """The response is larger than this client reads, or reads in its time; the rest of it was not read.

    Attributes:
        start: the first bytes.
    """

    def __init__(self, message: str, start: bytes) -> None:
        super().__init__(message)
        self.start = start


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Requests to the API server."""

    connect_seconds: float = 10.0
    """Limit of a new connection, with its TLS handshake: TCP has tried four times by then, the last time after 7 s."""
    request_seconds: float = 30.0
    """Limit of a request with all its retries, unless its caller has less time; not of watches. An admission webhook
    may take as long."""
    response_bytes: int = 16 * 2**20
    """Limit of a response, other than a page of a list. 60,000 values of a custom metric have this size."""
    large_responses: int = 4
    """Responses of more than a mebibyte in memory at a time: so many of lists and watches, and so many others."""
    page_objects: int = 500
    """Objects in a page of a list, as with kubectl and client-go."""
    page_bytes: int = 32 * 2**20
    """Limit of a page of a list. One that is larger is read again with fewer objects, at last one: etcd takes objects
    of up to 1.5 MiB, and "<" has six bytes in JSON."""
    event_bytes: int = 16 * 2**20
    """Limit of an event of a watch; the object of a larger one counts as unknown. Twice what etcd takes, as JSON,
    unless its own limit is raised."""
    watch_seconds: float = 300.0
    """Time after which the API server ends a watch, or up to twice as long: at random as in client-go, so that they do
    not all end together."""


DEFAULTS = ClientSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    path: str
    query: Query | None = None
    accept: str = _JSON
    body: bytes | None = None
    content_type: str = _JSON


class _Options(TypedDict, total=False):
    timeout: float | None
    before_retry: BeforeRetry


class KubeClient:
    """A connection pool to one API server. Use as an async context manager, or close it.

    Attributes:
        host: the API server's host and port.
        identity: whose credentials it sends, in words.
        namespace: of the kubeconfig's context, or of the pod.
        retries: retries requests; its counts are for metrics.
        settings: see ClientSettings.
        bookmark_seconds: how often the API server sends a bookmark to a watch.
        large_responses: responses, and lines of watches, of more than a mebibyte that are being read.
    """

    def __init__(
        self,
        config: RestConfig,
        user_agent: str,
        settings: ClientSettings,
        bookmark_seconds: float,
        retries: Retries,
    ) -> None:
        self.host = str(urlsplit(config.host).netloc)
        self.identity = config.identity
        self.namespace = config.namespace
        self.retries = retries
        self.settings = settings
        self.bookmark_seconds = bookmark_seconds
        self._config = config
        self._user_agent = user_agent
        # Lists and watches have separate slots, so that slow large responses of a metrics API do not delay pods.
        self._large = FairSemaphore(settings.large_responses)
        self._large_lists = FairSemaphore(settings.large_responses)
        self.large_responses = 0
        self._session = aiohttp.ClientSession(
            # No limit: a watch holds its connection, and requests must not wait for one.
            connector=aiohttp.TCPConnector(limit=0, socket_factory=client_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        user_agent: str = "milliscale",
        settings: ClientSettings = DEFAULTS,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        retries: Retries | None = None,
    ) -> Self:
        """Read the configuration and make a client; nothing is sent yet.

        Args:
            kubeconfig: the file; None: the service account of the pod that this runs in.
            context: the kubeconfig's context; None: its current one.
            user_agent: the User-Agent header.
            settings: see ClientSettings.
            bookmark_seconds: how often the API server sends a bookmark to a watch.
            retries: retries requests; None: with the real clock.

        Raises:
            KubeConfigError: there is no configuration, or it is invalid.
        """
        try:
            config = await load_config(kubeconfig, context)
        except RestConfigError as error:
            raise KubeConfigError(str(error)) from error
        return cls(config, user_agent, settings, bookmark_seconds, retries or Retries())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def describe(self, error: StatusError | KubeError) -> str:
        """Return an error of this client for the user of a command, with what to change."""
        if isinstance(error, StatusError) and error.code == 401:
            return f"the API server {self.host} refuses the credentials of {self.identity}: {error}; log in again"
        if isinstance(error, KubeUnreachable):
            return f"{error}; check --kubeconfig and --context"
        return str(error)

    @property
    def silence_seconds(self) -> float:
        """How long a watch may receive nothing before it is closed: one and a quarter bookmark intervals."""
        return 1.25 * self.bookmark_seconds

    async def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        accept: str = _JSON,
        **options: Unpack[_Options],
    ) -> dict[str, Any]:
        """GET an object or a list.

        Args:
            path: percent-encoded.
            query: parameters.
            accept: the media type to accept.
            options: `timeout`, seconds for the request and all its retries, by default the client's; `before_retry`,
                awaited before each retry. The other methods have them, too.

        Raises:
            StatusError, KubeUnreachable: see the module.
        """
        request = _Request(method="GET", path=path, query=query, accept=accept)
        return _decode(await self._call(request, **options))

    async def get_bytes(
        self,
        path: str,
        query: Query | None = None,
        *,
        accept: str = _JSON,
        max_bytes: int | None = None,
        is_list: bool = False,
        held: contextlib.AsyncExitStack | None = None,
        **options: Unpack[_Options],
    ) -> bytes:
        """GET a body without decoding it, of at most `max_bytes`; that of a list has one of the slots of lists.

        A caller that does not decode it at once gives a stack, which holds the slot of a large response.
        """
        request = _Request(method="GET", path=path, query=query, accept=accept)
        large = self._large_lists if is_list else None
        return await self._call(request, max_bytes=max_bytes, large=large, held=held, **options)

    async def post(self, path: str, body: Mapping[str, Any], **options: Unpack[_Options]) -> dict[str, Any]:
        """Create an object."""
        request = _Request(method="POST", path=path, body=msgspec.json.encode(body))
        return _decode(await self._call(request, **options))

    async def put(self, path: str, body: Mapping[str, Any], **options: Unpack[_Options]) -> dict[str, Any]:
        """Replace an object; a conflict is a StatusError with code 409."""
        request = _Request(method="PUT", path=path, body=msgspec.json.encode(body))
        return _decode(await self._call(request, **options))

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[dict[str, Any]],
        query: Query | None = None,
        *,
        content_type: str = "application/merge-patch+json",
        **options: Unpack[_Options],
    ) -> dict[str, Any]:
        """Change an object."""
        content = msgspec.json.encode(body)
        request = _Request(method="PATCH", path=path, query=query, body=content, content_type=content_type)
        return _decode(await self._call(request, **options))

    async def delete(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """Delete an object."""
        return _decode(await self._call(_Request(method="DELETE", path=path, query=query)))

    async def watch(
        self,
        path: str,
        query: Query | None = None,
        *,
        seconds: float = 300.0,
        accept: str = _JSON,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a collection, `{"type": ..., "object": {...}}`, until the server ends the watch.

        The event of an object that cannot be read is one of `kube.api.objects.event_of`, or `{"type": "UNREADABLE"}`
        if its name cannot be read either.

        Args:
            path: the collection's path.
            query: resourceVersion, labelSelector, allowWatchBookmarks and so on.
            seconds: the time after which the server ends the watch.
            accept: the media type to accept.
            on_open: called once when the server has accepted the watch, which may be long before its first event.

        Raises:
            StatusError: the server refuses, or sends an ERROR event (410 when the version is too old).
            WatchSilent: nothing was received for `silence_seconds`. Without bookmarks this may be normal.
            KubeUnreachable: see the module.
        """
        parameters: Query = {**(query or {}), "watch": True, "timeoutSeconds": int(seconds)}
        request = _Request(method="GET", path=path, query=parameters, accept=accept)
        with _as_unreachable():
            async with asyncio.timeout(self.settings.request_seconds):
                sent = await self._send(request, connect_seconds=self.settings.connect_seconds)
            async with sent as response:
                if response.status >= 300:
                    async with asyncio.timeout(self.settings.request_seconds):
                        max_bytes = self.settings.response_bytes
                        raise self._error_of(await self._read(response, max_bytes, self._large, bytearray()))
                if on_open is not None:
                    on_open()
                async with contextlib.aclosing(self._events(response.content)) as events:
                    async for event in events:
                        if event.get("type") == "ERROR":
                            raise _event_error(event.get("object"))
                        yield event

    async def _events(self, content: aiohttp.StreamReader) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a watch's lines. A long line waits for a slot; a too long one is skipped."""
        line = bytearray()
        too_long = False
        loop = asyncio.get_running_loop()
        until = loop.time() + self.silence_seconds
        async with contextlib.AsyncExitStack() as slot:
            while piece := await self._piece(content, until):
                *ends, rest = piece.split(b"\n")
                for end in ends:
                    line += b"" if too_long else end
                    await slot.aclose()
                    event = _event(line, too_long=too_long)
                    line, too_long = bytearray(), False
                    yield event
                if ends:
                    until = loop.time() + self.silence_seconds
                if too_long:
                    continue
                if len(line) <= _LARGE_BYTES < len(line) + len(rest):
                    await slot.enter_async_context(self._reading_large(self._large_lists))
                    until = loop.time() + self.silence_seconds
                line += rest
                if len(line) > self.settings.event_bytes:
                    line, too_long = line[:_START_BYTES], True
                    await slot.aclose()

    async def _piece(self, content: aiohttp.StreamReader, until: float) -> bytes:
        """Return the next bytes of a watch; empty at its end."""
        try:
            async with asyncio.timeout_at(until):
                return await content.readany()
        except TimeoutError as error:
            raise WatchSilent(f"the watch has been silent for {self.silence_seconds:g} seconds") from error

    async def _call(
        self,
        request: _Request,
        timeout: float | None = None,
        before_retry: BeforeRetry | None = None,
        *,
        max_bytes: int | None = None,
        large: FairSemaphore | None = None,
        held: contextlib.AsyncExitStack | None = None,
    ) -> bytes:
        """Send a request, with retries, and return the body of a successful response."""
        settings = self.settings
        seconds = settings.request_seconds if timeout is None else timeout
        content = bytearray()

        async def send() -> Response:
            sent = await self._send(request, connect_seconds=min(seconds, settings.connect_seconds))
            content.clear()
            async with sent as response:
                limit = max_bytes or settings.response_bytes
                return await self._read(response, limit, large or self._large, content, held)

        with _as_unreachable(content):
            async with asyncio.timeout(seconds):
                response = await self.retries.run(request.method, send, timeout=seconds, before_retry=before_retry)
        if response.status >= 300:
            raise self._error_of(response)
        return response.content

    async def _send(self, request: _Request, *, connect_seconds: float) -> aiohttp.ClientResponse:
        headers = {"Accept": request.accept, "User-Agent": self._user_agent}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        headers |= await self._config.authorization()
        return await self._session.request(
            request.method,
            URL(f"{self._config.host}{request.path}{_query_text(request.query)}", encoded=True),
            data=request.body,
            headers=headers,
            allow_redirects=False,  # a login page of a proxy, say, must not get objects
            # `connect` is the time for a connection of the pool, `sock_connect` that for a new one.
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_seconds, sock_connect=connect_seconds),
            ssl=self._config.tls,
            proxy=self._config.proxy,
            server_hostname=self._config.server_name,
        )

    async def _read(
        self,
        response: aiohttp.ClientResponse,
        max_bytes: int,
        large: FairSemaphore,
        content: bytearray,
        held: contextlib.AsyncExitStack | None = None,
    ) -> Response:
        """Read a whole response into `content`. A large one waits until it gets one of the slots of `large`.

        If it is successful, `held` holds the slot afterwards.
        """
        async with contextlib.AsyncExitStack() as stack:
            async for piece in response.content.iter_any():
                if len(content) <= _LARGE_BYTES < len(content) + len(piece):
                    await stack.enter_async_context(self._reading_large(large))
                content += piece
                if len(content) > max_bytes:
                    size = f"more than {max_bytes // 2**20} MiB" if max_bytes >= 2**20 else f"over {max_bytes} bytes"
                    message = f"the API server's response is too large to be read: {size}"
                    raise ResponseTooLarge(message, bytes(content[:_START_BYTES]))
            if held is not None and response.status < 300:
                held.push_async_exit(stack.pop_all())
        return Response(response.status, response.headers, bytes(content))

    def _error_of(self, response: Response) -> StatusError | KubeUnreachable:
        """Return the error of a response with a status of 300 or more."""
        if response.status < 400:
            return KubeUnreachable(f"the API server's response is a redirect, status {response.status}")
        if response.status == 401:
            self._config.refused()
        content_type = response.headers.get("Content-Type", "")
        return StatusError.from_body(response.status, response.content, content_type=content_type)

    @contextlib.asynccontextmanager
    async def _reading_large(self, large: FairSemaphore) -> AsyncGenerator[None, None]:
        async with large.slot(current_namespace()):
            self.large_responses += 1
            try:
                yield
            finally:
                self.large_responses -= 1


@contextlib.contextmanager
def _as_unreachable(content: bytes | bytearray = b"") -> Iterator[None]:
    """Raise KubeUnreachable for every error without a usable response; `content` is what was read of it."""
    try:
        yield
    except TimeoutError as error:
        if content:
            message = f"the API server's response is too large to be read in time: {len(content)} bytes were"
            raise ResponseTooLarge(message, bytes(content[:_START_BYTES])) from error
        raise KubeUnreachable("the API server did not respond in time") from error
    except aiohttp.ClientConnectorError as error:
        raise KubeUnreachable(f"the API server cannot be reached: {_connect_text(error)}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise KubeUnreachable(f"the API server cannot be reached: {str(error) or type(error).__name__}") from error
    except (StatusError, KubeError):
        raise
    except Exception as error:  # aiohttp's errors of malformed responses have no common class
        raise KubeUnreachable(f"the API server's response cannot be read: {error}") from error


def _connect_text(error: aiohttp.ClientConnectorError) -> str:
    """Return an error of a new connection, without aiohttp's settings: `10.0.0.1:6443: Connection refused`."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        refused = error.certificate_error
        why = f"its certificate cannot be verified: {getattr(refused, 'verify_message', refused)}"
    elif (cause := error.os_error).errno and cause.errno > 0 and not isinstance(cause, ssl.SSLError):
        why = os.strerror(cause.errno)  # asyncio's own text repeats the address
    else:
        why = cause.strerror or str(cause) or type(cause).__name__
    return f"{error.host}:{error.port}: {why}"


def _event_error(status: object) -> StatusError:
    """Return the error that an ERROR event carries."""
    code = status.get("code") if isinstance(status, dict) else None
    return StatusError.from_body(code if isinstance(code, int) else 500, msgspec.json.encode(status))


def _event(line: bytearray, *, too_long: bool) -> dict[str, Any]:
    try:
        if not too_long:
            return _decode(line)
    except KubeUnreachable as error:
        event = event_of(line)
        if event is None and not isinstance(error.__cause__, RecursionError):
            raise
        return event or {"type": UNREADABLE}
    return event_of(line) or {"type": UNREADABLE}


def _decode(content: bytes | bytearray) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise KubeUnreachable(f"the API server's response is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise KubeUnreachable("the API server's response is not a JSON object")
    return decoded


def _query_text(query: Query | None) -> str:
    """Return the query with its question mark; "" without parameters."""
    if not query:
        return ""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
    return f"?{urlencode(texts)}"
