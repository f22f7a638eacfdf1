"""Sends HTTP requests to one server, with its credentials: TLS files, secrets in files, and what `auth` says.

Files are checked before each request and reloaded when they have changed, because kubelets and certificate managers
replace them while the process runs. The old content stays in use while the new one is invalid, because files may be
read while they are written.

Some servers and proxies repeat a request's headers in their errors: AWS the header Authorization of a signature that it
cannot read, others the token. Errors are in logs and on pages, so credentials are removed from them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from adapter.upstream.access import Auth, CredentialsError, ServerAccess, UpstreamConfigError
from adapter.upstream.credential_cache import CredentialCache, in_thread
from adapter.upstream.tokens import azure_tokens, google_tokens
from kube.aio.fairness import FairSemaphore, current_namespace
from kube.api.config import client_socket
from kube.process.files import FilesVersion, files_version

_log = logging.getLogger(__name__)

_LIBRARIES: Final = {
    "sigv4": ("botocore", "aws"),
    "google": ("google-auth", "google"),
    "azure": ("azure-identity", "azure"),
}
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_REMOVED: Final = b"..."
_SHORTEST: Final = 6  # removing shorter texts would make errors unreadable
_PUBLIC: Final = frozenset(
    ["accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent", "x-amz-date"]
)
_SIGNATURE: Final = re.compile(r"Signature=([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Scheme:
    """A form of `auth`: a credential that expires, and how it authenticates requests. A middleware of aiohttp."""

    cache: CredentialCache[Any]
    """Keeps the credential."""
    authenticate: Callable[[aiohttp.ClientRequest, Any], Awaitable[None]]
    """Sets the headers with the credential."""
    refusals: frozenset[int] = frozenset({401})
    """The statuses with which servers refuse it."""
    encoded: Callable[[URL], URL] = lambda url: url
    """Returns a URL as the scheme needs it."""

    async def __call__(self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send a request with the credential; once more if the server refuses it and it can be renewed."""
        credential = await self.cache.get()
        await self.authenticate(request, credential)
        response = await send(request)
        if response.status in self.refusals and await self.cache.renew(credential):
            response.release()
            await self.authenticate(request, await self.cache.get())
            response = await send(request)
        return response


class Credentials:
    """The credentials for a server, with the current content of their files.

    Attributes:
        scheme: the form of `auth`, after `load`; None: there is none.
    """

    def __init__(self, access: ServerAccess) -> None:
        self._access = access
        self._secret_file = access.token_file or access.password_file
        self._secret = ""
        self._secret_version: FilesVersion | None = None
        self._tls_files = [path for path in (access.ca_file, access.cert_file, access.key_file) if path is not None]
        self._tls_version = files_version()
        self._uses_tls = "https" in (urlsplit(access.url).scheme, urlsplit(access.proxy_url).scheme)
        self._context: ssl.SSLContext | None = None
        self.scheme: Scheme | None = None

    @property
    def loaded(self) -> bool:
        """The TLS files have been read, or there is no TLS; the library of `auth` has been imported."""
        has_context = self._context is not None or not self._uses_tls
        return has_context and (self._access.auth is None or self.scheme is not None)

    def load(self) -> None:
        """Read the TLS files, and import the library of `auth`, for the first time.

        Raises:
            UpstreamConfigError: one cannot be used.
        """
        if self._access.auth is not None and self.scheme is None:
            try:
                self.scheme = _scheme(self._access.auth, self._access.title)
            except UpstreamConfigError as error:
                raise self._access.error(str(error)) from error
        if self.loaded:
            return
        version = files_version(*self._tls_files)
        self._context = _context(self._access)
        self._tls_version = version
        if self._access.insecure_skip_tls_verify:
            _log.warning(
                "the certificate of %s at %s is not verified: anyone who can redirect the connection sees the"
                " credentials and chooses the values",
                self._access.what,
                urlsplit(self._access.base).netloc.rpartition("@")[2],
            )

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the newest files; None for plain HTTP."""
        if self._context is None or not self._tls_files:
            return self._context
        version = files_version(*self._tls_files)
        if version != self._tls_version:
            self._tls_version = version  # a bad file is tried again when it changes again
            try:
                self._context = _context(self._access)
            except UpstreamConfigError as error:
                _log.warning("a TLS file has changed and cannot be used; the old one stays: %s", error)
        return self._context

    async def close(self) -> None:
        """Cancel what is in progress."""
        if self.scheme is not None:
            await self.scheme.cache.close()

    async def headers(self, *others: tuple[str, str]) -> CIMultiDict[str]:
        """Return the server's headers, the Authorization header of a file or kubeconfig if there is one, and others.

        A later header replaces an earlier one of the same name, whatever the case of the names.

        Raises:
            CredentialsError: the file with the secret cannot be read, or has none.
        """
        headers = CIMultiDict[str]()
        for name, value in (*self._access.headers, *(await self._authorization()).items(), *others):
            headers[name] = value
        return headers

    async def _authorization(self) -> dict[str, str]:
        if self._access.auth is not None:
            return {}
        if self._secret_file is None:
            return await self._access.cluster.authorization() if self._access.cluster is not None else {}
        secret = self._read_secret(self._secret_file)
        if not self._access.username:
            return {"Authorization": f"Bearer {secret}"}
        return {"Authorization": aiohttp.encode_basic_auth(self._access.username, secret)}

    def _read_secret(self, path: Path) -> str:
        kind = "token" if self._access.token_file is not None else "password"
        name = f"the {kind} file for {self._access.what}"
        version = files_version(path)
        if version != self._secret_version or version == (None,):
            try:
                self._secret = path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not ASCII text"
                raise CredentialsError(f"{name} cannot be read: {reason}") from error
            self._secret_version = version
        if not self._secret or not self._secret.isprintable():
            raise CredentialsError(f"{name} holds no {kind}")
        return self._secret


def _scheme(auth: Auth, what: str) -> Scheme:
    """Return the scheme of a form of `auth`, after importing its library, which may take a second.

    Raises:
        UpstreamConfigError: the library is not installed, or a file cannot be used.
    """
    name = next(name for name in auth.__struct_fields__ if getattr(auth, name) is not None)
    try:
        if auth.sigv4 is not None:
            from adapter.upstream.sigv4 import AwsCredentials, encoded, sign

            keys = in_thread(AwsCredentials(auth.sigv4).issue, "AWS", what)
            cache = CredentialCache(keys, what=f"AWS credentials for {what}")
            # AWS refuses expired credentials with 403, too.
            return Scheme(cache, functools.partial(sign, auth.sigv4), frozenset({401, 403}), encoded)
        if auth.google is not None:
            issue = in_thread(google_tokens(), "Google", what)
        elif auth.azure is not None:
            issue = in_thread(azure_tokens(auth.azure), "Azure", what)
        else:
            from adapter.upstream.oauth2 import OAuth2Tokens

            assert auth.oauth2 is not None, "Auth has exactly one form"
            issue = OAuth2Tokens(auth.oauth2, what=what).issue
    except ImportError as error:
        library, extra = _LIBRARIES.get(name, (name, name))
        raise UpstreamConfigError(
            f"{name} for {what} needs {library}: install milliscale[{extra}], or build the image with"
            " LOCK=requirements-clouds.lock"
        ) from error
    return Scheme(CredentialCache(issue, what=f"token for {what}"), _set_headers)


async def _set_headers(request: aiohttp.ClientRequest, headers: tuple[tuple[str, str], ...]) -> None:
    request.headers.update(headers)


def _context(access: ServerAccess) -> ssl.SSLContext:
    try:
        tls = access.cluster.tls if access.cluster else True
        context = ssl.create_default_context(cafile=access.ca_file) if tls is True else tls
    except (OSError, ssl.SSLError) as error:
        raise access.error(f"CA file for {access.what} {access.ca_file}: {_reason(error)}") from error
    if access.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.cert_file is not None:
        try:
            context.load_cert_chain(access.cert_file, access.key_file)
        except (OSError, ssl.SSLError) as error:
            raise access.error(
                f"client certificate for {access.what} {access.cert_file}, {access.key_file}: {_reason(error)}"
            ) from error
    return context


def _reason(error: OSError | ssl.SSLError) -> str:
    return error.strerror or str(error)


def upstream_session(connections: int = 0) -> aiohttp.ClientSession:
    """Open a session with so many connections at most; 0: as many as its clients have slots."""
    connector = aiohttp.TCPConnector(limit=connections, socket_factory=client_socket)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


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
            self._session = upstream_session(self._connections)
        credentials, scheme = self._credentials, self._credentials.scheme
        own_headers, context = await credentials.headers(*headers), credentials.context()
        if form is not None:
            own_headers["Content-Type"] = "application/x-www-form-urlencoded"
        async with self._session.request(
            "GET" if form is None else "POST",
            url if scheme is None else scheme.encoded(url),
            data=None if form is None else urlencode(form).encode(),
            headers=own_headers,
            ssl=context if context is not None else True,
            proxy=self._proxy,
            allow_redirects=False,
            timeout=_TIMEOUT,
            middlewares=() if scheme is None else (scheme,),
        ) as response:
            yield response


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
