"""The objects with rules: what is stored of each, to decode it again with other servers, and what has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from adapter.caches import CacheShares
from adapter.catalog.rule_states import Reason
from adapter.prometheus.options import PrometheusOptions
from adapter.rules.objects import (
    CLUSTER_METRIC_RULE,
    CONFIG_MAP,
    METRIC_RULE,
    RuleObject,
    Tenancy,
    read_object,
    unreadable,
)
from adapter.settings import DEFAULTS, RuleObjectSettings
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.cache.store import Key, Store

_log = logging.getLogger(__name__)

RULES_LABEL = "milliscale.io/rules=true"
"""Selects the ConfigMaps that have rules."""

ALWAYS_BYTES = 32 * 1024
"""The bytes that each namespace is guaranteed."""

Servers = Mapping[str, PrometheusOptions]


_IDENTITY = ("namespace", "name", "uid", "creationTimestamp", "generation")


_NOT_FOUND = 404
_LACKS_RIGHT = (401, 403)
ObjectId = tuple[str, Key]
"""The path of a collection, and an object in it."""


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """A kind of objects that have rules."""

    kind: str
    """The kind."""
    path: str
    """The collection's path."""
    fields: tuple[str, ...]
    """The top-level fields that are stored; `spec` for most kinds."""
    read: Callable[[Mapping[str, Any], Servers, Tenancy], Sequence[RuleObject]]
    """Returns the rules of an object, see adapter.rules.objects.read_object; most objects are one RuleObject."""
    label_selector: str = ""
    """Only these objects are read."""
    annotations: bool = False
    """Keep the annotations, too."""
    part: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda item: item
    """Returns the part of an object's JSON that matters, in the same form; None to ignore the object."""

    def view(self, item: Mapping[str, Any], *, has_room: bool = True) -> bytes | None:
        """Return the JSON to store of an object, which may be anything; over the limit, only what identifies it.

        Left out is what changes often and makes no difference, such as its status and resourceVersion.
        """
        part = self.part(item)
        metadata = part.get("metadata") if part is not None else None
        if part is None or not isinstance(metadata, dict):
            return None
        names = (*_IDENTITY, "annotations") if self.annotations and has_room else _IDENTITY
        stored: dict[str, Any] = {"metadata": {name: metadata[name] for name in names if name in metadata}}
        if has_room:
            stored |= {name: part.get(name) for name in self.fields}
        return msgspec.json.encode(stored)


def read_stored(
    source: ObjectSource,
    stored: bytes,
    servers: Servers,
    tenancy: Tenancy,
    settings: RuleObjectSettings = DEFAULTS.rule_objects,
) -> Sequence[RuleObject]:
    """Return the rules of an object of which this JSON is stored. It does not raise."""
    obj = {"kind": source.kind, **msgspec.json.decode(stored)}
    if obj.keys().isdisjoint(source.fields):
        why = (
            f"it is not read: the objects with rules of its namespace have more than "
            f"{settings.namespace_bytes // 1024} KiB, or those of all namespaces more than "
            f"{settings.total_bytes // 1024} KiB"
        )
        return (structs.replace(unreadable(obj, source.kind, why), reason=Reason.TOO_MANY_RULES.value),)
    try:
        return [_limited(one, tenancy) for one in source.read(obj, servers, tenancy)]
    except Exception as error:  # noqa: BLE001  (an object that triggers a bug in its reader must not end the process)
        _log.exception("a %s cannot be read", source.kind)
        return (unreadable(obj, source.kind, f"it cannot be read: {error!r}"),)


def _limited(one: RuleObject, tenancy: Tenancy) -> RuleObject:
    """Return an object without its rules if they alone are too many: a ConfigMap can have thousands."""
    if one.name.namespace in ("", tenancy.own_namespace) or len(one.rules) <= tenancy.max_rules:
        return one
    error = f"it has more than {tenancy.max_rules} rules, the most that a namespace can have"
    return structs.replace(one, rules=(), error=error, reason=Reason.TOO_MANY_RULES.value)


def _read_one(obj: Mapping[str, Any], servers: Servers, tenancy: Tenancy) -> Sequence[RuleObject]:
    return (read_object(obj, servers=servers, tenancy=tenancy),)


METRIC_RULES = ObjectSource(METRIC_RULE, "/apis/milliscale.io/v1/metricrules", ("spec",), _read_one)
CLUSTER_METRIC_RULES = ObjectSource(
    CLUSTER_METRIC_RULE, "/apis/milliscale.io/v1/clustermetricrules", ("spec",), _read_one
)
CONFIG_MAPS = ObjectSource(CONFIG_MAP, "/api/v1/configmaps", ("data",), _read_one, label_selector=RULES_LABEL)


class ObjectWatches:
    """Stores of all kinds of objects that have rules.

    Attributes:
        sources: the kinds, by path.
        changed: set when there are changes, and after first lists.
    """

    def __init__(
        self,
        sources: Sequence[ObjectSource],
        client: KubeClient,
        *,
        own_namespace: str = "",
        settings: RuleObjectSettings = DEFAULTS.rule_objects,
    ) -> None:
        """Read nothing before `run`. Objects in `own_namespace` have no limit."""
        self._settings = settings
        self._unlimited = ("", own_namespace)
        self._sizes: CacheShares[ObjectId] = CacheShares(settings.total_bytes, of_namespaces=settings.total_bytes)
        self._without_room: set[ObjectId] = set()
        self.sources: Mapping[str, ObjectSource] = {source.path: source for source in sources}
        self.changed = asyncio.Event()
        self._changes: dict[ObjectId, bytes | None] = {}
        self._stores = {source.path: self._store(client, source) for source in sources}

    @property
    def has_changes(self) -> bool:
        """True if there are changes that were not taken."""
        return bool(self._changes)

    @property
    def are_listed(self) -> bool:
        """True once the objects of all installed kinds have been listed."""
        return all(store.synced or _is_not_installed(store) for store in self._stores.values())

    @property
    def is_refused(self) -> bool:
        """True if the adapter lacks the right to list some objects."""
        failures = [store.failure for store in self._stores.values()]
        return any(isinstance(failure, StatusError) and failure.code in _LACKS_RIGHT for failure in failures)

    def take(self) -> Mapping[ObjectId, bytes | None]:
        """Return the objects that have changed, and take them; None for a deleted one."""
        self.changed.clear()
        changes, self._changes = self._changes, {}
        return changes

    def add(self, identity: ObjectId) -> None:
        """Count an object as changed."""
        path, key = identity
        self._changes[identity] = self._stores[path].get(*key)
        self.changed.set()

    def problem(self) -> str | None:
        """Return why the objects of some kind are not listed yet; None if all are."""
        for path, store in self._stores.items():
            if not store.synced and not _is_not_installed(store):
                kind, failure = self.sources[path].kind, store.failure
                return f"{kind}s are not listed yet" if failure is None else f"{kind}s cannot be listed: {failure}"
        return None

    def note(self) -> str | None:
        """Return why objects of some kind are unknown, or may be out of date; None if they are not."""
        for path, store in self._stores.items():
            kind, failure = self.sources[path].kind, store.failure
            if _is_not_installed(store):
                return f"there are no {kind}s, because their CustomResourceDefinition is not installed"
            if failure is not None:
                return f"{kind}s cannot be listed; the last known ones stay in use: {failure}"
        return None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path, store in self._stores.items():
                tasks.create_task(store.run(), name=f"watch {path}")
                tasks.create_task(self._first_list(store), name=f"first list of {path}")

    async def _first_list(self, store: Store[bytes]) -> None:
        await store.wait_synced()
        self.changed.set()  # also if there are no objects

    def _store(self, client: KubeClient, source: ObjectSource) -> Store[bytes]:
        def on_change(key: Key, _: bytes | None, new: bytes | None) -> None:
            self._changes[source.path, key] = new
            self.changed.set()
            if new is None:
                self._sizes.discard(key[0], (source.path, key))
                self._without_room.discard((source.path, key))
                for store in self._stores.values() if self._without_room else ():
                    store.list_again()

        settings = self._settings

        def view(item: Mapping[str, Any]) -> bytes | None:
            stored = source.view(item)
            metadata = item["metadata"]
            namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name"))
            if stored is None or namespace in self._unlimited:
                return stored
            identity = source.path, (namespace, name)
            self._sizes.discard(namespace, identity)
            self._without_room.discard(identity)
            size = len(stored)
            own = self._sizes.size_of(namespace) + size
            is_much = own > settings.namespace_bytes or self._sizes.size + size > settings.total_bytes
            if own > ALWAYS_BYTES and is_much:
                self._without_room.add(identity)
                return source.view(item, has_room=False)
            self._sizes.add(namespace, identity, size)
            return stored

        return Store(client, source.path, view, label_selector=source.label_selector, on_change=on_change)


def _is_not_installed(store: Store[bytes]) -> bool:
    failure = store.failure
    return not store.synced and isinstance(failure, StatusError) and failure.code == _NOT_FOUND
