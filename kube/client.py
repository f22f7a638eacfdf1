"""The API client: plain JSON over kubernetes-asyncio's configuration and connection pool.

kubernetes-asyncio knows kubeconfigs, exec plugins and in-cluster credentials (kube.credentials); its models are not
used, because decoding into them costs many times what the JSON costs. Nor is its way of sending: for every request it
lets aiohttp look for proxies and passwords in the environment and in the home directory, on another thread. Here
proxies are looked up once. So this speaks in paths and dicts, and turns every failure into one of two errors:

    StatusError       the server answered, with 400 or more (kube.status)
    KubeError
      KubeConfigError   there is no usable configuration; the message says what to give
      KubeUnreachable   no answer: refused, reset, timed out, not TLS, not JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from kubernetes_asyncio import config as kubernetes_config
from kubernetes_asyncio.client import ApiClient
from yarl import URL

from kube import credentials
from kube.status import StatusError

__all__ = ["KubeClient", "KubeConfigError", "KubeError", "KubeUnreachable", "Query"]

Query = Mapping[str, str | int | bool]

_CONNECT_SECONDS = 10.0
# A watch that is silent for this long beyond what the server was asked for is dead, not quiet.
_WATCH_GRACE_SECONDS = 30.0
# etcd takes objects of up to 1.5 MiB.
_LONGEST_LINE = 2**21


class KubeError(Exception):
    """No usable answer from the API server."""


class KubeConfigError(KubeError):
    """There is no usable configuration; the message says what to give."""


class KubeUnreachable(KubeError):
    """The API server did not answer, or what answered is none."""


class KubeClient:
    """A connection pool to one API server. Use as an async context manager, or close it."""

    def __init__(self, api: ApiClient, *, user_agent: str, proxy: str | None, timeout: float) -> None:
        self._api = api
        self._user_agent = user_agent
        self._proxy = proxy
        self._timeout = timeout
        # Its connector knows the cluster's certificates and our own.
        self._session = aiohttp.ClientSession(
            connector=api.rest_client.pool_manager.connector,
            connector_owner=False,
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
    ) -> KubeClient:
        """Read the configuration and make the pool; nothing is sent yet.

        Args:
            kubeconfig: the file, or None for the service account of the pod that this runs in.
            context: the kubeconfig's context, or None for its current one.
            user_agent: how this client calls itself.
            timeout: seconds that a request may take, unless it says otherwise; watches are not bound by it.

        Raises:
            KubeConfigError: there is no configuration, or it cannot be used.
        """
        try:
            api = await credentials.api_client(kubeconfig, context)
        except credentials.BadCredentialsError as error:
            raise KubeConfigError(str(error)) from error
        configuration = api.configuration
        proxy = configuration.proxy or await asyncio.to_thread(_environment_proxy, configuration.host)
        return cls(api, user_agent=user_agent, proxy=proxy, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
        await self._api.close()

    async def get(
        self, path: str, query: Query | None = None, *, accept: str = "application/json", timeout: float | None = None
    ) -> dict[str, Any]:
        """GET an object or a list. `path` is percent-encoded; `timeout` is in seconds."""
        return await self._call("GET", path, query, accept=accept, timeout=timeout)

    async def get_bytes(self, path: str, query: Query | None = None, *, accept: str = "application/json") -> bytes:
        """GET something as it is sent; `kube.listing` reads lists that way."""
        return await self._content("GET", path, query, accept=accept, timeout=None)

    async def post(
        self, path: str, body: Mapping[str, Any], query: Query | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Create an object."""
        return await self._call("POST", path, query, body=body, timeout=timeout)

    async def put(
        self, path: str, body: Mapping[str, Any], query: Query | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Replace an object; a conflict is a StatusError with code 409."""
        return await self._call("PUT", path, query, body=body, timeout=timeout)

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[dict[str, Any]],
        query: Query | None = None,
        *,
        content_type: str = "application/merge-patch+json",
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Change an object."""
        return await self._call("PATCH", path, query, body=body, content_type=content_type, timeout=timeout)

    async def delete(self, path: str, query: Query | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Delete an object."""
        return await self._call("DELETE", path, query, timeout=timeout)

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

        An ERROR event is raised as the StatusError that it carries (410 when the version is too old).
        """
        asked: dict[str, str | int | bool] = {**(query or {}), "watch": True, "timeoutSeconds": int(seconds)}
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=_CONNECT_SECONDS,
            sock_connect=_CONNECT_SECONDS,
            sock_read=seconds + _WATCH_GRACE_SECONDS,
        )
        with _no_answer():
            async with await self._send("GET", path, asked, accept=accept, timeout=timeout) as response:
                if response.status >= 400:
                    raise StatusError.from_body(response.status, await response.read())
                if on_open is not None:
                    on_open()
                async for line in response.content:
                    event = _decode(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object")
                        code = status.get("code") if isinstance(status, dict) else None
                        raise StatusError.from_body(code if isinstance(code, int) else 500, msgspec.json.encode(status))
                    yield event

    async def _call(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        body: Mapping[str, Any] | list[dict[str, Any]] | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
        timeout: float | None,
    ) -> dict[str, Any]:
        content = await self._content(
            method, path, query, body=body, accept=accept, content_type=content_type, timeout=timeout
        )
        return _decode(content)

    async def _content(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        body: Mapping[str, Any] | list[dict[str, Any]] | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
        timeout: float | None,
    ) -> bytes:
        seconds = self._timeout if timeout is None else timeout
        limit = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, _CONNECT_SECONDS))
        with _no_answer():
            sent = await self._send(
                method, path, query, body=body, accept=accept, content_type=content_type, timeout=limit
            )
            async with sent as response:
                content = await response.read()
                if response.status >= 400:
                    raise StatusError.from_body(response.status, content)
                return content

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        *,
        accept: str,
        timeout: aiohttp.ClientTimeout,
        body: Mapping[str, Any] | list[dict[str, Any]] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = content_type
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        configuration = self._api.configuration
        return await self._session.request(
            method,
            URL(f"{configuration.host}{path}{_query_text(query)}", encoded=True),
            data=None if body is None else msgspec.json.encode(body),
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
