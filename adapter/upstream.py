"""HTTP to the servers that have our answers: how to reach one, what to show it, and files that change under us.

Prometheus servers and another metrics adapter are reached alike: a base address, headers, a bearer token or a name
and password, an authority, a client certificate. Whatever is a file is looked at before each request and read again
when it has changed, because kubelets and certificate managers replace such files while the process runs. A file that
turned bad keeps what was good: a certificate is half-written for a moment now and then.
"""

from __future__ import annotations

import base64
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from multidict import CIMultiDict

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class UpstreamConfigError(ValueError):
    """The options cannot be used; the message says which."""


class CredentialsError(Exception):
    """A file with a credential cannot be used now; the message says which kind."""


def header(name: str, value: str) -> tuple[str, str]:
    """A header that can be sent.

    Raises:
        UpstreamConfigError: it could not, or could be taken for two.
    """
    if not name or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise UpstreamConfigError(f"{name!r} is not the name of a header")
    if not value.isprintable():
        raise UpstreamConfigError(f"the value of {name} cannot be sent in a header")
    return name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """Where a server is and what it is shown.

    Attributes:
        url: its base address; a path is kept before what is asked.
        headers: sent with every request, in order, such as ("X-Scope-OrgID", "team").
        token_file: a bearer token, read again when the file changes.
        username: the name of basic authentication, with its password in `password_file`; "" for none.
        password_file: the password, read again when the file changes.
        ca_file: certificates that the server's own must be signed by; None for the system's.
        cert_file: a client certificate, with its key in `key_file`.
        key_file: the client certificate's key.
        insecure_skip_tls_verify: take any certificate of the server; who it is, nobody then knows.

    Raises:
        UpstreamConfigError: two of them do not go together, or one is nonsense.
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

    def __post_init__(self) -> None:
        """Refuse what can never work."""
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
        """The address without a slash at its end."""
        return self.url.rstrip("/")


class Credentials:
    """What a server is shown, as its files have it now.

    Raises:
        UpstreamConfigError: (by `load`) a file cannot be used at the start.
    """

    def __init__(self, access: ServerAccess) -> None:
        self._access = access
        secret = access.token_file or access.password_file
        kind = "token" if access.token_file is not None else "password"
        self._secret = _SecretFile(secret, f"the {kind} file for {access.what}", kind) if secret is not None else None
        self._tls_files = [path for path in (access.ca_file, access.cert_file, access.key_file) if path is not None]
        self._stamp: _Stamp = ()
        self._context: ssl.SSLContext | None = None
        self._said = ""

    @property
    def loaded(self) -> bool:
        """The TLS files have been read, or there is no TLS."""
        return self._context is not None or urlsplit(self._access.url).scheme != "https"

    def load(self) -> None:
        """Read the TLS files for the first time.

        Raises:
            UpstreamConfigError: one cannot be used.
        """
        if not self.loaded:
            stamp = self._stamp_now()
            self._context = _context(self._access)
            self._stamp = stamp
            if self._access.insecure_skip_tls_verify:
                _log.warning(
                    "the certificate of %s at %s is not verified: whoever can redirect the connection sees the"
                    " credentials and chooses the values",
                    self._access.what,
                    _address(self._access.base),
                )

    def context(self) -> ssl.SSLContext | None:
        """What verifies the server and shows who we are, of the newest files; None for plain HTTP."""
        if self._context is None or not self._tls_files:
            return self._context
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp  # a bad file is tried again when it changes again
            try:
                self._context = _context(self._access)
            except UpstreamConfigError as error:
                if str(error) != self._said:
                    self._said = str(error)
                    _log.warning("a TLS file has changed and cannot be used; the old one stays: %s", error)
        return self._context

    def headers(self, *others: tuple[str, str]) -> CIMultiDict[str]:
        """What to send: the server's headers, the Authorization header if there is one, and others.

        A later one takes the place of an earlier one of the same name, however the names are written.

        Raises:
            CredentialsError: the file with the secret cannot be read, or has none.
        """
        headers: CIMultiDict[str] = CIMultiDict()
        for name, value in (*self._access.headers, *self._authorization(), *others):
            headers[name] = value
        return headers

    def _authorization(self) -> tuple[tuple[str, str], ...]:
        if self._secret is None:
            return ()
        secret = self._secret.read()
        if not self._access.username:
            return (("Authorization", f"Bearer {secret}"),)
        pair = f"{self._access.username}:{secret}".encode()
        return (("Authorization", f"Basic {base64.b64encode(pair).decode()}"),)

    def _stamp_now(self) -> _Stamp:
        return tuple(_file_stamp(path) for path in self._tls_files)


class _SecretFile:
    """One line of text in a file that a kubelet or an agent replaces from time to time."""

    def __init__(self, path: Path, name: str, kind: str) -> None:
        self._path = path
        self._name = name
        self._kind = kind
        self._seen: tuple[int, int, int] | None = None
        self._secret = ""

    def read(self) -> str:
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._secret = self._path.read_text(encoding="ascii").strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not ASCII text"
            raise CredentialsError(f"{self._name} cannot be read: {reason}") from error
        if not self._secret or not self._secret.isprintable():
            raise CredentialsError(f"{self._name} holds no {self._kind}")
        return self._secret


def _file_stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _context(access: ServerAccess) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
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


def _address(url: str) -> str:
    """A URL's host and port, without a password that may be before it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _reason(error: OSError | ssl.SSLError) -> str:
    return error.strerror or str(error)
