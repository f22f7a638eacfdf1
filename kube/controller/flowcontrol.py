"""Client-side rate limits, so that a controller cannot overload the API server.

All writes of a controller pass here, so this is also where a process that has lost its Lease stops writing: the check
is the last step before a request or a retry is sent.

Upstream: flowcontrol.NewTokenBucketRateLimiter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from kube.aio.fairness import FairSemaphore, FairSlots, current_namespace
from kube.api.client import KubeClient, KubeError, Query
from kube.api.status import StatusError

T = TypeVar("T")

_MIN_SECONDS = 1e-6  # of a timer: sums of floats leave a bucket a trifle short of a token


class NotLeaderError(KubeError):
    """A write was not sent, because this process no longer holds the Lease."""


class TokenBucket:
    """Up to `burst` tokens at once, refilled at `qps` a second.

    Args:
        qps: tokens a second; zero or less means no limit, as in client-go.
        burst: the size of the bucket.
        clock: the current time in seconds; only differences matter.
    """

    __slots__ = ("_burst", "_clock", "_filled_at", "_qps", "_timer", "_tokens", "_waiting")

    def __init__(self, *, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()
        self._waiting: FairSlots[asyncio.Future[None]] | None = None  # made when the first caller waits
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of callers that wait for a token."""
        return len(self._waiting or ())

    def resize(self, *, qps: float, burst: int) -> None:
        """Change the limits; the tokens in the bucket stay."""
        self._refill()
        self._qps, self._burst = qps, burst
        self._hand_out()

    async def take(self, *, first: bool = False, last: bool = False) -> None:
        """Wait for a token: callers with `first` before the others, `last` after them, and namespaces round robin."""
        if not self._waiting and self.try_take():
            return
        if self._waiting is None:
            self._waiting = FairSlots(1)
        token: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        namespace, waiting = current_namespace(), self._waiting
        waiting.add(namespace, token, level=0 if first else 2 if last else 1)
        self._hand_out()
        try:
            await token
        except asyncio.CancelledError:
            if token.cancelled():
                waiting.discard(namespace, token)
            else:  # the token was handed out at the same time: pass it on
                self._tokens += 1
                self._hand_out()
            raise

    def try_take(self) -> bool:
        """Take a token if there is one."""
        if self._qps <= 0:
            return True
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _hand_out(self) -> None:
        """Give tokens to waiting callers, and set a timer for the next token."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self.try_take():
            following = self._waiting.next()
            assert following is not None
            namespace, token = following
            self._waiting.release(namespace)  # round robin by namespace
            if token.done():  # its caller was cancelled but has not run since
                self._tokens += 1
            else:
                token.set_result(None)
        if self._waiting:
            seconds = max((1 - self._tokens) / self._qps, _MIN_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._hand_out)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now


class ThrottledClient:
    """The verbs of a KubeClient; each request and each retry first waits for a token of the bucket.

    Args:
        client: the connection.
        bucket: the rate limit, which other clients may share.
        slots: limits the requests in flight; None: no limit.
        writes_first: let writes go before all other requests of the bucket.
        last: let all other requests of the bucket go first.
        get_seconds: limit of a GET with all its retries; None: that of the connection.
        may_write: returns True while this process holds the Lease; otherwise writes raise NotLeaderError.
        on_error: called for each request that fails, with the API group ("" is the core group) and the HTTP status
            code, which is None if there was no response.
    """

    def __init__(
        self,
        client: KubeClient,
        bucket: TokenBucket,
        *,
        slots: FairSemaphore | None = None,
        writes_first: bool = False,
        last: bool = False,
        get_seconds: float | None = None,
        may_write: Callable[[], bool] = lambda: True,
        on_error: Callable[[str, int | None], None] = lambda _group, _code: None,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._slots = slots
        self._writes_first = writes_first
        self._get_seconds = get_seconds
        self._wait_to_read = partial(bucket.take, last=last)
        self._may_write = may_write
        self._on_error = on_error

    async def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """As KubeClient.get."""
        get = partial(self._client.get, path, query, timeout=self._get_seconds)
        return await self._send(path, self._wait_to_read, get)

    async def get_bytes(self, path: str, query: Query | None = None, *, held: AsyncExitStack | None = None) -> bytes:
        """As KubeClient.get_bytes; `held` also holds the slot of the request."""
        get = partial(self._client.get_bytes, path, query, timeout=self._get_seconds, held=held)
        return await self._send(path, self._wait_to_read, get, held)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.post."""
        return await self._send(path, self._wait_to_write, partial(self._client.post, path, body))

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.put."""
        return await self._send(path, self._wait_to_write, partial(self._client.put, path, body))

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.patch, a JSON merge patch."""
        return await self._send(path, self._wait_to_write, partial(self._client.patch, path, body))

    async def _wait_to_write(self) -> None:
        await self._bucket.take(first=self._writes_first)
        if not self._may_write():
            raise NotLeaderError("this process does not hold the lease any more")

    async def _send(
        self,
        path: str,
        wait: Callable[[], Awaitable[None]],
        send: Callable[..., Awaitable[T]],
        held: AsyncExitStack | None = None,
    ) -> T:
        async with AsyncExitStack() as own:
            if self._slots is not None:
                await (held or own).enter_async_context(self._slots.slot(current_namespace()))
            await wait()
            try:
                return await send(before_retry=wait)
            except NotLeaderError:  # the retry was not sent
                raise
            except (StatusError, KubeError) as error:
                self._on_error(_group(path), error.code if isinstance(error, StatusError) else None)
                raise


def _group(path: str) -> str:
    """The API group of a path: `/apis/GROUP/VERSION/...`, or `/api/v1/...`, the core group."""
    _, prefix, *rest = path.split("/")
    return rest[0] if prefix == "apis" and rest else ""
