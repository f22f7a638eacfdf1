"""Watch the objects that have rules, and collect what has changed since the last time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.caches import CacheShares
from adapter.rule_objects.sources import ALWAYS_BYTES, ObjectSource
from adapter.settings import DEFAULTS, RuleObjectSettings
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.cache.store import Key, Store

_NOT_FOUND = 404
_LACKS_RIGHT = (401, 403)

ObjectId = tuple[str, Key]
"""The path of a collection, and an object in it."""


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
