"""Errors for requests that cannot be read, and the limits on a request's head."""

from __future__ import annotations

from typing import Final

from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from kube.api.status import StatusError, method_not_allowed

# A request line holds a label selector, which may be long. The limits of a line and of a header differ, because an
# error of aiohttp names only the limit that was exceeded.
MAX_LINE: Final = 64 * 1024
MAX_FIELD: Final = 32 * 1024
MAX_HEADERS: Final = 512
MAX_HEAD: Final = 128 * 1024
"""Bytes of a whole head."""


def parser_error(code: int, exc: BaseException | None) -> StatusError:
    """Return the error for a request that aiohttp could not parse. Its parser knows only the usual methods."""
    match exc:
        case BadHttpMethod():
            return method_not_allowed("the server does not allow this method on the requested resource")
        case LineTooLong(args=(_, limit, *_)) if limit == MAX_LINE:
            return StatusError(414, "RequestURITooLong", f"the request's URL is longer than {MAX_LINE} bytes")
        case LineTooLong():
            return _too_large(f"a header of the request is longer than {MAX_FIELD} bytes")
        case _ if exc is not None and "Too many headers" in str(exc):
            return _too_large(f"the request has more than {MAX_HEADERS} headers")
    return StatusError(code, "BadRequest", "the request cannot be read: it is not HTTP")


def head_too_large() -> StatusError:
    """Return the error for a head of more than MAX_HEAD bytes."""
    return _too_large(f"the head of the request is longer than {MAX_HEAD} bytes")


def _too_large(message: str) -> StatusError:
    return StatusError(431, "RequestHeaderFieldsTooLarge", message)
