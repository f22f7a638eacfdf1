"""What the API server remembers: objects in memory, one revision counter, and a bounded history for watches.

It stands where etcd and the watch cache stand in a real API server. Every write takes the next revision, which becomes
the object's resourceVersion; a watch that starts at a revision is given what came after it, unless that has been
forgotten (compacted): then it must list again. Nothing here waits, so on one event loop every call is atomic.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Literal

from kube.mapping import GroupResource
from kube.status import StatusError, gone
from playground.apiserver.objects import Object, name_of, namespace_of

# With ten thousand HPAs that is half a minute, in which a list of many pages must be read.
_HISTORY = 16384
_MAX_BACKLOG = 4096
_REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class Change:
    """One write.

    Attributes:
        type: of the event that a watch of everything sees.
        resource: what was written.
        object: as it is now; its last state where it was deleted.
        previous: as it was before, None where it is new.
        revision: the storage's, from this write on.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    resource: GroupResource
    object: Object
    previous: Object | None
    revision: int


class Subscription:
    """The changes of one resource from some revision on, in order. Close it when done."""

    def __init__(self, backlog: list[Change], subscribers: set[Subscription]) -> None:
        self._changes = deque(backlog)
        self._arrived = asyncio.Event()
        self._overrun = False
        self._subscribers = subscribers
        subscribers.add(self)

    async def next(self) -> Change:
        """Wait for the next change; may be cancelled without losing one.

        Raises:
            StatusError: 410, the reader was so slow that changes had to be dropped.
        """
        while not self._changes:
            if self._overrun:
                raise gone("The resourceVersion for the provided watch is too old.")
            self._arrived.clear()
            await self._arrived.wait()
        return self._changes.popleft()

    def push(self, change: Change) -> None:
        """Hand over one more change."""
        if len(self._changes) >= _MAX_BACKLOG:
            self._overrun = True
            self._subscribers.discard(self)
        else:
            self._changes.append(change)
        self._arrived.set()

    def close(self) -> None:
        """No more changes are wanted."""
        self._subscribers.discard(self)


class Storage:
    """The objects of every resource.

    Objects handed in belong to the storage from then on; objects handed out are shared and must not be changed.
    """

    def __init__(self, *, history: int = _HISTORY) -> None:
        """Keep the last `history` changes for watches to resume from."""
        self._objects: defaultdict[GroupResource, dict[tuple[str, str], Object]] = defaultdict(dict)
        self._keys: dict[GroupResource, list[tuple[str, str]]] = {}
        self._remembered: dict[tuple[GroupResource, int], list[Object]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._subscribers: defaultdict[GroupResource, set[Subscription]] = defaultdict(set)
        self._revision = 0
        self._compacted = 0

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self._revision

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """One object, or None; `namespace` is "" for what is cluster-scoped."""
        return self._objects[resource].get((namespace, name))

    def objects(self, resource: GroupResource, namespace: str = "", *, at: int | None = None) -> list[Object]:
        """All objects, or those of one namespace, by namespace and name; as they are, or as they were `at` a revision.

        Raises:
            StatusError: 410, what was then was not remembered, or is no longer.
        """
        if at is None or at >= self._revision:
            found = self._objects[resource]
            return [found[key] for key in self._keys_of(resource) if not namespace or key[0] == namespace]
        remembered = self._remembered.get((resource, at))
        if remembered is None:
            raise gone(f"too old resource version: {at} ({self._compacted})")
        return [obj for obj in remembered if not namespace or namespace_of(obj) == namespace]

    def remember(self, resource: GroupResource, revision: int) -> None:
        """Keep the objects of this revision for later; of the last so many that were of use, and until a compaction."""
        key = (resource, revision)
        objects = self.objects(resource, at=revision)
        self._remembered.pop(key, None)
        self._remembered[key] = objects
        if len(self._remembered) > _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _keys_of(self, resource: GroupResource) -> list[tuple[str, str]]:
        """In order; sorted anew only after one came or went, since a list of many pages asks for each page."""
        if resource not in self._keys:
            self._keys[resource] = sorted(self._objects[resource])
        return self._keys[resource]

    def namespaced_in(self, namespace: str) -> list[tuple[GroupResource, Object]]:
        """Everything that lives in a namespace."""
        return [
            (resource, obj)
            for resource, objects in self._objects.items()
            for key, obj in objects.items()
            if key[0] == namespace
        ]

    def put(self, resource: GroupResource, obj: Object) -> Object:
        """Create or replace an object; what is stored, and returned, has the new resourceVersion."""
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
        """Forget an object; its last state, or None where there is none."""
        previous = self._objects[resource].pop((namespace, name), None)
        if previous is None:
            return None
        self._keys.pop(resource, None)
        self._revision += 1
        last = {**previous, "metadata": {**previous["metadata"], "resourceVersion": str(self._revision)}}
        self._record(Change("DELETED", resource, last, previous, self._revision))
        return last

    def subscribe(self, resource: GroupResource, since: int) -> Subscription:
        """The changes of `resource` after revision `since`.

        Raises:
            StatusError: 410, they are no longer known; 504, that revision is still to come.
        """
        if since < self._compacted:
            raise gone(f"too old resource version: {since} ({self._compacted})")
        if since > self._revision:
            raise StatusError(504, "Timeout", f"Too large resource version: {since}, current: {self._revision}")
        backlog = [change for change in self._history if change.revision > since and change.resource == resource]
        return Subscription(backlog, self._subscribers[resource])

    def compact(self) -> None:
        """Forget the history: only watches that start from now on can be served, and no list goes on."""
        self._history.clear()
        self._remembered.clear()
        self._compacted = self._revision

    def _record(self, change: Change) -> None:
        if self._history.maxlen is not None and len(self._history) == self._history.maxlen:
            self._compacted = self._history[0].revision
        self._history.append(change)
        for subscriber in tuple(self._subscribers[change.resource]):
            subscriber.push(change)
