"""How to reach Prometheus, and the credentials that can change under us."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from adapter.prometheus.errors import PrometheusConfigError, PrometheusUnavailable

__all__ = ["PrometheusOptions", "TokenFile", "tls_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """Where Prometheus is and how it wants to be asked.

    Attributes:
        url: its base address; a path is kept before /api/v1.
        verb: GET or POST, for queries; with POST the query is in the body. Series are asked for with GET.
        headers: sent with every request, in order, such as ("X-Scope-OrgID", "team").
        token_file: a bearer token, read again when the file changes.
        ca_file: certificates that Prometheus' own must be signed by; None for the system's.
        cert_file: a client certificate, with its key in `key_file`.
        key_file: the client certificate's key.
        query_timeout: the most seconds that an instant query may take.
        series_timeout: the most seconds that a series request may take.
        connections: how many queries may be under way at once.

    Raises:
        PrometheusConfigError: two of them do not go together, or one is nonsense.
    """

    url: str
    verb: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    query_timeout: float = 30.0
    series_timeout: float = 60.0
    connections: int = 64

    def __post_init__(self) -> None:
        """Refuse what can never work."""
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or any(char.isspace() for char in self.url):
            raise PrometheusConfigError(f"not a URL of a Prometheus: {self.url!r}; write it as http://host:9090")
        if parts.query or parts.fragment:
            raise PrometheusConfigError("the URL of Prometheus is a base address: it has no ? and no #")
        if self.verb not in ("GET", "POST"):
            raise PrometheusConfigError(
                f'unsupported Prometheus HTTP verb "{self.verb}"; supported verbs: "GET" and "POST"'
            )
        if (self.cert_file is None) != (self.key_file is None):
            raise PrometheusConfigError("a client certificate for Prometheus needs both its certificate and its key")

    def endpoint(self, path: str) -> str:
        """The address of a part of the API, such as "query"."""
        return f"{self.base}/api/v1/{path}"

    @property
    def base(self) -> str:
        """The address without a slash at its end."""
        return self.url.rstrip("/")


class TokenFile:
    """A bearer token in a file that a kubelet or an agent replaces from time to time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def token(self) -> str:
        """What the file holds now.

        Raises:
            PrometheusUnavailable: it cannot be read, or is empty.
        """
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._token = self._path.read_text(encoding="ascii").strip()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not ASCII text"
            raise PrometheusUnavailable(f"the token file for Prometheus cannot be read: {reason}") from error
        if not self._token or not self._token.isprintable():
            raise PrometheusUnavailable("the token file for Prometheus holds no token")
        return self._token


def tls_context(options: PrometheusOptions) -> ssl.SSLContext | None:
    """What verifies Prometheus and shows who we are; None for plain HTTP. Reads files.

    Raises:
        PrometheusConfigError: a file cannot be used.
    """
    if urlsplit(options.url).scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise PrometheusConfigError(f"CA file for Prometheus {options.ca_file}: {_reason(error)}") from error
    if options.cert_file is not None:
        try:
            context.load_cert_chain(options.cert_file, options.key_file)
        except (OSError, ssl.SSLError) as error:
            raise PrometheusConfigError(
                f"client certificate for Prometheus {options.cert_file}, {options.key_file}: {_reason(error)}"
            ) from error
    return context


def _reason(error: OSError | ssl.SSLError) -> str:
    return error.strerror or str(error)
