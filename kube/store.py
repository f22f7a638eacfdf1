"""A list-watch store: a collection of the API server's, kept up to date in memory.

This is what client-go calls a reflector with its store. It lists once, then watches from the list's version; when a
watch ends it goes on from the last version seen (bookmarks keep that version young), and when that has become too old
(410) it lists again and works out what changed meanwhile. What it keeps of an object is what `select` returns: a small
typed view, not the object's JSON, so that ten thousand pods cost little. Nor is there ever more than a page of that
JSON in memory (`kube.listing`); views are taken up when the list is complete, so one that breaks off changes nothing.

While the API server is away the store keeps what it has and tries again, with jittered backoff, saying so once when the
contact is lost and once when it is back.

A store is *stale* when nothing proves any more that it has what the API server has. A list, an event or a bookmark is a
proof, and so is a watch that could be opened and did not fail. A proof holds for one and a half bookmark intervals, as
bookmarks are not sent to the second; while contact is lost, for one. A silent watch is closed before that and opened
anew: a peer that vanished makes a store stale, and a server that sends no bookmarks does not (kube-apiserver sends none
of a resource until something in it has changed). To a stale store a watch that is opened first brings all that has
changed meanwhile, so it stays stale a twelfth of an interval more, unless it is listed anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as _random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kube.client import KubeClient, KubeError, KubeUnreachable, WatchSilent
from kube.listing import list_objects
from kube.retries import Backoff
from kube.status import StatusError

_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is ""."""

T = TypeVar("T")

_GONE = 410


@dataclass(frozen=True, slots=True)
class _MediaTypes:
    lists: str
    watches: str


_WHOLE = _MediaTypes("application/json", "application/json")
# A list and a watch have kinds of their own for this, and an API server refuses the other one's.
_METADATA = _MediaTypes(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)
# Watches end after five to ten minutes, at random, as client-go's do, so that they do not all end together.
_WATCH_SECONDS = 300.0
# Of the bookmark interval: for how long a proof holds while all seems well.
_STALE_AFTER = 1.5
# Likewise: how long a watch takes to bring a stale store what it has missed.
_CATCH_UP = 1 / 12
# Changes or events between two turns of the event loop: some milliseconds.
_AT_ONCE = 100


class Store(Generic[T]):
    """One collection, by namespace and name.

    Reading is synchronous and never waits: everything happens on one event loop, and what is read is what the last
    event left.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        select: Callable[[Mapping[str, Any]], T | None],
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        on_change: Callable[[Key, T | None, T | None], None] | None = None,
        backoff: Backoff | None = None,
        random: Callable[[], float] = _random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            client: the connection.
            path: the collection's path, all namespaces or one: "/api/v1/pods".
            select: the view to keep of an object's JSON, or None to leave the object out. It must accept any JSON.
            label_selector: keep only these objects.
            field_selector: keep only these objects; one that names an object needs no right to any other.
            metadata_only: `select` gets objects of metadata alone, which is all that is transferred.
            on_change: called with (key, old, new) after each change of a view; old is None for a new object and new is
                None for one that is gone. It must not raise and must not wait.
            backoff: the delays between tries.
            random: numbers in [0, 1), for the spread of the watches' ends.
            clock: seconds; tells how long the server has been silent.
        """
        self._client = client
        self._path = path
        self._select = select
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query: dict[str, str | int | bool] = {name: text for name, text in selectors.items() if text}
        self._accept = _METADATA if metadata_only else _WHOLE
        self._on_change = on_change
        self._backoff = backoff or Backoff(0.8, 30.0, jitter=1.0)
        self._random = random
        self._items: dict[str, dict[str, T]] = {}
        self._version = ""
        self._must_list = True
        self._failure: StatusError | KubeError | None = None
        self._synced = asyncio.Event()
        self._clock = clock
        # The last list or event, and when the watch that is open was opened.
        self._heard_at = clock()
        self._opened_at: float | None = None
        self._caught_up_at = float("-inf")

    @property
    def synced(self) -> bool:
        """Whether the first list has arrived."""
        return self._synced.is_set()

    @property
    def disconnected(self) -> bool:
        """Whether contact to the API server is lost at the moment."""
        return self._failure is not None

    @property
    def failure(self) -> StatusError | KubeError | None:
        """Why contact is lost, or None."""
        return self._failure

    @property
    def silent_seconds(self) -> float:
        """Seconds since there was a proof that this is what the API server has."""
        heard_at = self._heard_at if self._opened_at is None else max(self._heard_at, self._opened_at)
        return self._clock() - heard_at

    @property
    def stale(self) -> bool:
        """Whether what is here may be out of date; not before the first list."""
        intervals = 1.0 if self.disconnected else _STALE_AFTER
        silent = self.silent_seconds >= intervals * self._client.bookmark_seconds
        return self.synced and (silent or self._clock() < self._caught_up_at)

    @property
    def problem(self) -> str | None:
        """Why one cannot rely on what is here at the moment, for a readiness probe; None: one can."""
        if not self.synced:
            return "not listed yet"
        if self.disconnected:
            return "no contact to the API server"
        return "the watch is silent, objects may be out of date" if self.stale else None

    async def wait_synced(self) -> None:
        """Return when the first list has arrived."""
        await self._synced.wait()

    def get(self, namespace: str, name: str) -> T | None:
        """One object's view, or None."""
        return self._items.get(namespace, {}).get(name)

    def list(self, namespace: str | None = None) -> list[T]:
        """The views of a namespace's objects, or of all, in the order in which they first came."""
        if namespace is not None:
            return [*self._items.get(namespace, {}).values()]
        return [item for items in self._items.values() for item in items.values()]

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    async def run(self) -> None:
        """List and watch, until cancelled."""
        while True:
            try:
                if self._must_list:
                    await self._list()
                useful = await self._watch()
            except WatchSilent as error:
                # Perhaps the peer is gone, perhaps the server sends no bookmarks: a new watch will tell.
                _log.debug("%s: %s; watching anew", self._path, error)
                continue
            except (StatusError, KubeError) as error:
                if self._failure is None:
                    _log.warning("%s: %s; trying again", self._path, error)
                self._failure = error
                useful = False
            # A server that fails, or ends every watch at once, is not asked in a tight loop.
            if not useful:
                await asyncio.sleep(self._backoff.next())

    async def _list(self) -> None:
        # Never version 0, which an API server answers from its cache: whole, whatever the limit of a page, and after a
        # 410 perhaps with what is too old.
        listed = await list_objects(self._client, self._path, self._view, self._query, accept=self._accept.lists)
        if not listed.version:
            raise KubeUnreachable("the API server's response to a list request has no resourceVersion to watch from")
        found = dict(listed.items)
        known = [(namespace, name) for namespace, items in self._items.items() for name in items]
        changes = [*found.items(), *((key, None) for key in known if key not in found)]
        for number, (key, view) in enumerate(changes, start=1):
            self._set(key, view)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self._version = listed.version
        self._heard_at = self._clock()
        self._caught_up_at = float("-inf")
        self._must_list = False
        self._backoff.reset()
        self._back()
        self._synced.set()

    def _view(self, entry: Any) -> tuple[Key, T] | None:
        """What to keep of an object of a list: the view there is already, if nothing changed."""
        key = _key(entry)
        view = None if key is None else self._select(entry)
        if key is None or view is None:
            return None
        old = self.get(*key)
        return key, view if old is None or old != view else old

    async def _watch(self) -> bool:
        """One watch, to its end. Whether it brought anything."""
        query = {**self._query, "resourceVersion": self._version, "allowWatchBookmarks": True}
        seconds = _WATCH_SECONDS * (1 + self._random())
        count = 0
        events = self._client.watch(
            self._path, query, seconds=seconds, accept=self._accept.watches, on_open=self._opened
        )
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    self._apply(event)
                    count += 1
                    if count == 1:
                        self._backoff.reset()
                    # Those that have arrived are read without a pause.
                    if count % _AT_ONCE == 0:
                        await asyncio.sleep(0)
        except StatusError as error:
            if error.code != _GONE:
                raise
            self._must_list = True
        except WatchSilent:
            # It did not fail, so that it could be opened was a proof.
            self._heard_at = max(self._heard_at, self._opened_at or self._heard_at)
            raise
        finally:
            self._opened_at = None
        return count > 0

    def _apply(self, event: Mapping[str, Any]) -> None:
        self._heard_at = self._clock()
        kind, entry = event.get("type"), event.get("object")
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if isinstance(version, str):
            self._version = version
        key = _key(entry)
        if key is None:
            return
        if kind == "DELETED":
            self._set(key, None)
        elif kind in ("ADDED", "MODIFIED"):
            self._set(key, self._select(entry))  # type: ignore[arg-type]  # a key was found, so it is a mapping

    def _set(self, key: Key, new: T | None) -> None:
        namespace, name = key
        items = self._items.get(namespace, {})
        old = items.get(name)
        if old == new:
            return
        if new is None:
            del items[name]
            if not items:
                del self._items[namespace]
        else:
            self._items.setdefault(namespace, items)[name] = new
        if self._on_change is not None:
            self._on_change(key, old, new)

    def _opened(self) -> None:
        now = self._clock()
        if self.stale:
            self._caught_up_at = now + _CATCH_UP * self._client.bookmark_seconds
        self._opened_at = now
        self._back()

    def _back(self) -> None:
        if self._failure is not None:
            self._failure = None
            _log.info("%s: the API server is back", self._path)


def _key(entry: object) -> Key | None:
    """An object's key; None for what has none (a bookmark, or no object at all)."""
    metadata = entry.get("metadata") if isinstance(entry, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        return None
    namespace = metadata.get("namespace")
    return (namespace if isinstance(namespace, str) else "", name)
