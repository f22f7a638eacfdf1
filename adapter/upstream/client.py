"""Sends HTTP requests to one upstream server.

Some servers and proxies repeat a request's headers in their errors: AWS the header Authorization of a signature that it
cannot read, others the token. Errors are in logs and on pages, so credentials are removed from them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

import aiohttp
from yarl import URL

from adapter.upstream.access import OutgoingRequest, ServerAccess
from adapter.upstream.credentials import Credentials
from kube.aio.fairness import FairSemaphore, current_namespace
from kube.api.config import client_socket

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)


class UpstreamClient:
    """Sends requests to one server, until `close`."""

    def __init__(
        self,
        access: ServerAccess,
        *,
        connections: int,
        max_waiting: int,
        spare: int = 0,
        reserved: int = 0,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            access: the server.
            connections: how many callers hold a `slot` at a time.
            max_waiting: how many callers of each namespace may wait for one.
            spare: of the connections, those for namespaces that hold none.
            reserved: further connections, for requests without a slot.
            session: an HTTP session to share; None: the client opens its own.
        """
        self._connections = connections + reserved
        self._slots = FairSemaphore(connections - spare, max_waiting=max_waiting, spare=spare)
        self._credentials = Credentials(access)
        self._proxy = URL(access.proxy_url) if access.proxy_url else None
        self._loading = asyncio.Lock()
        self._session = session
        self._owns_session = session is None

    async def close(self) -> None:
        """Close the connections of this client's own."""
        await self._credentials.close()
        if self._session is not None and self._owns_session:
            await self._session.close()
            self._session = None

    async def load(self) -> None:
        """Read the TLS files and import the library of `auth`; the first request does, too.

        Raises:
            UpstreamConfigError: one cannot be used.
        """
        if not self._credentials.loaded:
            async with self._loading:
                await asyncio.to_thread(self._credentials.load)

    def slot(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold a slot for the current namespace; raises QueueFullError as FairSemaphore.slot."""
        return self._slots.slot(current_namespace())

    @contextlib.asynccontextmanager
    async def send(
        self, url: URL, *, form: Mapping[str, str] | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET a URL, or POST a form to it; once more if the server refuses a credential that can be renewed.

        Redirects are not followed: they could leak the credentials to another server.

        Raises:
            CredentialsError, UpstreamConfigError: a credential cannot be used now.
            aiohttp.ClientError, OSError: there is no response.
        """
        await self.load()
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections, socket_factory=client_socket)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        method = "GET" if form is None else "POST"
        request = await self._credentials.request(method, url, form=form, headers=headers)
        scheme = self._credentials.scheme
        if scheme is not None:
            credential = await scheme.cache.get()
            async with self._open(self._session, scheme.authenticated(request, credential)) as response:
                if response.status not in scheme.refusals or not await scheme.cache.renew(credential):
                    yield response
                    return
            request = scheme.authenticated(request, await scheme.cache.get())
        async with self._open(self._session, request) as response:
            yield response

    def _open(
        self, session: aiohttp.ClientSession, request: OutgoingRequest
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        context = self._credentials.context()
        return session.request(
            request.method,
            request.url,
            data=request.body,
            headers=request.headers,
            ssl=context if context is not None else True,
            proxy=self._proxy,
            allow_redirects=False,
            timeout=_TIMEOUT,
        )


_REMOVED: Final = b"..."
_SHORTEST: Final = 6  # removing shorter texts would make errors unreadable
_PUBLIC: Final = frozenset(
    ["accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent", "x-amz-date"]
)
_SIGNATURE: Final = re.compile(r"Signature=([0-9a-f]+)")


def without_credentials(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the body of an error without the values of the request's headers.

    Those that every client sends stay. Of Authorization, the token, the password and the signature are removed, too.
    """
    found = {text for text in _credentials(headers) if len(text) >= _SHORTEST}
    for text in sorted(found, key=len, reverse=True):
        for form in {text, json.dumps(text)[1:-1]}:
            body = body.replace(form.encode(), _REMOVED)
    return body


def _credentials(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if name.lower() in _PUBLIC:
            continue
        yield value
        if name.lower() in ("authorization", "proxy-authorization"):
            scheme, _, credential = value.partition(" ")
            yield credential
            yield from _SIGNATURE.findall(credential)
            if scheme.lower() == "basic":
                yield base64.b64decode(credential).decode("utf-8", "replace").partition(":")[2]
