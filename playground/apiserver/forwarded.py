"""The headers of requests to aggregated API servers, exactly as kube-apiserver 1.36.2 sends them.

Names, values, order and case are those in tests/data/wire.jsonl. Go sorts headers by name after Host and User-Agent,
and adds `Accept-Encoding: gzip` at the end if the client has none.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Final

from multidict import CIMultiDict

from playground.apiserver.identity import User

# Headers of the connection, and headers that only the front proxy may set.
_DROPPED: Final = frozenset(
    {
        *("authorization", "connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding"),
        *("upgrade", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-uri"),
    }
)
_FIRST: Final = ("Host", "User-Agent")
# Allowed in a header's name without escaping.
_IN_NAMES: Final = frozenset((string.ascii_letters + string.digits + "!#$&'*+-.^_`|~").encode())


def identity_headers(user: User) -> list[tuple[str, str]]:
    """Return the headers of the user. Upstream: k8s.io/client-go/transport.SetAuthProxyHeaders."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += [("X-Remote-Group", group) for group in user.groups]
    headers += [(_extra_header(key), value) for key, values in user.extra.items() for value in values]
    return headers


def own_headers(user: User, *, host: str) -> CIMultiDict[str]:
    """Return the headers of availability checks."""
    return _in_order([("Host", host), ("User-Agent", "Go-http-client/1.1"), *identity_headers(user)])


def forwarded_headers(
    given: Iterable[tuple[str, str]], user: User, *, host: str, path: str, client: str, audit_id: str
) -> CIMultiDict[str]:
    """Return the headers of a forwarded request.

    Args:
        given: the client's headers.
        user: the client's user.
        host: name and port of the aggregated server.
        path: the percent-encoded path.
        client: the client's address.
        audit_id: the audit ID.
    """
    kept = [
        (_canonical(name), value)
        for name, value in given
        if name.lower() not in _DROPPED and not name.lower().startswith("x-remote-")
    ]
    before = [value for name, value in kept if name == "X-Forwarded-For"]
    headers = [
        *(header for header in kept if header[0] not in ("X-Forwarded-For", "Audit-Id")),
        *(("Host", host), ("Audit-Id", audit_id)),
        ("X-Forwarded-For", ", ".join([*before, client])),
        *(("X-Forwarded-Host", host), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Uri", path)),
        *identity_headers(user),
    ]
    return _in_order(headers)


def _in_order(headers: Iterable[tuple[str, str]]) -> CIMultiDict[str]:
    ordered = CIMultiDict(sorted(headers, key=lambda header: (header[0] not in _FIRST, header[0])))
    if "Accept-Encoding" not in ordered:
        ordered["Accept-Encoding"] = "gzip"
    return ordered


def _extra_header(key: str) -> str:
    """Return the header name of an extra. Upstream: k8s.io/client-go/transport.headerKeyEscape."""
    escaped = "".join(chr(byte) if byte in _IN_NAMES else f"%{byte:02X}" for byte in key.encode())
    return _canonical(f"X-Remote-Extra-{escaped}")


def _canonical(name: str) -> str:
    """Return the canonical name. Upstream: net/textproto.CanonicalMIMEHeaderKey."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))
