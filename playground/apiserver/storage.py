"""Objects in memory, a revision counter, and a bounded history for watches: etcd and the watch cache of this server.

Every write takes the next revision, which becomes the object's resourceVersion. A watch that starts at a revision gets
the later changes, unless they have been compacted; then it must list again. No method awaits, so each is atomic.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Literal

from kube.api.mapping import GroupResource
from kube.api.status import StatusError
from playground.apiserver.errors import gone
from playground.apiserver.objects import Object, name_of, namespace_of

# With ten thousand HPAs that is half a minute, enough for a paginated list.
_HISTORY = 16384
_MAX_BACKLOG = 4096
_KEPT_REVISIONS = 32


@dataclass(frozen=True, slots=True)
class Change:
    """One write."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    """The event of a watch without selectors."""
    resource: GroupResource
    """The resource."""
    object: Object
    """The new state, or the last one if it was deleted."""
    previous: Object | None
    """The state before, None for a new object."""
    revision: int
    """The revision of this write."""


class Subscription:
    """The changes of one resource after a revision, in order. Close it when done."""

    def __init__(self, backlog: list[Change], subscribers: set[Subscription]) -> None:
        self._changes = deque(backlog)
        self._arrived = asyncio.Event()
        self._overrun = False
        self._subscribers = subscribers
        subscribers.add(self)

    async def next(self) -> Change:
        """Wait for the next change; no change is lost if it is cancelled.

        Raises:
            StatusError: 410, the reader was too slow, and changes were dropped.
        """
        while not self._changes:
            if self._overrun:
                raise gone("The resourceVersion for the provided watch is too old.")
            self._arrived.clear()
            await self._arrived.wait()
        return self._changes.popleft()

    def push(self, change: Change) -> None:
        """Append a change."""
        if len(self._changes) >= _MAX_BACKLOG:
            self._overrun = True
            self._subscribers.discard(self)
        else:
            self._changes.append(change)
        self._arrived.set()

    def close(self) -> None:
        """End the subscription."""
        self._subscribers.discard(self)


class Storage:
    """The objects of all resources. Objects that are put or returned must not be changed afterwards."""

    def __init__(self, *, history: int = _HISTORY) -> None:
        """Keep the last `history` changes for watches."""
        self._objects: defaultdict[GroupResource, dict[tuple[str, str], Object]] = defaultdict(dict)
        self._keys: dict[GroupResource, list[tuple[str, str]]] = {}
        self._kept: dict[tuple[GroupResource, int], list[Object]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._subscribers: defaultdict[GroupResource, set[Subscription]] = defaultdict(set)
        self._revision = 0
        self._compacted = 0

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self._revision

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Return an object, or None; `namespace` is "" for cluster-scoped objects."""
        return self._objects[resource].get((namespace, name))

    def objects(self, resource: GroupResource, namespace: str = "", *, at: int | None = None) -> list[Object]:
        """Return all objects, or those of a namespace, by namespace and name; now, or `at` a revision.

        Raises:
            StatusError: 410, that revision is not kept.
        """
        if at is None or at >= self._revision:
            found = self._objects[resource]
            return [found[key] for key in self._keys_of(resource) if not namespace or key[0] == namespace]
        kept = self._kept.get((resource, at))
        if kept is None:
            raise gone(f"too old resource version: {at} ({self._compacted})")
        return [obj for obj in kept if not namespace or namespace_of(obj) == namespace]

    def keep_revision(self, resource: GroupResource, revision: int) -> None:
        """Keep the objects of this revision, until a compaction or until others take its place."""
        key = (resource, revision)
        objects = self.objects(resource, at=revision)
        self._kept.pop(key, None)
        self._kept[key] = objects
        if len(self._kept) > _KEPT_REVISIONS:
            del self._kept[next(iter(self._kept))]

    def _keys_of(self, resource: GroupResource) -> list[tuple[str, str]]:
        """Return the sorted keys, which are cached for paginated lists."""
        if resource not in self._keys:
            self._keys[resource] = sorted(self._objects[resource])
        return self._keys[resource]

    def namespaced_in(self, namespace: str) -> list[tuple[GroupResource, Object]]:
        """Return all objects of a namespace."""
        return [
            (resource, obj)
            for resource, objects in self._objects.items()
            for key, obj in objects.items()
            if key[0] == namespace
        ]

    def put(self, resource: GroupResource, obj: Object) -> Object:
        """Create or replace an object; return it with its new resourceVersion."""
        key = (namespace_of(obj), name_of(obj))
        previous = self._objects[resource].get(key)
        if previous is None:
            self._keys.pop(resource, None)
        self._revision += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._revision)}}
        self._objects[resource][key] = obj
        self._record(Change("MODIFIED" if previous else "ADDED", resource, obj, previous, self._revision))
        return obj

    def remove(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Delete an object; return its last state, or None if there is none."""
        previous = self._objects[resource].pop((namespace, name), None)
        if previous is None:
            return None
        self._keys.pop(resource, None)
        self._revision += 1
        last = {**previous, "metadata": {**previous["metadata"], "resourceVersion": str(self._revision)}}
        self._record(Change("DELETED", resource, last, previous, self._revision))
        return last

    def subscribe(self, resource: GroupResource, since: int) -> Subscription:
        """Subscribe to the changes of `resource` after revision `since`.

        Raises:
            StatusError: 410, they are compacted; 504, that revision is in the future.
        """
        if since < self._compacted:
            raise gone(f"too old resource version: {since} ({self._compacted})")
        if since > self._revision:
            raise StatusError(504, "Timeout", f"Too large resource version: {since}, current: {self._revision}")
        backlog = [change for change in self._history if change.revision > since and change.resource == resource]
        return Subscription(backlog, self._subscribers[resource])

    def compact(self) -> None:
        """Drop the history: watches from older revisions and paginated lists must start again."""
        self._history.clear()
        self._kept.clear()
        self._compacted = self._revision

    def _record(self, change: Change) -> None:
        if self._history.maxlen is not None and len(self._history) == self._history.maxlen:
            self._compacted = self._history[0].revision
        self._history.append(change)
        for subscriber in tuple(self._subscribers[change.resource]):
            subscriber.push(change)
