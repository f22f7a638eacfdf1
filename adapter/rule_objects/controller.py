"""Keep the catalog of rules in objects up to date.

Objects are listed and watched. Changes are gathered for a tenth of a second and applied one object at a time, with
yields to the event loop. An object that is invalid, or whose series cannot be listed, affects no other one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from adapter.catalog.catalog import Catalog, SeriesSource
from adapter.catalog.inventory import NAMESPACES, ExternalSource, Source
from adapter.catalog.object_catalog import ObjectCatalog, precedence
from adapter.catalog.snapshot import part_of
from adapter.prometheus.options import PrometheusOptions
from adapter.rule_objects.sources import ObjectSource, Servers, StoredObject
from adapter.rule_objects.state import Entry, ObjectState, Reason
from adapter.rules import AnyRule, QueryRule
from adapter.rules.objects import ObjectName, RuleObject, Tenancy
from kube.client import KubeClient, KubeError
from kube.mapping import ResourceLookup
from kube.status import StatusError
from kube.store import Key, Store

_log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.1
# The event loop is never held for longer than this by the objects of a mass change.
_BUSY_SECONDS = 0.005
# Longer objects, which are ConfigMaps, are read in a worker thread.
_LONG_BYTES = 16 * 1024
_RETRY_SECONDS = 15.0
_NOT_FOUND = 404

_Id = tuple[str, Key]
"""The path of a collection, and an object in it."""
Listener = Callable[[frozenset[ObjectName]], None]


class RuleObjects:
    """The objects that have rules, and the catalog of their metrics.

    Attributes:
        catalog: the metrics.
    """

    def __init__(
        self,
        sources: Sequence[ObjectSource],
        client: KubeClient,
        prometheus: SeriesSource,
        mapper: ResourceLookup,
        *,
        tenancy: Tenancy,
        relist_interval: float,
        max_age: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read nothing before `run`.

        Args:
            sources: the kinds of objects to read; none: there are no rules in objects.
            client: the connection to the API server.
            prometheus: lists the series.
            mapper: the cluster's resources.
            tenancy: what rules of namespaces may do.
            relist_interval: seconds between two lists of a rule's series.
            max_age: seconds; see Catalog.
            clock: returns seconds since the epoch.
        """
        self._prometheus = prometheus
        self._mapper = mapper
        self._relist_interval = relist_interval
        self._max_age = max_age
        self._clock = clock
        self._tenancy = tenancy
        self.catalog = ObjectCatalog(problem=lambda: self.readiness())
        self._sources = {source.path: source for source in sources}
        self._stores = {source.path: self._store(client, source) for source in sources}
        self._changes: dict[_Id, StoredObject | None] = {}
        self._changed = asyncio.Event()
        self._entries: dict[ObjectName, Entry] = {}
        self._names: dict[_Id, tuple[ObjectName, ...]] = {}
        self._of_namespace: dict[str, set[ObjectName]] = {}
        self._servers: Servers = {}
        self._file: Catalog | None = None
        self._listeners: list[Listener] = []

    @property
    def enabled(self) -> bool:
        """True if any kind of objects is read."""
        return bool(self._stores)

    def objects(self) -> list[RuleObject]:
        """Return all objects with rules, valid or not."""
        return [entry.object for entry in self._entries.values()]

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with the names of objects whose state may have changed, also of deleted ones."""
        self._listeners.append(listener)

    def state(self, name: ObjectName) -> ObjectState | None:
        """Return the state of an object; None if there is no such object."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        reason, message = self._reason(entry)
        return ObjectState(
            object=entry.object, reason=reason, message=message, metrics=entry.metrics, series=entry.series
        )

    def readiness(self) -> str | None:
        """Return None once all objects are known, else the reason why not."""
        for path, store in self._stores.items():
            failure, kind = store.failure, self._sources[path].kind
            if store.synced or (isinstance(failure, StatusError) and failure.code == _NOT_FOUND):
                continue
            return f"{kind}s are not listed yet" if failure is None else f"{kind}s cannot be listed: {failure}"
        return None

    def use_file(self, servers: Mapping[str, PrometheusOptions], catalog: Catalog) -> None:
        """Use the servers of another version of the rules file, and its catalog, whose metrics come first."""
        self._file = catalog
        if servers == self._servers:
            return
        self._servers = servers
        for identity, names in self._names.items():
            if any(_depends_on_servers(self._entries[name].object) for name in names):
                self._read_again(identity)

    async def run(self) -> None:
        """Keep the catalog up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path, store in self._stores.items():
                tasks.create_task(store.run(), name=f"watch {path}")
            while True:
                await self._changed.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                await self.apply()

    async def apply(self) -> None:
        """Apply the changes of objects that are known now."""
        self._changed.clear()
        changes, self._changes = self._changes, {}
        pace = _Pace()
        changed: set[ObjectName] = set()
        for identity, stored in changes.items():
            changed |= await self._read(identity, stored)
            await pace.pause()
        for namespace in {name.namespace for name in changed}:
            changed |= self._limit(namespace)
            await pace.pause()
        affected = set(changed)
        for name in changed:
            affected |= self._publish(name)
            await pace.pause()
        await self.catalog.publish()
        if affected:
            for listener in self._listeners:
                listener(frozenset(affected))

    def _store(self, client: KubeClient, source: ObjectSource) -> Store[StoredObject]:
        return Store(
            client,
            source.path,
            source.view,
            label_selector=source.label_selector,
            on_change=lambda key, _, new: self._change((source.path, key), new),
        )

    def _change(self, identity: _Id, stored: StoredObject | None) -> None:
        self._changes[identity] = stored
        self._changed.set()

    def _read_again(self, identity: _Id) -> None:
        path, key = identity
        self._change(identity, self._stores[path].get(*key))

    async def _read(self, identity: _Id, stored: StoredObject | None) -> set[ObjectName]:
        """Read an object again; return the names that it had and has."""
        source = self._sources[identity[0]]
        found: Sequence[RuleObject] = ()
        if stored is not None:
            read = partial(source.read, stored.object(source.kind), self._servers, self._tenancy)
            found = await asyncio.to_thread(read) if len(stored.content) > _LONG_BYTES else read()
        before = self._names.pop(identity, ())
        if found:
            self._names[identity] = tuple(one.name for one in found)
        for name in {*before} - {one.name for one in found}:
            del self._entries[name]
            self._of_namespace[name.namespace].discard(name)
        for one in found:
            self._entries[one.name] = entry = await self._entry(one)
            if entry.retry_seconds is not None:
                asyncio.get_running_loop().call_later(entry.retry_seconds, self._read_again, identity)
            self._of_namespace.setdefault(one.name.namespace, set()).add(one.name)
        return {*before, *(one.name for one in found)}

    async def _entry(self, one: RuleObject) -> Entry:
        entry = Entry(one)
        if one.error:
            entry.problem = (Reason.INVALID, one.error)
            return entry
        sources: list[Source] = []
        try:
            for rule in one.rules:
                sources += await self._metrics(rule)
        except _UnusableError as error:
            entry.problem, entry.retry_seconds = (Reason.INVALID, str(error)), _RETRY_SECONDS
        except (KubeError, StatusError) as error:
            entry.problem = (Reason.PENDING, f"the resources of the cluster cannot be listed: {error}")
            entry.retry_seconds = _RETRY_SECONDS
        else:
            entry.sources = tuple(sources)
        return entry

    async def _metrics(self, rule: AnyRule) -> Sequence[Source]:
        """Return the metrics of a rule."""
        if not isinstance(rule, QueryRule):
            return ()
        part = await part_of(rule, (), None, self._mapper)
        if not part.sources:
            raise _UnusableError(f"the cluster has no resource {rule.resource}")
        for source in part.custom:
            if rule.namespace and not source.info.namespaced and source.info.resource != NAMESPACES:
                raise _UnusableError(
                    f"{source.info.resource} are in no namespace; only a rule for all namespaces can have their metrics"
                )
        return part.sources

    def _limit(self, namespace: str) -> set[ObjectName]:
        """Allow the oldest objects of a namespace; return those for which this has changed."""
        if not namespace:
            return set()
        count, changed = 0, set()
        entries = [self._entries[name] for name in self._of_namespace.get(namespace, ())]
        for entry in sorted(entries, key=lambda entry: precedence(entry.object)):
            count += len(entry.object.rules)
            is_allowed = count <= self._tenancy.max_rules
            if is_allowed != entry.is_allowed:
                entry.is_allowed = is_allowed
                changed.add(entry.object.name)
        if not entries:
            self._of_namespace.pop(namespace, None)
        return changed

    def _publish(self, name: ObjectName) -> set[ObjectName]:
        """Have the catalog serve an object's metrics, or not; return the objects that this affects."""
        affected = self.catalog.rivals(name)
        entry = self._entries.get(name)
        if entry is None or not entry.is_allowed or not entry.sources:
            self.catalog.remove(name)
        else:
            self.catalog.put(entry.object, entry.sources)
            affected |= self.catalog.rivals(name)
        return affected

    def _reason(self, entry: Entry) -> tuple[Reason, str]:
        if entry.problem is not None:
            return entry.problem
        if not entry.is_allowed:
            return (
                Reason.TOO_MANY_RULES,
                f"the namespace has more than {self._tenancy.max_rules} rules; the oldest objects are used",
            )
        for source in entry.sources:
            if conflict := self._conflict(entry.object.name, source):
                return Reason.CONFLICT, conflict
        return Reason.READY, ""

    def _conflict(self, name: ObjectName, source: Source) -> str:
        """Return which other rule makes a metric instead; "" if none does."""
        if self._file is not None:
            if isinstance(source, ExternalSource):
                other: Source | None = self._file.find_external(source.metric)
            else:
                other = self._file.find_custom(source.info.resource, source.info.metric)
            if other is not None:
                return f"{source} is made by {other.rule.key} of the rules file"
        winner = self.catalog.winner(source.rule.namespace, source)
        if winner is None or winner == name:
            return ""
        return f"{source} is made by {winner}, which is older"


class _UnusableError(ValueError):
    """A rule that cannot make its metric; the message says what to change."""


class _Pace:
    """Yields to the event loop often enough."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause(self) -> None:
        if time.monotonic() - self._since > _BUSY_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()


def _depends_on_servers(one: RuleObject) -> bool:
    """Return whether other servers can make a difference: a rule names one, or tries to."""
    return bool(one.error) or any(rule.destination.server is not None for rule in one.rules)
