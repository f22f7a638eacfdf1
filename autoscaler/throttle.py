"""Client-side rate limits, so that many HPAs cannot become a load on the API server.

`--kube-api-qps` and `--kube-api-burst` mean what they mean to kube-controller-manager, whose HPA controller talks
through several clients (scales, objects, each metrics API) with a token bucket each. So the requests for one metrics
API never use up those that scaling needs.

As everything that the autoscaler does to a cluster goes through here, this is also where a process that has lost its
lease is kept from writing, however long before it decided to: the last thing before a request is sent. And it is where
requests that fail can be counted.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kube.client import KubeError
from kube.status import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kube.client import KubeClient, Query

__all__ = ["NotLeading", "ThrottledClient", "TokenBucket"]


class NotLeading(KubeError):
    """This process may not write any more: another one may have the lease."""


class TokenBucket:
    """Up to `burst` tokens at once, refilled at `qps` a second.

    Args:
        qps: tokens a second; zero or less means no limit, as in client-go.
        burst: how many tokens the bucket holds.
        clock: the current time in seconds.
    """

    def __init__(self, *, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()

    def reserve(self) -> float:
        """Take one token, on credit if there is none; the seconds to wait before using it."""
        if self._qps <= 0:
            return 0.0
        self._refill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def try_take(self) -> bool:
        """Take one token if there is one."""
        if self._qps <= 0:
            return True
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now


class ThrottledClient:
    """The verbs of a KubeClient, each waiting for a token of this client's own bucket first.

    Args:
        client: the connection.
        bucket: the rate limit.
        may_write: whether this process may write at the moment; if not, whoever tries meets NotLeading.
        on_error: told of each request that fails, with the API group that it went to ("" is the core group) and the
            HTTP status code, or None where there was no answer.
    """

    def __init__(
        self,
        client: KubeClient,
        bucket: TokenBucket,
        *,
        may_write: Callable[[], bool] = lambda: True,
        on_error: Callable[[str, int | None], None] | None = None,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._may_write = may_write
        self._on_error = on_error

    async def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """As KubeClient.get."""
        await self._wait()
        with self._told_of_errors(path):
            return await self._client.get(path, query)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.post."""
        await self._wait_to_write()
        with self._told_of_errors(path):
            return await self._client.post(path, body)

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.put."""
        await self._wait_to_write()
        with self._told_of_errors(path):
            return await self._client.put(path, body)

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.patch, a JSON merge patch."""
        await self._wait_to_write()
        with self._told_of_errors(path):
            return await self._client.patch(path, body)

    async def _wait(self) -> None:
        seconds = self._bucket.reserve()
        if seconds:
            await asyncio.sleep(seconds)

    async def _wait_to_write(self) -> None:
        await self._wait()
        if not self._may_write():
            raise NotLeading("this process does not hold the lease any more")

    @contextmanager
    def _told_of_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (StatusError, KubeError) as error:
            if self._on_error is not None:
                self._on_error(_group(path), error.code if isinstance(error, StatusError) else None)
            raise


def _group(path: str) -> str:
    """The API group in a path: `/apis/GROUP/VERSION/...`, or `/api/v1/...`, which is the core group's."""
    _, prefix, *rest = path.split("/")
    return rest[0] if prefix == "apis" and rest else ""
