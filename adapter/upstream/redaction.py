"""Removes the credentials of a request from the error that a server sends for it.

Some servers and proxies repeat headers in their errors: AWS the header Authorization of a signature that it cannot
read, others the token. Errors are in logs and on pages.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

_REMOVED: Final = b"..."
_SHORTEST: Final = 6  # removing shorter texts would make errors unreadable
_PUBLIC: Final = frozenset(
    ["accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent", "x-amz-date"]
)
_SIGNATURE: Final = re.compile(r"Signature=([0-9a-f]+)")


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
