"""Whether a request comes from inside the pod, as one through `kubectl port-forward` does."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

_OWN: Final = frozenset({IPv4Address("127.0.0.1"), IPv6Address("::1")})
"""The kernel gives one of these to a client that connects to a loopback address without an address of its own."""


def is_local(request: web.BaseRequest) -> bool:
    """Return True if a client inside the pod, or on this host, connected to a loopback address.

    Both ends of the connection count, since the proxy of a service mesh passes on connections of others from inside
    the pod: to the pod's address, or from 127.0.0.6 (Istio). The Host header must name this host, too: a site may give
    its own name the address 127.0.0.1 for a browser on the other end of a forwarded port (DNS rebinding).
    """
    connected_to = request.transport.get_extra_info("sockname") if request.transport is not None else None
    own_end = _address(connected_to[0]) if connected_to else None
    return (
        _address(request.remote) in _OWN
        and own_end is not None
        and own_end.is_loopback
        and _is_loopback_host(request.headers.get(hdrs.HOST, ""))
    )


def _address(text: str | None) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(text or "")
    except ValueError:  # no address
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def _is_loopback_host(host_header: str) -> bool:
    try:
        name = urlsplit(f"//{host_header}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False
