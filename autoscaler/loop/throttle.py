"""Client-side rate limits, so that many HPAs cannot become a load on the API server.

`--kube-api-qps` and `--kube-api-burst` are a budget: one for what goes to scales, statuses and events, and one for each
metrics API, whose requests so never use up those that scaling needs. Where a budget is short, requests wait in the
order of their urgency: to write a scale, then to read one, then what says something new, then what only has newer
values. So a thousand statuses that wait to be written do not hold up the one scale that matters, neither here nor among
the workers, which do not wait with them (`autoscaler.loop.workers`). The last kind may be given up while it waits, as a
newer one is to follow.

As everything that the autoscaler does to a cluster goes through here, this is also where a process that has lost its
lease is kept from writing, however long before it decided to: the last thing before a request is sent, and before each
repetition of it. And it is where requests that fail can be counted.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from typing import Any

from kube.client import KubeClient, KubeError, Query
from kube.status import StatusError


class Urgency(IntEnum):
    """Who goes first, where there are not enough tokens for all."""

    SCALE_WRITE = 0
    SCALE_READ = 1
    OTHER = 2
    ROUTINE = 3
    """What something newer will replace before long."""


class NotLeading(KubeError):
    """This process may not write any more: another one may have the lease."""


class Superseded(KubeError):
    """The request was given up while it waited for its turn; nothing was sent."""

    def __init__(self, place: int) -> None:
        """`place` is where it stood in the order of those that are equally urgent."""
        super().__init__("something newer is to follow")
        self.place = place


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
        self._waiting: list[tuple[Urgency, int, int, asyncio.Future[None]]] = []
        self._number = 0
        # How many of those who wait have given up since.
        self._given_up = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many wait for a token."""
        return len(self._waiting) - self._given_up

    @property
    def free(self) -> bool:
        """Whether who takes a token now need not wait."""
        if self._qps <= 0:
            return True
        self._refill()
        return not self._waiting and self._tokens >= 1

    async def take(
        self,
        urgency: Urgency = Urgency.OTHER,
        *,
        unless: asyncio.Future[None] | None = None,
        place: int | None = None,
    ) -> None:
        """Take one token, once there is one and nobody more urgent, or as urgent and earlier, wants it.

        Args:
            urgency: of what the token is for.
            unless: when this is done, give up.
            place: the place of one who gave up, to go on from there; None: behind all others.

        Raises:
            Superseded: `unless` was done before that.
        """
        if not self._waiting and self.try_take():
            return
        token: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        place = self._number if place is None else place
        heapq.heappush(self._waiting, (urgency, place, self._number, token))
        self._hand_out()

        def give_up(_: asyncio.Future[None]) -> None:
            if not token.done():
                token.set_exception(Superseded(place))
                self._forget_one()

        if unless is not None:
            unless.add_done_callback(give_up)
        try:
            await token
        except asyncio.CancelledError:
            if token.cancelled():
                self._forget_one()
            elif token.exception() is None:  # it was handed out, and is for the next one now
                self._tokens += 1
                self._hand_out()
            raise
        finally:
            if unless is not None:
                unless.remove_done_callback(give_up)

    def try_take(self) -> bool:
        """Take one token if there is one."""
        if self._qps <= 0:
            return True
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _hand_out(self) -> None:
        """Give tokens to those who wait, and come back for those for whom there is none yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refill()
        while self._waiting and self._tokens >= 1:
            token = heapq.heappop(self._waiting)[-1]
            if token.done():
                self._given_up -= 1
            else:
                token.set_result(None)
                self._tokens -= 1
        if self._waiting:
            seconds = (1 - self._tokens) / self._qps
            self._timer = asyncio.get_running_loop().call_later(seconds, self._hand_out)

    def _forget_one(self) -> None:
        """One of those who wait has given up. They are not kept until their turn, which may never come."""
        self._given_up += 1
        if 2 * self._given_up > len(self._waiting):
            self._waiting = [each for each in self._waiting if not each[-1].done()]
            heapq.heapify(self._waiting)
            self._given_up = 0

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now


class ThrottledClient:
    """The verbs of a KubeClient, each waiting for a token of the bucket first.

    Args:
        client: the connection.
        bucket: the rate limit, which may be that of other clients, too.
        reads: how urgent it is to read.
        writes: how urgent it is to write.
        may_write: whether this process may write at the moment; if not, whoever tries meets NotLeading.
        on_error: told of each request that fails, with the API group that it went to ("" is the core group) and the
            HTTP status code, or None where there was no answer.
    """

    def __init__(
        self,
        client: KubeClient,
        bucket: TokenBucket,
        *,
        reads: Urgency = Urgency.OTHER,
        writes: Urgency = Urgency.OTHER,
        may_write: Callable[[], bool] = lambda: True,
        on_error: Callable[[str, int | None], None] | None = None,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._reads = reads
        self._writes = writes
        self._may_write = may_write
        self._on_error = on_error

    @property
    def free(self) -> bool:
        """Whether a request that is made now need not wait."""
        return self._bucket.free

    async def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """As KubeClient.get."""
        take = partial(self._bucket.take, self._reads)
        await take()
        with self._told_of_errors(path):
            return await self._client.get(path, query, before_retry=take)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.post."""
        await self._wait_to_write()
        with self._told_of_errors(path):
            return await self._client.post(path, body, before_retry=self._wait_to_write)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        urgency: Urgency | None = None,
        unless: asyncio.Future[None] | None = None,
        place: int | None = None,
    ) -> dict[str, Any]:
        """As KubeClient.put.

        Args:
            path: the object's.
            body: the object.
            urgency: of this request; None: that of any write.
            unless: when this is done, the request is given up, if it still waits for its token.
            place: as of TokenBucket.take.

        Raises:
            Superseded: it was given up.
        """
        await self._wait_to_write(urgency, unless, place)
        with self._told_of_errors(path):
            return await self._client.put(path, body, before_retry=partial(self._wait_to_write, urgency, unless, place))

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As KubeClient.patch, a JSON merge patch."""
        await self._wait_to_write()
        with self._told_of_errors(path):
            return await self._client.patch(path, body, before_retry=self._wait_to_write)

    async def _wait_to_write(
        self, urgency: Urgency | None = None, unless: asyncio.Future[None] | None = None, place: int | None = None
    ) -> None:
        await self._bucket.take(self._writes if urgency is None else urgency, unless=unless, place=place)
        if not self._may_write():
            raise NotLeading("this process does not hold the lease any more")

    @contextmanager
    def _told_of_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (NotLeading, Superseded):  # of a repetition that was not sent
            raise
        except (StatusError, KubeError) as error:
            if self._on_error is not None:
                self._on_error(_group(path), error.code if isinstance(error, StatusError) else None)
            raise


def _group(path: str) -> str:
    """The API group in a path: `/apis/GROUP/VERSION/...`, or `/api/v1/...`, which is the core group's."""
    _, prefix, *rest = path.split("/")
    return rest[0] if prefix == "apis" and rest else ""
