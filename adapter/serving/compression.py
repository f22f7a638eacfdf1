"""gzip, for long bodies to clients that take it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable

COMPRESS_FROM = 128 * 1024
"""Below so many bytes a body is not worth compressing; the number is Kubernetes'."""

_LEVEL = 1  # Kubernetes'


def compressed(body: bytes) -> bytes:
    """A body as gzip. For use in a thread: zlib releases the GIL, but a MiB takes 10 ms."""
    return gzip.compress(body, _LEVEL, mtime=0)


def takes_gzip(accept_encoding: Iterable[str]) -> bool:
    """Whether a client lists gzip among the codings that it reads, and not with a quality of zero."""
    for clause in ",".join(accept_encoding).split(","):
        coding, *parameters = (part.strip().lower() for part in clause.split(";"))
        if coding in ("gzip", "x-gzip"):
            return not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", parameter) for parameter in parameters)
    return False
