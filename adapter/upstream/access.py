"""The address of an upstream server, and how the adapter authenticates there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from multidict import CIMultiDict
from yarl import URL

from adapter.upstream.auth import Auth, check_proxy, url_parts
from kube.api.config import RestConfig

Headers = CIMultiDict[str]


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


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request that is about to be sent.

    Attributes:
        method: GET or POST.
        url: with its query, as it is sent.
        headers: those that are set by the adapter.
        body: the bytes of the body; None for none.
    """

    method: str
    url: URL
    headers: Headers = field(repr=False)
    body: bytes | None = None


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
        auth: another form of authentication; None for none.
        proxy_url: a proxy for all requests; it may contain a user and a password. "" for none: the environment's
            HTTPS_PROXY is not used.

    Raises:
        UpstreamConfigError: two options exclude each other, or one is invalid.
    """

    what: ClassVar[str] = "the server"
    one: ClassVar[str] = "a server"
    error: ClassVar[type[UpstreamConfigError]] = UpstreamConfigError
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_tls_verify: bool = False
    cluster: RestConfig | None = None
    auth: Auth | None = None
    proxy_url: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Check the options."""
        parts = url_parts(self.url, self.schemes)
        if parts is None:
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
        try:
            check_proxy(self.proxy_url)
        except ValueError as error:
            raise self.error(str(error)) from error
        if self.auth is not None:
            self._check_auth("@" in parts.netloc)

    def _check_auth(self, url_has_password: bool) -> None:
        others = {
            "a token file": self.token_file is not None,
            "a name and password": bool(self.username),
            "a password in the URL": url_has_password,
            "the header Authorization": any(name.lower() == "authorization" for name, _ in self.headers),
        }
        for other, given in others.items():
            if given:
                raise self.error(f"give {self.what} auth or {other}, not both")

    @property
    def title(self) -> str:
        """What messages about credentials call the server."""
        return self.what

    @property
    def base(self) -> str:
        """The URL without a slash at its end."""
        return self.url.rstrip("/")
