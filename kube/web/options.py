"""The address of the pages, and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Open pages, each of which has an event stream."""

    streams: int = 100
    """Limit of all users together. Each takes a connection, and updates take CPU from the process's main work."""
    streams_per_user: int = 20
    """Limit of one user, so that no user takes the place of all others; browsers keep streams of hidden tabs."""
    stream_seconds: float = 600.0
    """Time after which the browser connects again, and is authenticated again."""
    heartbeat_seconds: float = 15.0
    """Time between events, so that both sides notice a broken connection, and no proxy closes an idle one: many do
    after a minute."""
    events_per_second: float = 20.0
    """Rate of all streams together: each event is rendered by a process that has other work. Streams that wait skip
    states, as they send the present one."""


DEFAULTS = PageSettings()


def external_url(text: str) -> str:
    """Return a URL that pages link to, without a slash at its end.

    Raises:
        ValueError: it is none; the message says what to write.
    """
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"{text!r} must be a URL such as https://metrics.example.com/path")
    return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class UIAddress:
    """`--ui-address`: HOST:PORT, where HOST is an IP address or `localhost`, and port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> UIAddress:
        """Parse HOST:PORT or [IPV6]:PORT; an empty HOST is all addresses.

        Raises:
            ValueError: the text is not an address; the message says what to write.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port[:9]) > 65535:
            raise ValueError(f"{text!r} must be HOST:PORT, such as 127.0.0.1:8081")
        host = host.removeprefix("[").removesuffix("]")
        if host == "localhost":
            host = "127.0.0.1"
        try:
            return cls(str(ip_address(host)) if host else "::", int(port))
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} must be an IP address or localhost") from None

    @property
    def is_loopback(self) -> bool:
        """True if only processes of this host, or pod, can connect."""
        return ip_address(self.host).is_loopback
