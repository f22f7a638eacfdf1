"""Retries: of requests by client-go's rules for rest.Request, otherwise with exponential backoff.

Retried requests:

    429, or 500 and more, with a Retry-After in seconds   any method, after that time
    the connection was reset or closed                    GET, after a second

A request is retried at most ten times, and only if the wait ends before its deadline; otherwise its last failure is the
result. Jitter makes waits up to a fifth longer, so that many clients do not retry at the same time.

Libraries for retries (stamina, tenacity) do not fit: they compute the waits, but here the server sets them.

Upstream: rest.withRetry.IsNextRetry, rest.Request.request
"""

from __future__ import annotations

import asyncio
import errno
import random as _random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

_MAX_RETRIES: Final = 10
_RECONNECT_SECONDS: Final = 1.0
_JITTER: Final = 0.2
_TOO_MANY_REQUESTS: Final = 429
ERROR: Final = "<error>"
"""The code of a failure without an HTTP status, as in client-go's metrics."""

BeforeRetry = Callable[[], Awaitable[None]]
"""Awaited before each retry; its exception ends the request."""


class Backoff:
    """Exponential backoff with jitter. Upstream: wait.Backoff.

    Args:
        initial: the first delay, in seconds.
        maximum: the longest delay, in seconds, jitter included.
        factor: the ratio of a delay to the previous one.
        jitter: the maximum share by which a delay is randomly increased.
        random: returns numbers in [0, 1).
    """

    def __init__(
        self,
        initial: float,
        maximum: float,
        *,
        factor: float = 2.0,
        jitter: float = 0.2,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._initial = initial
        self._maximum = maximum
        self._factor = factor
        self._jitter = jitter
        self._random = random
        self._delay = initial

    def next(self) -> float:
        """Return the next delay, in seconds."""
        # Less than the maximum, so that the longest delays differ, too: after an outage all have come to them.
        longest = self._maximum / (1 + self._jitter)
        delay = min(self._delay, longest)
        self._delay = min(delay * self._factor, longest)
        return delay * (1 + self._jitter * self._random())

    def reset(self) -> None:
        """Start over after a success."""
        self._delay = self._initial


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Names are case-insensitive."""
    content: bytes


@dataclass(slots=True, kw_only=True)
class Retries:
    """Retries requests, and counts the retries."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of retries by (HTTP method, status code or ERROR of the failure)."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic, in seconds."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for so many seconds."""
    random: Callable[[], float] = _random.random
    """Returns numbers in [0, 1)."""

    async def run(
        self,
        method: str,
        send: Callable[[], Awaitable[Response]],
        *,
        timeout: float,
        before_retry: BeforeRetry | None = None,
    ) -> Response:
        """Return the last response, whatever its status.

        Args:
            method: the HTTP method.
            send: sends the request once.
            timeout: seconds; no retry begins later.
            before_retry: awaited before each retry.

        Raises:
            aiohttp.ClientError, OSError: of the last `send`.
            Exception: of `before_retry`.
        """
        deadline = self.clock() + timeout
        left = _MAX_RETRIES
        while True:
            lost: Exception | None = None
            try:
                response = await send()
                seconds, code = _retry_after(response), str(response.status)
            except (aiohttp.ClientError, OSError) as error:
                if not _is_connection_lost(error):
                    raise
                lost = error
                seconds, code = (_RECONNECT_SECONDS if method == "GET" else None), ERROR
            if seconds is not None:
                seconds *= 1 + _JITTER * self.random()
            if seconds is None or not left or self.clock() + seconds >= deadline:
                if lost is not None:
                    raise lost
                return response
            left -= 1
            self.counts[method, code] += 1
            await self.sleep(seconds)
            if before_retry is not None:
                await before_retry()


def _is_connection_lost(error: Exception) -> bool:
    """Return whether an open connection ended before the response did.

    Upstream: net.IsConnectionReset, net.IsProbableEOF
    """
    if isinstance(error, OSError) and error.errno is not None:  # aiohttp raises ClientOSError for all of them
        return error.errno in (errno.ECONNRESET, errno.EPIPE)
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionResetError)


def _retry_after(response: Response) -> float | None:
    """Return the seconds until the retry that the server requests; None: the response is final.

    Upstream: rest.checkWait
    """
    if response.status != _TOO_MANY_REQUESTS and response.status < 500:
        return None
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


class RetryMetrics(Collector):
    """`rest_client_request_retries_total` of a process: client-go's name.

    Args:
        retries: (host, retries) of each client; those of the same host are added up.
    """

    def __init__(self, retries: Iterable[tuple[str, Retries]]) -> None:
        self._retries = tuple(retries)

    def collect(self) -> Iterable[Metric]:
        """Return the counters."""
        family = CounterMetricFamily(
            "rest_client_request_retries",
            "Number of request retries, partitioned by status code, verb, and host.",
            labels=["code", "verb", "host"],
        )
        totals: dict[tuple[str, str, str], int] = {}
        for host, retries in self._retries:
            for (verb, code), count in list(retries.counts.items()):
                labels = (code, verb, host)
                totals[labels] = totals.get(labels, 0) + count
        for labels, total in sorted(totals.items()):
            family.add_metric(labels, total)
        return [family]
