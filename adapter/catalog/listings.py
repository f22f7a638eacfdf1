"""When the series of rules are listed, and listed again.

A list is made as soon as a rule needs it, and repeated after --metrics-relist-interval; while it fails, or a problem of
one of its rules may end soon, it is retried with backoff. The lists of other adapters (`metrics.forward`) have the same
times. Rules of objects with the same seriesQuery, server and namespace share a list, and so do those of
the rules file. Each list is by itself, so one that fails or hangs delays no other. Of the lists for objects a few are
in flight at a time, and one of each namespace: a namespace with many or slow lists does not delay those of others.
Their new rules come before repeated lists.

A rule without a seriesQuery has a list without a request: what it needs of the cluster is looked up again.
"""

from __future__ import annotations

import asyncio
import random as _random
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from adapter.catalog.rule_states import Reason, RuleState, after_list, problem_of
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusError, Series
from adapter.rules import AnyRule, Rule
from adapter.settings import DEFAULTS
from kube.aio.tasks import Pace
from kube.api.mapping import ResourceLookup
from kube.api.retries import Backoff
from kube.controller.workqueue import WorkQueue, run_workers

_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0  # docs/backends.md
# Lists are repeated after the interval or up to a tenth less, so that those of the start do not stay together.
_JITTER = 0.1
_FILE = "the rules file"

U = TypeVar("U", bound=Hashable)
U_contra = TypeVar("U_contra", bound=Hashable, contravariant=True)


class SeriesSource(Protocol):
    """Lists series; see PrometheusServers.series."""

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """Return the series that a selector finds between two times, in seconds since the epoch."""


class Listing(msgspec.Struct, frozen=True):
    """A list of series: where, of which selector, and how old they may be, in seconds.

    `owner` is the rules file, the key of an object's rule that has no selector, or "" for all other rules of objects.
    Without a selector nothing is requested.
    """

    selector: str
    destination: Destination
    max_age: float
    owner: str

    @property
    def share(self) -> str:
        """Whose share of the lists of objects in flight it is: its namespace's, else its own."""
        return self.destination.tenant.namespace or f"*/{self.owner or self.selector}"


class RuleStates(Protocol[U_contra]):
    """Holds the states of the rules of users; lists update them.

    `limited` is True for rules of objects.
    """

    limited: bool

    def rule_state(self, user: U_contra, rule: AnyRule) -> RuleState | None:
        """Return the state of a rule; None: the user no longer has it."""

    def set_rule_state(self, user: U_contra, state: RuleState) -> None:
        """Set the state of a rule after a list."""

    async def publish(self, user: U_contra) -> None:
        """Called after a list, once the states of all of a user's rules with this list are set."""


class _Use(msgspec.Struct, frozen=True):
    states: RuleStates[Any]
    rules: tuple[AnyRule, ...]


def seconds_to_relist(interval: float, *, random: Callable[[], float] = _random.random) -> float:
    """Return when to list again after a success."""
    return interval * (1 - _JITTER * random())


def retries_of_lists(interval: float, *, random: Callable[[], float] = _random.random) -> Backoff:
    """Return the times between failed lists, which are never longer than the interval."""
    longest = min(_LAST_RETRY_SECONDS, max(interval, _FIRST_RETRY_SECONDS))
    return Backoff(_FIRST_RETRY_SECONDS, longest, random=random)


class Listings:
    """Lists series periodically, for the rules of users: versions of the rules file, and objects."""

    def __init__(
        self,
        prometheus: SeriesSource,
        mapper: ResourceLookup,
        *,
        max_age: float,
        relist_interval: float = 600.0,
        of_objects_at_once: int = DEFAULTS.rule_objects.lists,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """List nothing before `run` or `list_now`.

        Args:
            prometheus: lists the series.
            mapper: knows the cluster's resources.
            max_age: seconds; series without a sample in this period are ignored, unless the rule has its own maxAge.
            relist_interval: seconds.
            of_objects_at_once: the lists for objects in flight.
            clock: returns seconds since the epoch.
            monotonic: returns seconds; only differences matter.
            random: returns numbers in [0, 1).
        """
        self._prometheus = prometheus
        self._mapper = mapper
        self._max_age = max_age
        self._relist_interval = relist_interval
        self._random = random
        self.clock = clock
        self._of_file: WorkQueue[Listing] = WorkQueue(clock=monotonic)
        self._of_objects: WorkQueue[Listing] = WorkQueue(
            namespace=lambda listing: listing.share, limit=lambda: 0, spare=of_objects_at_once, clock=monotonic
        )
        # Those that are made at once, until the series are there.
        self._urgent: set[Listing] = set()
        self._uses: dict[Listing, dict[Any, _Use]] = {}
        self._of_user: dict[Hashable, tuple[Listing, ...]] = {}
        self._retries: dict[Listing, Backoff] = {}  # of those that failed

    def max_age(self, rule: AnyRule) -> float:
        """Return how old the series of a rule may be, in seconds."""
        return (rule.max_age if isinstance(rule, Rule) else None) or self._max_age

    def listing(self, rule: AnyRule, *, limited: bool) -> Listing:
        """Return the list that a rule needs; `limited`: it is a rule of an object."""
        if isinstance(rule, Rule):
            return Listing(rule.series_query, rule.destination, self.max_age(rule), "" if limited else _FILE)
        return Listing("", rule.destination, 0.0, rule.key) if limited else Listing("", DEFAULT_DESTINATION, 0.0, _FILE)

    def use(self, user: U, states: RuleStates[U], of_rules: Iterable[RuleState], *, now: bool = True) -> None:
        """Set the rules of a user. Series that no user needed before are listed at once.

        Args:
            user: the owner of the rules.
            states: holds their states; called after each list.
            of_rules: the states now; none: the user needs no lists any more.
            now: list at once also for rules that have no list yet, although other users have it.
        """
        rules, lacking = dict[Listing, list[AnyRule]](), set[Listing]()
        for state in of_rules:
            if isinstance(state.rule, Rule) or state.problem is not None or not states.limited:
                listing = self.listing(state.rule, limited=states.limited)
                rules.setdefault(listing, []).append(state.rule)
                if now and state.problem is not None and state.problem.reason is Reason.PENDING:
                    lacking.add(listing)
        for listing in set(self._of_user.pop(user, ())).difference(rules):
            del self._uses[listing][user]
            if not self._uses[listing]:
                del self._uses[listing]
                self._retries.pop(listing, None)
        if rules:
            self._of_user[user] = tuple(rules)
        for listing in rules:
            if listing in lacking or listing not in self._uses:
                self._list_at_once(listing)
            self._uses.setdefault(listing, {})[user] = _Use(states, tuple(rules[listing]))

    def list_again(self, user: Hashable) -> None:
        """List all that a user needs at once."""
        for listing in self._of_user.get(user, ()):
            self._list_at_once(listing)

    async def run(self) -> None:
        """List until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for queue in (self._of_file, self._of_objects):
                tasks.create_task(run_workers(queue, self._list), name="list series")

    async def list_now(self, user: Hashable) -> None:
        """List all that a user needs once, now, without `run`."""
        async with asyncio.TaskGroup() as tasks:
            for listing in self._of_user.get(user, ()):
                tasks.create_task(self._list(listing))

    def _list_at_once(self, listing: Listing) -> None:
        if listing not in self._urgent:
            self._urgent.add(listing)
            self._queue_of(listing).add_urgent(listing)

    def _queue_of(self, listing: Listing) -> WorkQueue[Listing]:
        return self._of_file if listing.owner == _FILE else self._of_objects

    async def _list(self, listing: Listing) -> None:
        self._urgent.add(listing)
        try:
            found = await self._found(listing)
        finally:
            self._urgent.discard(listing)
        retry, pace = isinstance(found, PrometheusError), Pace()
        for user, use in list(self._uses.get(listing, {}).items()):
            for rule in use.rules:
                after = await self._after_list(listing, user, use.states, rule, found)
                retry = retry or (after is not None and _may_end_soon(listing, after))
                await pace.pause()
            if self._is_used(listing, user):
                await use.states.publish(user)
        if listing in self._uses:
            if retry:
                retries = self._retries.get(listing) or retries_of_lists(self._relist_interval, random=self._random)
                self._retries[listing], delay = retries, retries.next()
            else:
                self._retries.pop(listing, None)
                delay = seconds_to_relist(self._relist_interval, random=self._random)
            self._queue_of(listing).add_after(listing, delay)

    async def _found(self, listing: Listing) -> tuple[Series, ...] | PrometheusError:
        if not listing.selector or listing not in self._uses:  # nobody needs it any more
            return ()
        end = self.clock()
        try:
            return await self._prometheus.series(
                listing.selector, start=end - listing.max_age, end=end, destination=listing.destination
            )
        except PrometheusError as error:
            return error

    async def _after_list(
        self,
        listing: Listing,
        user: U,
        states: RuleStates[U],
        rule: AnyRule,
        found: tuple[Series, ...] | PrometheusError,
    ) -> RuleState | None:
        """Return the new state of a rule, which is set; None if it is gone."""
        before = states.rule_state(user, rule) if self._is_used(listing, user) else None
        if before is None:
            return None
        series = problem_of(found, limited=states.limited) if isinstance(found, PrometheusError) else found
        after = await after_list(before, series, self._mapper, limited=states.limited)
        if not self._is_used(listing, user) or states.rule_state(user, rule) is None:  # gone meanwhile
            return None
        states.set_rule_state(user, after)
        return after

    def _is_used(self, listing: Listing, user: Hashable) -> bool:
        return user in self._uses.get(listing, ())


def _may_end_soon(listing: Listing, state: RuleState) -> bool:
    """Return whether the rule has a problem that may end although the rule and its series stay as they are."""
    return state.problem is not None and (not listing.selector or state.problem.reason is not Reason.INVALID)
