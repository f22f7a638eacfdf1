"""When the series of rules are listed, and listed again.

Rules of the file and of objects with the same seriesQuery, server and namespace share a list. A list is made as soon as
somebody needs it, and repeated after --metrics-relist-interval; after a failure it is retried soon, with backoff. Each
list is by itself, so one that fails or hangs delays no other. Of the lists for rules of namespaces a few are in flight
at a time, and one of each namespace: a namespace with many or slow lists does not delay those of others. Their new
rules come before repeated lists.

A rule without a seriesQuery has a list without a request: what it needs of the cluster is looked up again.
"""

from __future__ import annotations

import asyncio
import random as _random
import time
from collections.abc import Awaitable, Callable, Container, Hashable, Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from adapter.fair_queue import FairQueue
from adapter.pace import Pace
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Series
from adapter.rules import AnyRule, Rule
from kube.controller.workqueue import WorkQueue

_OF_NAMESPACES_AT_ONCE = 8
_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0
# Lists are repeated after the interval or up to a tenth less, so that those of the start do not stay together.
_JITTER = 0.1

U = TypeVar("U", bound=Hashable)
Found = tuple[Series, ...] | PrometheusError


class SeriesSource(Protocol):
    """Lists series; see PrometheusServers.series."""

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """Return the series that a selector finds between two times, in seconds since the epoch."""


class Listing(msgspec.Struct, frozen=True):
    """A list of series: where, of which selector, and how old they may be, in seconds.

    Without a selector nothing is requested, and `owner` says whose rule it is for.
    """

    selector: str
    destination: Destination
    max_age: float
    owner: str = ""


OnListed = Callable[[U, Listing, Found], Awaitable[bool]]
"""Called after each list with the user, the list, and the series or the error; it must not raise.

Returns False if the list is needed again soon.
"""


class Listings:
    """Lists series periodically, for the users of each list."""

    def __init__(
        self,
        prometheus: SeriesSource,
        *,
        max_age: float,
        relist_interval: float = 600.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """List nothing before `run` or `list_now`.

        Args:
            prometheus: lists the series.
            max_age: seconds; series without a sample in this period are ignored, unless the rule has its own maxAge.
            relist_interval: seconds.
            clock: returns seconds since the epoch.
            monotonic: returns seconds; only differences matter.
            random: returns numbers in [0, 1).
        """
        self._prometheus = prometheus
        self._max_age = max_age
        self._relist_interval = relist_interval
        self._random = random
        self.clock = clock
        self._of_namespaces: FairQueue[Listing] = FairQueue()
        self._due: WorkQueue[Listing] = WorkQueue(clock=monotonic)
        self._users: dict[Listing, dict[Any, OnListed[Any]]] = {}
        self._of_user: dict[Hashable, tuple[Listing, ...]] = {}
        self._failures: dict[Listing, int] = {}

    def max_age(self, rule: AnyRule) -> float:
        """Return how old the series of a rule may be, in seconds."""
        return (rule.max_age if isinstance(rule, Rule) else None) or self._max_age

    def listing(self, rule: AnyRule, *, owner: str = "") -> Listing:
        """Return the list that a rule needs; `owner` has a common one for its rules without a seriesQuery."""
        if isinstance(rule, Rule):
            return Listing(rule.series_query, rule.destination, self.max_age(rule))
        return Listing("", rule.destination if not owner else DEFAULT_DESTINATION, 0.0, owner or rule.key)

    def use(
        self,
        user: U,
        listings: Iterable[Listing],
        on_listed: OnListed[U],
        *,
        now: Container[Listing] = (),
    ) -> None:
        """Set the lists that a user needs; list those of `now` at once, and those that nobody needed before."""
        wanted = dict.fromkeys(listings)
        for listing in set(self._of_user.pop(user, ())).difference(wanted):
            del self._users[listing][user]
            if not self._users[listing]:
                del self._users[listing]
                self._failures.pop(listing, None)
        if wanted:
            self._of_user[user] = tuple(wanted)
        for listing in wanted:
            if listing in now or listing not in self._users:
                self._add(listing, urgent=True)
            self._users.setdefault(listing, {})[user] = on_listed

    async def run(self) -> None:
        """List until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_OF_NAMESPACES_AT_ONCE):
                tasks.create_task(self._of_namespaces.serve(self._list))
            while (listing := await self._due.get()) is not None:
                if listing.destination.tenant is not None:
                    self._due.done(listing)
                    self._add(listing, urgent=False)
                else:
                    tasks.create_task(self._list_due(listing), name="list series")

    async def list_now(self, user: Hashable) -> None:
        """List all that a user needs once, now."""
        async with asyncio.TaskGroup() as tasks:
            for listing in self._of_user.get(user, ()):
                tasks.create_task(self._list(listing))

    def _add(self, listing: Listing, *, urgent: bool) -> None:
        tenant = listing.destination.tenant
        if tenant is None:
            self._due.add(listing)
        else:
            self._of_namespaces.add(tenant.namespace, listing, urgent=urgent)

    async def _list_due(self, listing: Listing) -> None:
        try:
            await self._list(listing)
        finally:
            self._due.done(listing)

    async def _list(self, listing: Listing) -> None:
        if listing not in self._users:  # nobody needs it any more
            return
        found: Found = ()
        if listing.selector:
            end = self.clock()
            try:
                found = await self._prometheus.series(
                    listing.selector, start=end - listing.max_age, end=end, destination=listing.destination
                )
            except PrometheusError as error:
                found = error
        pace, well = Pace(), not isinstance(found, PrometheusError)
        for user, on_listed in list(self._users.get(listing, {}).items()):
            well = await on_listed(user, listing, found) and well
            await pace.pause()
        if listing not in self._users:
            return
        if well:
            self._failures.pop(listing, None)
            delay = self._relist_interval
        else:
            failures = self._failures[listing] = self._failures.get(listing, 0) + 1
            last = min(_LAST_RETRY_SECONDS, max(self._relist_interval, _FIRST_RETRY_SECONDS))
            delay = min(_FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10), last)
        self._due.add_after(listing, delay * (1 - _JITTER * self._random()))
