"""HTTP to upstream servers: Prometheus, and another metrics adapter.

Each has a base address, headers, a bearer token or a name and password, a CA and a client certificate. Files are
checked before each request and reloaded when they have changed, because kubelets and certificate managers replace them
while the process runs. The old content stays in use while the new one is invalid, because files may be read while they
are written.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from kube.config import RestConfig
from kube.fairness import FairSemaphore, current_namespace
from kube.files import FilesVersion

_log = logging.getLogger(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)


class UpstreamConfigError(ValueError):
    """The options cannot be used; the message says which."""


class CredentialsError(Exception):
    """A file with a credential cannot be used now; the message says which kind."""


def header(name: str, value: str) -> tuple[str, str]:
    """Return a valid header.

    Raises:
        UpstreamConfigError: it is invalid, or would be read as two headers.
    """
    if not name or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise UpstreamConfigError(f"{name!r} is not the name of a header")
    if not value.isprintable():
        raise UpstreamConfigError(f"the value of {name} cannot be sent in a header")
    return name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """The address of a server, and the credentials for it.

    Attributes:
        url: its base address; a path of it comes before the path of each request.
        headers: sent with every request, in order, such as ("X-Scope-OrgID", "team").
        token_file: a bearer token, reloaded when the file changes.
        username: the user of basic authentication, whose password is in `password_file`; "" for none.
        password_file: the password, reloaded when the file changes.
        ca_file: CAs that verify the server's certificate; None for the system's.
        cert_file: a client certificate, with its key in `key_file`.
        key_file: the client certificate's key.
        insecure_skip_tls_verify: accept any certificate of the server.
        cluster: a kubeconfig, whose CA and credentials are used if no others are set.

    Raises:
        UpstreamConfigError: two options exclude each other, or one is invalid.
    """

    what: ClassVar[str] = "the server"
    one: ClassVar[str] = "a server"
    error: ClassVar[type[UpstreamConfigError]] = UpstreamConfigError
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_tls_verify: bool = False
    cluster: RestConfig | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in self.schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or any(char.isspace() for char in self.url):
            example = f"{self.schemes[0]}://host:9090"
            raise self.error(f"not a URL of {self.one}: {self.url!r}; write it as {example}")
        if parts.query or parts.fragment:
            raise self.error(f"the URL of {self.what} is a base address: it has no ? and no #")
        if (self.cert_file is None) != (self.key_file is None):
            raise self.error(f"a client certificate for {self.what} needs both its certificate and its key")
        if bool(self.username) != (self.password_file is not None):
            raise self.error(f"basic authentication at {self.what} needs both a name and a file with the password")
        if self.username and self.token_file is not None:
            raise self.error(f"give {self.what} a token or a name and password, not both")
        if self.insecure_skip_tls_verify and self.ca_file is not None:
            raise self.error(f"give {self.what} a CA file or skip the verification of its certificate, not both")
        if ":" in self.username:
            raise self.error("a name for basic authentication cannot have a colon")

    @property
    def base(self) -> str:
        """The URL without a slash at its end."""
        return self.url.rstrip("/")


class Credentials:
    """The credentials for a server, with the current content of their files."""

    def __init__(self, access: ServerAccess) -> None:
        self._access = access
        self._secret_file = access.token_file or access.password_file
        self._secret = ""
        self._secret_version: FilesVersion | None = None
        self._tls_files = [path for path in (access.ca_file, access.cert_file, access.key_file) if path is not None]
        self._tls_version = FilesVersion.of()
        self._context: ssl.SSLContext | None = None
        self._logged = ""

    @property
    def loaded(self) -> bool:
        """The TLS files have been read, or there is no TLS."""
        return self._context is not None or urlsplit(self._access.url).scheme != "https"

    def load(self) -> None:
        """Read the TLS files for the first time.

        Raises:
            UpstreamConfigError: one cannot be used.
        """
        if self.loaded:
            return
        version = FilesVersion.of(*self._tls_files)
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
        version = FilesVersion.of(*self._tls_files)
        if version != self._tls_version:
            self._tls_version = version  # a bad file is tried again when it changes again
            try:
                self._context = _context(self._access)
            except UpstreamConfigError as error:
                if str(error) != self._logged:
                    self._logged = str(error)
                    _log.warning("a TLS file has changed and cannot be used; the old one stays: %s", error)
        return self._context

    async def headers(self, *others: tuple[str, str]) -> CIMultiDict[str]:
        """Return the server's headers, the Authorization header if there is one, and others.

        A later header replaces an earlier one of the same name, whatever the case of the names.

        Raises:
            CredentialsError: the file with the secret cannot be read, or has none.
        """
        headers: CIMultiDict[str] = CIMultiDict()
        for name, value in (*self._access.headers, *(await self._authorization()).items(), *others):
            headers[name] = value
        return headers

    async def _authorization(self) -> dict[str, str]:
        if self._secret_file is None:
            return await self._access.cluster.authorization() if self._access.cluster is not None else {}
        secret = self._read_secret(self._secret_file)
        if not self._access.username:
            return {"Authorization": f"Bearer {secret}"}
        pair = f"{self._access.username}:{secret}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    def _read_secret(self, path: Path) -> str:
        kind = "token" if self._access.token_file is not None else "password"
        name = f"the {kind} file for {self._access.what}"
        version = FilesVersion.of(path)
        if version != self._secret_version or version.stats == (None,):
            try:
                self._secret = path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not ASCII text"
                raise CredentialsError(f"{name} cannot be read: {reason}") from error
            self._secret_version = version
        if not self._secret or not self._secret.isprintable():
            raise CredentialsError(f"{name} holds no {kind}")
        return self._secret


class UpstreamClient:
    """Sends requests to one server, until `close`."""

    def __init__(
        self,
        access: ServerAccess,
        *,
        connections: int,
        max_waiting: int,
        reserved: int = 0,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            access: the server.
            connections: how many callers hold a `slot` at a time.
            max_waiting: how many callers of each namespace may wait for one.
            reserved: further connections, for requests without a slot.
            session: an HTTP session to share; None: the client opens its own.
        """
        self._connections = connections + reserved
        self._slots = FairSemaphore(connections, max_waiting=max_waiting)
        self._credentials = Credentials(access)
        self._loading = asyncio.Lock()
        self._session = session
        self._owns_session = session is None

    async def close(self) -> None:
        """Close the connections of this client's own."""
        if self._session is not None and self._owns_session:
            await self._session.close()
            self._session = None

    async def load(self) -> None:
        """Read the TLS files; the first request does, too.

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
        """GET a URL, or POST a form to it.

        Redirects are not followed: they could leak the credentials to another server.

        Raises:
            CredentialsError, UpstreamConfigError: a file cannot be used now.
            aiohttp.ClientError, OSError: there is no response.
        """
        await self.load()
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        context = self._credentials.context()
        async with self._session.request(
            "GET" if form is None else "POST",
            url,
            data=form,
            headers=await self._credentials.headers(*headers),
            ssl=context if context is not None else True,
            allow_redirects=False,
            timeout=_TIMEOUT,
        ) as response:
            yield response


async def read_up_to(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Read a body to its end, or until more than `size` bytes have arrived."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > size:
            break
    return bytes(body)


def _context(access: ServerAccess) -> ssl.SSLContext:
    try:
        context = access.cluster.tls if access.cluster else ssl.create_default_context(cafile=access.ca_file)
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
