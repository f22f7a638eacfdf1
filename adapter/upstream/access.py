"""The address of an upstream server, and how the adapter authenticates there: the forms of `auth` in the rules file.

Their names follow http_config and remote_write of Prometheus' configuration, in camel case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from kube.api.config import RestConfig

AZURE_SCOPE: Final = "https://prometheus.monitor.azure.com/.default"
"""The scope of Azure Monitor workspaces in the public cloud."""
GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/monitoring.read"
"""The scope that queries of Google Cloud Managed Service for Prometheus need."""

_WORD: Final = re.compile(r"[a-z0-9-]{1,64}")  # a part of what is signed
_RESERVED: Final = frozenset({"grant_type", "client_id", "client_secret", "scope"})


class Parameters(tuple[tuple[str, str], ...]):
    """Parameters of a query or a form, in the order of the file. A name may be repeated."""

    __slots__ = ()


def parameters(entries: Mapping[str, object]) -> Parameters:
    """Parse a mapping of names to a text or a list of texts."""
    out = []
    for name, value in entries.items():
        values = value if isinstance(value, list) else [value]
        if not name or not all(isinstance(one, str) for one in values):
            raise ValueError(f"{name}: expected text, or a list of texts")
        out += [(name, str(one)) for one in values]
    return Parameters(out)


class _Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One form of authentication."""


class SigV4Auth(_Form, frozen=True, kw_only=True):
    """Signature Version 4, for Amazon Managed Service for Prometheus."""

    region: str
    """The region of the workspace."""
    role_arn: str = ""
    """A role to assume with the credentials of the pod; "" for none."""
    external_id: str = ""
    """Sent when the role is assumed; "" for none."""
    service: str = "aps"
    """The name of the service to sign for."""

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("region", "service"):
            if not _WORD.fullmatch(getattr(self, name)):
                raise ValueError(f"{name}: expected a name such as eu-west-1 or aps, got {getattr(self, name)!r}")
        if self.role_arn and not (self.role_arn.startswith("arn:") and self.role_arn.isprintable()):
            raise ValueError("roleArn: expected the ARN of a role, such as arn:aws:iam::123456789012:role/NAME")
        if self.external_id and not self.role_arn:
            raise ValueError("externalId: is sent when roleArn is assumed, and there is no roleArn")


class GoogleAuth(_Form, frozen=True, kw_only=True):
    """Google's application default credentials: the pod's identity, or the file in GOOGLE_APPLICATION_CREDENTIALS."""


class AzureAuth(_Form, frozen=True, kw_only=True):
    """Microsoft Entra ID: workload identity, managed identity, or a service principal in the environment."""

    client_id: str = ""
    """The client id of the identity; "": AZURE_CLIENT_ID, or else the node's own identity."""
    scope: str = AZURE_SCOPE
    """What the token is for."""


class OAuth2Auth(_Form, frozen=True, kw_only=True):
    """OAuth 2.0 client credentials (RFC 6749, section 4.4)."""

    token_url: str
    """Where tokens are requested."""
    client_id: Annotated[str, msgspec.Meta(min_length=1)]
    """The client id of the adapter."""
    client_secret_file: Path
    """The client's secret, reloaded when the file changes."""
    scopes: tuple[str, ...] = ()
    """What the token is for."""
    endpoint_params: Parameters = Parameters()
    """Further parameters of the token request."""
    ca_file: Path | None = None
    """CAs that verify the certificate of the token URL; None for the system's."""
    proxy_url: str = ""
    """A proxy for token requests; "" for none."""

    def __post_init__(self) -> None:
        """Check the fields."""
        parts = url_parts(self.token_url)
        if parts is None or "@" in parts.netloc or parts.fragment:
            raise ValueError("tokenUrl: expected a URL, such as https://login.example/oauth2/token, without a password")
        if any(not scope or any(char.isspace() for char in scope) for scope in self.scopes):
            raise ValueError("scopes: a scope has no spaces; write a list")
        for name, _ in self.endpoint_params:
            if name in _RESERVED:
                raise ValueError(f"endpointParams: {name} is set by the adapter")
        check_proxy(self.proxy_url)

    def __repr__(self) -> str:
        """Leave out `endpoint_params` and `proxy_url`, which may contain passwords."""
        return f"OAuth2Auth(token_url={self.token_url!r}, client_id={self.client_id!r})"


class Auth(_Form, frozen=True, kw_only=True):
    """`auth` of a server: exactly one of the fields is set."""

    sigv4: SigV4Auth | None = None
    google: GoogleAuth | None = None
    azure: AzureAuth | None = None
    oauth2: OAuth2Auth | None = None

    def __post_init__(self) -> None:
        """Check that there is one."""
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"got {' and '.join(given)}" if given else "got none; an empty form is written as google: {}"
            raise ValueError(f"expected exactly one of sigv4, google, azure and oauth2, {found}")


def url_parts(text: str, schemes: Collection[str] = ("http", "https")) -> SplitResult | None:
    """Return the parts of a URL with one of these schemes; None if the text is none."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable and not any(char.isspace() for char in text) else None


def check_proxy(text: str) -> None:
    """Check the URL of a proxy; "" is none.

    Raises:
        ValueError: it is none. The message does not contain it, because it may have a password.
    """
    parts = url_parts(text)
    if text and (parts is None or parts.path not in ("", "/") or parts.query or parts.fragment):
        raise ValueError("proxyUrl: expected the URL of a proxy, such as http://proxy.example:3128")


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

    Raises:
        UpstreamConfigError: two options exclude each other, or one is invalid.
    """

    what: ClassVar[str] = "the server"
    one: ClassVar[str] = "a server"
    error: ClassVar[type[UpstreamConfigError]] = UpstreamConfigError
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")

    url: str
    """Its base address; a path of it comes before the path of each request."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with every request, in order, such as ("X-Scope-OrgID", "team")."""
    token_file: Path | None = None
    """A bearer token, reloaded when the file changes."""
    username: str = ""
    """The user of basic authentication, whose password is in `password_file`; "" for none."""
    password_file: Path | None = None
    """The password, reloaded when the file changes."""
    ca_file: Path | None = None
    """CAs that verify the server's certificate; None for the system's."""
    cert_file: Path | None = None
    """A client certificate, with its key in `key_file`."""
    key_file: Path | None = None
    """The client certificate's key."""
    insecure_skip_tls_verify: bool = False
    """Accept any certificate of the server."""
    cluster: RestConfig | None = None
    """A kubeconfig, whose CA and credentials are used if no others are set."""
    auth: Auth | None = None
    """Another form of authentication; None for none."""
    proxy_url: str = field(default="", repr=False)
    """A proxy for all requests; it may contain a user and a password. "" for none: the environment's HTTPS_PROXY is not
    used."""

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
