"""Which requests are repeated, and when: the rules of client-go's rest.Request, which kube-controller-manager uses.

    429, or 500 and more, with a Retry-After in seconds   any request, after these seconds
    the connection was reset or closed                    a GET, after a second

A request is repeated ten times at most, and only if the wait ends before its deadline; otherwise the last failure is
its result. Waits are up to a fifth longer than the server asks for, so that many clients do not come back together.

Libraries for retries (stamina, tenacity) are not used: they compute the waits, and here the server gives them.

Upstream: rest.withRetry.IsNextRetry, rest.Request.request
"""

from __future__ import annotations

import asyncio
import errno
import random as _random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp


class Backoff:
    """A growing delay.

    Args:
        initial: the first delay, in seconds.
        maximum: no delay is longer than this, in seconds, jitter included.
        factor: how much longer each delay is than the one before.
        jitter: each delay is made up to this share longer, at random.
        random: numbers in [0, 1); a parameter so that tests are exact.
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
        """The delay to wait now, in seconds; the following one is longer."""
        delay = min(self._delay, self._maximum)
        self._delay = min(self._delay * self._factor, self._maximum)
        return min(delay * (1 + self._jitter * self._random()), self._maximum)

    def reset(self) -> None:
        """Start over: the last try went well."""
        self._delay = self._initial


_MAX_RETRIES: Final = 10
_RECONNECT_SECONDS: Final = 1.0
_JITTER: Final = 0.2
_TOO_MANY_REQUESTS: Final = 429
ERROR: Final = "<error>"
"""The code of a failure without an HTTP status, as in client-go's metrics."""

BeforeRetry = Callable[[], Awaitable[None]]
"""Awaited before each repetition; what it raises ends the request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response, read to its end."""

    status: int
    headers: Mapping[str, str]
    """Names are case-insensitive."""
    content: bytes


@dataclass(slots=True, kw_only=True)
class Retries:
    """Repeats requests, and counts the repetitions.

    Attributes:
        counts: {(HTTP method, status code or ERROR): how many repetitions such a failure was followed by}.
        clock: seconds; only differences matter.
        sleep: waits for so many seconds.
        random: numbers in [0, 1).
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = _random.random

    async def run(
        self,
        method: str,
        send: Callable[[], Awaitable[Answer]],
        *,
        deadline: float,
        before_retry: BeforeRetry | None = None,
    ) -> Answer:
        """The last response, whatever its status.

        Args:
            method: the HTTP method.
            send: sends the request once.
            deadline: on `clock`; no repetition begins later.
            before_retry: awaited before each repetition.

        Raises:
            aiohttp.ClientError, OSError: what the last `send` raised; and whatever `before_retry` raises.
        """
        left = _MAX_RETRIES
        while True:
            lost: Exception | None = None
            try:
                answer = await send()
                seconds, code = _retry_after(answer), str(answer.status)
            except (aiohttp.ClientError, OSError) as error:
                if not _connection_lost(error):
                    raise
                lost = error
                seconds, code = (_RECONNECT_SECONDS if method == "GET" else None), ERROR
            if seconds is not None:
                seconds *= 1 + _JITTER * self.random()
            if seconds is None or not left or self.clock() + seconds >= deadline:
                if lost is not None:
                    raise lost
                return answer
            left -= 1
            self.counts[method, code] += 1
            await self.sleep(seconds)
            if before_retry is not None:
                await before_retry()


def _connection_lost(error: Exception) -> bool:
    """Whether a connection that was there has ended before the response did.

    Upstream: net.IsConnectionReset, net.IsProbableEOF
    """
    if isinstance(error, OSError) and error.errno is not None:  # aiohttp makes a ClientOSError of any of them
        return error.errno in (errno.ECONNRESET, errno.EPIPE)
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionResetError)


def _retry_after(answer: Answer) -> float | None:
    """Seconds after which the server wants to be asked again; None: the answer is final.

    Upstream: rest.checkWait
    """
    if answer.status != _TOO_MANY_REQUESTS and answer.status < 500:
        return None
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
