"""List the series of rules that have a seriesQuery, in objects.

Rules with the same seriesQuery, server and namespace share a list. A few lists are in flight at a time, however many
objects there are, and one of each namespace, so that no namespace with many or slow lists delays those of others. New
rules come before repeated lists. After a failure a list is retried soon, with backoff.
"""

from __future__ import annotations

import asyncio
import random as _random
import time
from collections.abc import Awaitable, Callable, Collection

import msgspec

from adapter.catalog.catalog import SeriesSource
from adapter.prometheus import Destination, PrometheusError, Series
from adapter.rule_objects.fair_queue import FairQueue
from adapter.rules import Rule
from adapter.rules.objects import ObjectName
from kube.controller.workqueue import WorkQueue

_CONCURRENCY = 8
_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0
# Lists are repeated after the interval or up to a tenth less, so that those of the start do not stay together.
_JITTER = 0.1

Found = tuple[Series, ...] | PrometheusError


class Listing(msgspec.Struct, frozen=True):
    """A list of series: where, of which selector, and how old they may be, in seconds."""

    selector: str
    destination: Destination
    max_age: float

    @property
    def share(self) -> str:
        """What it shares the lists in flight as: its namespace; a rule for all namespaces has its own share."""
        tenant = self.destination.tenant
        return tenant.namespace if tenant is not None else self.selector


class Listings:
    """Lists series periodically, for the users of each list."""

    def __init__(
        self,
        prometheus: SeriesSource,
        on_listed: Callable[[Listing, Found, Collection[ObjectName]], Awaitable[bool]],
        *,
        relist_interval: float,
        max_age: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """List nothing before `run`.

        Args:
            prometheus: lists the series.
            on_listed: called after each list with the series, or the error, and the users; returns False if these need
                another list soon. It must not raise.
            relist_interval: seconds.
            max_age: seconds, for rules without a maxAge.
            clock: returns seconds since the epoch.
            monotonic: returns seconds; only differences matter.
            random: returns numbers in [0, 1).
        """
        self._prometheus = prometheus
        self._on_listed = on_listed
        self._relist_interval = relist_interval
        self._max_age = max_age
        self._clock = clock
        self._random = random
        self._queue: FairQueue[Listing] = FairQueue()
        self._repeated: WorkQueue[Listing] = WorkQueue(clock=monotonic)
        self._users: dict[Listing, set[ObjectName]] = {}
        self._of_user: dict[ObjectName, frozenset[Listing]] = {}
        self._failures: dict[Listing, int] = {}

    def listing(self, rule: Rule) -> Listing:
        """Return the list that has the series of a rule."""
        return Listing(rule.series_query, rule.destination, rule.max_age or self._max_age)

    def use(self, user: ObjectName, listings: frozenset[Listing], *, now: frozenset[Listing]) -> None:
        """Set the lists that a user needs; list those of `now` at once, and those that nobody needed before."""
        for listing in self._of_user.pop(user, frozenset()) - listings:
            self._users[listing].discard(user)
            if not self._users[listing]:
                del self._users[listing]
                self._failures.pop(listing, None)
        if listings:
            self._of_user[user] = listings
        for listing in listings:
            if listing in now or listing not in self._users:
                self._queue.add(listing.share, listing, urgent=True)
            self._users.setdefault(listing, set()).add(user)

    async def run(self) -> None:
        """List until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._add_repeated())
            for _ in range(_CONCURRENCY):
                tasks.create_task(self._list_queued())

    async def _add_repeated(self) -> None:
        while (listing := await self._repeated.get()) is not None:
            self._repeated.done(listing)
            self._queue.add(listing.share, listing, urgent=False)

    async def _list_queued(self) -> None:
        while True:
            share, listing = await self._queue.get()
            try:
                await self._list(listing)
            finally:
                self._queue.done(share)

    async def _list(self, listing: Listing) -> None:
        if listing not in self._users:
            return
        end = self._clock()
        found: Found
        try:
            found = await self._prometheus.series(
                listing.selector, start=end - listing.max_age, end=end, destination=listing.destination
            )
        except PrometheusError as error:
            found = error
        well = await self._on_listed(listing, found, list(self._users.get(listing, ())))
        if listing not in self._users:  # nobody needs it any more
            self._failures.pop(listing, None)
            return
        delay = self._relist_interval
        if isinstance(found, PrometheusError) or not well:
            failures = self._failures[listing] = self._failures.get(listing, 0) + 1
            last = min(_LAST_RETRY_SECONDS, max(self._relist_interval, _FIRST_RETRY_SECONDS))
            delay = min(_FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10), last)
        else:
            self._failures.pop(listing, None)
        self._repeated.move(listing, delay * (1 - _JITTER * self._random()))
