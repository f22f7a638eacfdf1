"""The address of the pages."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address


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
