"""Keep the catalog of rules in objects up to date.

Objects are listed and watched. Changes are gathered for a tenth of a second and applied one object at a time, with
yields to the event loop. Of a namespace whose objects take long to read, the others wait for one object, or half a
second. An object that is invalid, or whose series cannot be listed, affects no other one. While the API server is
away, the last known rules stay in use.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.catalog.metric_index import MetricIndex, precedence
from adapter.catalog.rule_states import NOT_LISTED, Reason, RuleState, after_list
from adapter.prometheus import PrometheusOptions
from adapter.rule_objects.state import Entry, ObjectState
from adapter.rule_objects.watches import ObjectId, ObjectSource, ObjectWatches, Servers, read_stored
from adapter.rules import AnyRule, Rule, RulesFile
from adapter.rules.objects import CLUSTER_METRIC_RULE, METRIC_RULE, ObjectName, RuleObject, Tenancy
from adapter.settings import DEFAULTS, RuleObjectSettings
from kube.aio.tasks import Pace
from kube.api.client import KubeClient
from kube.api.mapping import ResourceLookup

_log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.1
# How often the catalog of the rules file is compared, whose metrics come before those of objects.
_COMPARE_SECONDS = 1.0
# After this time, what was read is published before second objects of a namespace are read: a namespace has room for
# calendars that take half a minute.
_READ_SECONDS = 0.5
# So many new objects are excluded from garbage collection at a time: with thousands, a full one takes 0.1 s and more.
_FREEZE_AFTER = 250
# So many objects are read before those that are too many are reduced to what their status says.
_LIMITED_AFTER = 100
# Other objects than short ones with a query are read in a worker thread: a calendar of 12 KiB takes 0.2 s.
_SHORT_BYTES = 1024
_HAVE_STATUS = (METRIC_RULE, CLUSTER_METRIC_RULE)

Listener = Callable[[frozenset[ObjectName]], None]


class RuleObjects:
    """The objects that have rules, and the catalog of their metrics.

    Attributes:
        catalog: the metrics.
        known: set once all objects are known.
        limited: True; see RuleStates.
    """

    limited = True

    def __init__(
        self,
        sources: Sequence[ObjectSource],
        client: KubeClient,
        listings: Listings,
        mapper: ResourceLookup,
        *,
        tenancy: Tenancy,
        settings: RuleObjectSettings = DEFAULTS.rule_objects,
        forget: Callable[[Iterable[str]], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing before `run`.

        Args:
            sources: the kinds of objects to read; none: there are no rules in objects.
            client: the connection to the API server.
            listings: list the series.
            mapper: the cluster's resources.
            tenancy: what rules of namespaces may do.
            settings: see RuleObjectSettings.
            forget: called with the keys of rules that are gone.
            monotonic: returns seconds; only differences matter.
        """
        self._mapper = mapper
        self._tenancy = tenancy
        self._settings = settings
        self._forget = forget
        self._monotonic = monotonic
        self._started = monotonic()
        self.catalog = MetricIndex(problem=self._unknown)
        self._watches = ObjectWatches(sources, client, own_namespace=tenancy.own_namespace, settings=settings)
        self._listings = listings
        self.known = asyncio.Event()
        if not sources:
            self.known.set()
        self._listed: set[ObjectName] = set()
        self._gone: set[str] = set()
        self._reads = 0
        self._pace = Pace()
        self._entries: dict[ObjectName, Entry] = {}
        self._names: dict[ObjectId, tuple[ObjectName, ...]] = {}
        # By the namespace whose limits hold; "" for objects that serve all namespaces.
        self._of_namespace: dict[str, set[ObjectName]] = {}
        self._demands: dict[str, int] = {}
        self._share = tenancy.total_metrics
        self._reasons: dict[ObjectName, Reason] = {}
        self._servers: Servers = {}
        self._file = Catalog(RulesFile(), listings, mapper, objects=self.catalog)
        self._file_version = 0
        self._listener: Listener = lambda _: None

    @property
    def enabled(self) -> bool:
        """True if any kind of objects is read."""
        return bool(self._watches.sources)

    @property
    def rule_keys(self) -> Iterable[str]:
        """The keys of all rules."""
        return (key for entry in self._entries.values() for key in entry.rules)

    def counts(self) -> Mapping[tuple[str, Reason], int]:
        """Return the number of objects by kind and reason."""
        return Counter((name.kind, reason) for name, reason in list(self._reasons.items()))

    def objects(self) -> list[RuleObject]:
        """Return all objects with rules, valid or not."""
        return [entry.object for entry in self._entries.values()]

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with the names of objects whose state may have changed, also of deleted ones."""
        self._listener = listener

    def state(self, name: ObjectName) -> ObjectState | None:
        """Return the state of an object; None if there is no such object."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        reason, message = self._reason(entry)
        return ObjectState(object=entry.object, reason=reason, message=message, metrics=entry.metrics)

    def readiness(self) -> str | None:
        """Return None once all objects are known, or cannot be known soon; else the reason why not."""
        if self.known.is_set() or self._monotonic() - self._started > self._settings.start_seconds:
            return None
        return None if self._watches.is_refused else self._unknown()  # a right may be missing for long

    def note(self) -> str | None:
        """Return why objects may be out of date or unknown; None if they are not."""
        return self._watches.note()

    def use_file(self, servers: Mapping[str, PrometheusOptions], catalog: Catalog) -> None:
        """Use the servers of another version of the rules file, and its catalog, whose metrics come first."""
        self._file, self._file_version = catalog, -1
        if servers == self._servers:
            return
        self._servers = servers
        for identity, names in self._names.items():
            if any(_depends_on_servers(self._entries[name].object) for name in names):
                self._watches.add(identity)

    async def run(self) -> None:
        """Keep the catalog up to date, until cancelled; return at once if there is nothing to read."""
        if not self.enabled:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watches.run(), name="watch objects")
            while True:
                try:
                    async with asyncio.timeout(_COMPARE_SECONDS):
                        await self._watches.changed.wait()
                except TimeoutError:
                    pass
                else:
                    await asyncio.sleep(_GATHER_SECONDS)
                await self.apply()

    async def apply(self) -> None:
        """Apply the changes that are known now: of objects, of lists of series, and of the rules file's catalog."""
        are_listed, changes = self._watches.are_listed, self._watches.take()
        changed, recent = set[ObjectName](), set[str]()
        namespaces, until = set[str](), self._monotonic() + _READ_SECONDS
        for identity in changes:
            _, (namespace, _) = identity
            if namespace in namespaces and self._monotonic() >= until:
                self._watches.add(identity)
                continue
            namespaces.add(namespace)
            read = await self._read(identity, changes[identity])
            changed |= read
            recent |= {self._limited_as(name) for name in read}
            self._reads += 1
            if self._reads % _LIMITED_AFTER == 0:  # a namespace can have any number of objects
                for namespace in recent:
                    changed |= await self._limit(namespace)
                recent.clear()
            if self._reads % _FREEZE_AFTER == 0:
                gc.freeze()
            await self._pace.pause()
        listed, self._listed = self._listed, set()
        changed |= await self._limit_all({self._limited_as(name) for name in changed | listed})
        for name in changed:
            self._use_lists(name)
            await self._pace.pause()
        affected = set(changed)
        for name in changed | listed:
            affected |= self._publish(name)
            await self._pace.pause()
        await self.catalog.publish()
        gone, self._gone = self._gone.difference(self.rule_keys) if self._gone else set(), set()
        self._forget(gone)
        if not self.known.is_set() and are_listed and not self._watches.has_changes and not self._waits_for_lists():
            self.known.set()
        await self._report(affected)

    async def _report(self, affected: set[ObjectName]) -> None:
        """Update the reasons of objects, and call the listener with those that have changed."""
        file_changed = self._file.version != self._file_version
        self._file_version = self._file.version
        for name in list(self._entries) if file_changed else affected:
            entry = self._entries.get(name)
            reason = None if entry is None else self._reason(entry)[0]
            if reason is None:
                self._reasons.pop(name, None)
            elif self._reasons.get(name) is not reason or reason is Reason.CONFLICT:  # perhaps with another rule
                self._reasons[name] = reason
                affected.add(name)
            await self._pace.pause()
        self._listener(frozenset(affected))

    def _unknown(self) -> str | None:
        """Return why it is not known which objects there are; None if it is, or was once."""
        if self.known.is_set():
            return None
        if problem := self._watches.problem():
            return problem
        return "the series of rules in objects are not listed yet"

    def _waits_for_lists(self) -> bool:
        return any(
            rule.problem is not None and rule.problem.reason is Reason.PENDING
            for entry in self._entries.values()
            if entry.excess is None
            for rule in entry.rules.values()
        )

    async def _read(self, identity: ObjectId, stored: bytes | None) -> set[ObjectName]:
        """Read an object again; return the names that it had and has."""
        source, servers = self._watches.sources[identity[0]], self._servers
        found: Sequence[RuleObject] = ()
        if stored is not None:
            read = partial(read_stored, source, stored, servers, self._tenancy, self._settings)
            is_short = len(stored) <= _SHORT_BYTES and b'"query"' in stored
            found = read() if is_short else await asyncio.to_thread(read)
        before = self._names.pop(identity, ())
        if found:
            self._names[identity] = tuple(one.name for one in found)
        for name in {*before} - {one.name for one in found}:
            self._gone.update(self._entries.pop(name).rules)
            self._of_namespace[self._limited_as(name)].discard(name)
        for one in found:
            entry = await self._entry(one, identity)
            old = self._entries.get(one.name)
            if old is not None:
                self._gone.update(old.rules.keys() - entry.rules.keys())
            self._entries[one.name] = entry
            self._of_namespace.setdefault(self._limited_as(one.name), set()).add(one.name)
            if one.name.kind not in _HAVE_STATUS and one.error and (old is None or old.object.error != one.error):
                _log.warning("%s is not used: %s", one.name, one.error)
        if servers is not self._servers:  # the rules file was reloaded meanwhile
            self._watches.add(identity)
        return {*before, *(one.name for one in found)}

    async def _entry(self, one: RuleObject, identity: ObjectId) -> Entry:
        """Return an object's entry."""
        old = self._entries.get(one.name)
        entry = Entry(one, identity, len(one.rules), excess=None if old is None else old.excess)
        for rule in one.rules:
            if not isinstance(rule, Rule):
                entry.rules[rule.key] = await after_list(RuleState(rule), (), self._mapper, limited=True)
                continue
            before = None if old is None else old.rules.get(rule.key)
            if before is None or before.rule != rule:
                # Until the list is there, the metrics of the rule before are served.
                sources = () if before is None else before.sources
                before = RuleState(rule, sources, problem=NOT_LISTED, made=len(sources))
            entry.rules[rule.key] = before
        return entry

    def _use_lists(self, name: ObjectName) -> None:
        """Have the series of an object's rules listed, and what rules without a seriesQuery lack looked up again."""
        entry = self._entries.get(name)
        if entry is None:
            self._listings.use(name, self, ())
        else:
            self._listings.use(name, self, entry.rules.values(), now=entry.excess is None)

    def rule_state(self, name: ObjectName, rule: AnyRule) -> RuleState | None:
        """See RuleStates."""
        entry = self._entries.get(name)
        state = None if entry is None else entry.rules.get(rule.key)
        return state if state is not None and state.rule == rule else None

    def set_rule_state(self, name: ObjectName, state: RuleState) -> None:
        """See RuleStates."""
        rules = self._entries[name].rules
        if state != rules[state.rule.key]:
            rules[state.rule.key] = state
            self._listed.add(name)
            self._watches.changed.set()

    async def publish(self, _: ObjectName) -> None:
        """See RuleStates: `apply` publishes it, with what it affects."""

    def _limited_as(self, name: ObjectName) -> str:
        """Return the namespace whose limits hold for an object.

        Those of the adapter's own namespace count as for all namespaces, since its ConfigMaps are.
        """
        return "" if name.namespace == self._tenancy.own_namespace else name.namespace

    async def _limit_all(self, namespaces: set[str]) -> set[ObjectName]:
        """Limit namespaces, and all that have more than their share if that has changed; see `_limit`."""
        changed: set[ObjectName] = set()
        for namespace in namespaces:
            changed |= await self._limit(namespace)
        left = max(self._tenancy.total_metrics - self._demands.get("", 0), 0)
        before, self._share = self._share, _fair_share((self._demands[key] for key in self._demands if key), left)
        if self._share != before:
            for namespace in [key for key, demand in self._demands.items() if demand > min(before, self._share)]:
                changed |= await self._limit(namespace)
        return changed

    async def _limit(self, namespace: str) -> set[ObjectName]:
        """Use the oldest objects of a namespace, and no more than there is room for; return those with a change."""
        rules, demand, metrics, changed = 0, 0, 0, set[ObjectName]()
        max_rules, most = self._tenancy.max_rules, self._tenancy.max_metrics
        if not namespace:
            max_rules, most = sys.maxsize, self._tenancy.total_metrics
        room = min(most, self._share) if namespace else most
        entries = [self._entries[name] for name in self._of_namespace.get(namespace, ())]
        for entry in sorted(entries, key=lambda entry: precedence(entry.object)):
            excess, made = None, entry.made
            if rules + entry.number > max_rules:
                excess = Reason.TOO_MANY_RULES
            else:
                rules += entry.number
                demand += made if demand + made <= most else 0
                excess = Reason.TOO_MANY_METRICS if metrics + made > room else None
                metrics += 0 if excess else made
            if excess is None and entry.number and not entry.object.rules:  # they were too many
                excess = Reason.PENDING
                self._watches.add(entry.identity)
            if excess is not entry.excess:
                changed.add(entry.object.name)
            self._gone.update(entry.rules if excess is Reason.TOO_MANY_RULES else ())
            entry.excess = excess
            if excess is not None:
                entry.refuse(excess)
            await self._pace.pause()
        self._demands[namespace] = demand
        if not entries:
            self._of_namespace.pop(namespace, None)
            del self._demands[namespace]
        return changed

    def _publish(self, name: ObjectName) -> set[ObjectName]:
        """Have the catalog serve an object's metrics, or not; return the objects that this affects."""
        affected = self.catalog.conflicting(name)
        entry = self._entries.get(name)
        if entry is None or entry.excess is not None:
            self.catalog.remove(name)
        else:
            self.catalog.put(entry.object, entry.sources)
            affected |= self.catalog.conflicting(name)
        return affected

    def _reason(self, entry: Entry) -> tuple[Reason, str]:
        return entry.reason(self._file, tenancy=self._tenancy, share=self._share)


def _depends_on_servers(one: RuleObject) -> bool:
    """Return whether other servers can make a difference: a rule names one, or tries to."""
    return bool(one.error) or any(rule.destination.server is not None for rule in one.rules)


def _fair_share(demands: Iterable[int], total: int) -> int:
    """Return the most that each can have so that all together have at most `total` (max-min fairness).

    A smaller demand leaves the rest of its share to the others. If there is enough for all, it is at least the total.
    """
    left, ordered = total, sorted(demands)
    for number, demand in enumerate(ordered):
        share = left // (len(ordered) - number)
        if demand > share:
            return share
        left -= demand
    return total
