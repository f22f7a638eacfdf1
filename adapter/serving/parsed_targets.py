"""Targets of requests, read once: HPA controllers ask for the same every 15 seconds.

What is kept is bounded in bytes, since clients choose how long a target is; what came up least recently goes first.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from cachetools import LRUCache

from adapter.security.request_info import RequestInfo, Target
from kube.durations import DurationError, parse_duration
from kube.status import StatusError, bad_request

# The worst there can be are very many parameters. Of usual targets, which take half of that, these are some 11,000.
_MAX_BYTES = 48 * 1024 * 1024
_TARGET_BYTES = 1_000
_BYTES_OF_CHARACTER = 30


class ParsedTarget(msgspec.Struct, frozen=True):
    """What a request line asks for.

    Attributes:
        target: its path and query.
        info: what authorization decides on.
        open_to_all: everybody may read it.
        never_refused: it is answered however many requests there are: a busy process must not look like a dead one,
            neither to probes, whose paths are open to all, nor to the API server, which asks for discovery and takes
            the whole API for unavailable without it.
        timeout: the seconds that the client allows, infinite where it does not say; None where what it says is none.
        size: bytes that this takes, more or less.
    """

    target: Target
    info: RequestInfo
    open_to_all: bool
    never_refused: bool
    timeout: float | None
    size: int

    def seconds(self) -> float:
        """See `timeout`. Raises StatusError 400 where that is none."""
        return _wanted_seconds(self.target) if self.timeout is None else self.timeout


class ParsedTargets:
    """Reads the targets of requests."""

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        """`is_open` tells whether everybody may read a path."""
        self._is_open = is_open
        self._known: LRUCache[tuple[str, str], ParsedTarget] = LRUCache(_MAX_BYTES, getsizeof=lambda one: one.size)

    def parse(self, method: str, raw: str) -> ParsedTarget:
        """Read a request line. Raises StatusError 400, as Target.parse."""
        found = self._known.get((method, raw))
        if found is None:
            found = self._known[method, raw] = self._read(method, raw)
        return found

    def _read(self, method: str, raw: str) -> ParsedTarget:
        target = Target.parse(raw)
        info = RequestInfo.of(method, target)
        is_open = self._is_open(target.path)
        is_discovery = target.segments[:1] == ("apis",) and not info.is_resource
        try:
            timeout: float | None = _wanted_seconds(target)
        except StatusError:
            timeout = None
        size = _TARGET_BYTES + _BYTES_OF_CHARACTER * len(raw)
        return ParsedTarget(target, info, is_open, is_open or is_discovery, timeout, size)


def _wanted_seconds(target: Target) -> float:
    text = target.query.get("timeout")
    if not text:
        return float("inf")
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise bad_request(f"invalid timeout specified in the request URL - time: {error.what}") from error
    return seconds if seconds > 0 else float("inf")
