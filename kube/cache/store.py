"""A list-watch store: one collection of the API server, kept up to date in memory. client-go: Reflector and Store.

It lists once, then watches from the list's version. When a watch ends, the next one continues from the last version
(bookmarks keep it recent); when that version has expired (410), it lists again and computes the differences. It keeps
what `select` returns for an object, a small typed view, so that ten thousand pods need little memory. It decodes a page
of a list at a time (kube.api.listing), and applies a list when it is complete.

If etcd is restored from a backup, the API server's version becomes lower, and a watch from the last version receives
nothing, and no error. So after each failed or silent watch the collection's version is read; if it is lower, the store
lists again.

While disconnected it keeps its objects and retries with jittered backoff. It logs once when the connection is lost and
once when it is restored.

A store is *stale* if it may have missed changes. The proofs of the contrary are a list, an event, a bookmark, and an
opened watch that has not failed. A proof is valid for one and a half bookmark intervals, since bookmarks are not sent
exactly on time; for one while disconnected. A silent watch is closed and reopened before that. So a peer that vanished
makes a store stale, and a server without bookmarks does not (kube-apiserver sends none for a resource until one of its
objects has changed). A stale store whose watch is reopened first receives all missed changes: it stays stale for
another twelfth of an interval, or until it is listed again.

An object that cannot be read is *unknown*: it is too large (`kube.api.objects`, or `select` raises TooLargeError),
or `select` fails. The store keeps what it knew of it, and the other objects are up to date. If its name cannot be read
either, the collection is listed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as _random
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from kube.api.client import KubeClient, KubeError, KubeUnreachable, WatchSilent
from kube.api.listing import collection_version, list_objects
from kube.api.objects import UNREADABLE, ParseError, TooLargeError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.process.runtime import boot_clock

_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is ""."""

T = TypeVar("T")

_GONE = 410


# Of lists and of watches: an API server refuses the one for the other.
_WHOLE = ("application/json", "application/json")
_METADATA = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)
# In bookmark intervals: the validity of a proof while connected, and the time to receive missed changes.
_STALE_AFTER = 1.5
_CATCH_UP = 1 / 12
# A shorter watch without an event counts as a failure. Upstream: cache.handleAnyWatch, VeryShortWatchError
_SHORT_WATCH_SECONDS = 1.0
# Changes or events without a yield to the event loop: some milliseconds.
_BATCH = 100


class Store(Generic[T]):
    """One collection, by namespace and name. Reads are synchronous, and see the state after the last event."""

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
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """Make an empty store; `run` fills it.

        Args:
            client: the connection.
            path: the collection's path, all namespaces or one: "/api/v1/pods".
            select: returns the view to keep of an object's JSON, which may be anything; None, or a ParseError,
                excludes the object.
            label_selector: keep only these objects.
            field_selector: keep only these objects; one that names an object needs RBAC rights to that object only.
            metadata_only: transfer metadata only; `select` gets PartialObjectMetadata.
            on_change: called with (key, old, new) after each change of a view; old is None for a new object, new is
                None for a deleted one. It must not raise.
            backoff: the delays between retries.
            random: returns numbers in [0, 1), to spread retries and the ends of watches.
            clock: monotonic, in seconds; runs on while the machine is suspended.
        """
        self._client = client
        self._path = path
        self._select = select
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query: dict[str, str | int | bool] = {name: text for name, text in selectors.items() if text}
        self._accept_list, self._accept_watch = _METADATA if metadata_only else _WHOLE
        self._on_change = on_change
        self._backoff = backoff or Backoff(0.8, 30.0, jitter=1.0, random=random)
        self._random = random
        self._items: dict[str, dict[str, T]] = {}
        self._unknown: dict[str, set[str]] = {}
        self._version = ""
        self._must_list = True
        self._failure: StatusError | KubeError | None = None
        self._synced = asyncio.Event()
        self._clock = clock
        # The time of the last list or event, and when the current watch was opened.
        self._heard_at = self._caught_up_at = clock()
        self._opened_at: float | None = None

    @property
    def synced(self) -> bool:
        """True once the first list has been applied. client-go: HasSynced."""
        return self._synced.is_set()

    @property
    def disconnected(self) -> bool:
        """True if the last list or watch failed."""
        return self._failure is not None

    @property
    def failure(self) -> StatusError | KubeError | None:
        """The error of the last list or watch while disconnected; else None."""
        return self._failure

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last proof that the store has missed no change."""
        return self._clock() - (self._heard_at if self._opened_at is None else max(self._heard_at, self._opened_at))

    @property
    def stale(self) -> bool:
        """True if objects may be out of date; False before the first list."""
        if not self.synced:
            return False
        intervals = 1.0 if self.disconnected else _STALE_AFTER
        silent = self.silent_seconds >= intervals * self._client.bookmark_seconds
        return silent or self._clock() < self._caught_up_at

    def is_unknown(self, namespace: str, name: str | None = None) -> bool:
        """Return whether this object cannot be read; without a name, whether any of the namespace cannot be read."""
        names = self._unknown.get(namespace, ())
        return bool(names) if name is None else name in names

    @property
    def unknown(self) -> int:
        """The number of objects that cannot be read."""
        return sum(map(len, self._unknown.values()))

    @property
    def problem(self) -> str | None:
        """Why the store is not ready, for a readiness probe; None: it is."""
        if not self.synced:
            return "not listed yet"
        if self.disconnected:
            return "no contact to the API server"
        return "the watch is silent, objects may be out of date" if self.stale else None

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        await self._synced.wait()

    def get(self, namespace: str, name: str) -> T | None:
        """Return one object's view, or None."""
        return self._items.get(namespace, {}).get(name)

    def list(self, namespace: str | None = None) -> list[T]:
        """Return the views of a namespace's objects, or of all, in the order in which they were first seen."""
        if namespace is not None:
            return [*self._items.get(namespace, {}).values()]
        return [item for items in self._items.values() for item in items.values()]

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def list_again(self) -> None:
        """List again once the present watch ends, after ten minutes at most; so `select` sees all objects again."""
        self._must_list = True

    async def run(self) -> None:
        """List and watch, until cancelled."""
        must_compare = False
        while True:
            useful = False
            try:
                if must_compare and not self._must_list:
                    await self._compare_version()
                must_compare = False
                if self._must_list:
                    await self._list()
                useful = await self._watch()
            except WatchSilent as error:
                # The peer is gone, or the server sends no bookmarks: a new watch shows which.
                _log.debug("%s: %s; reopening it", self._path, error)
                must_compare = True
                continue
            except (StatusError, KubeError) as error:
                must_compare = True
                if self._failure is None:
                    _log.warning("%s: %s; retrying", self._path, error)
                self._failure = error
            except Exception as error:  # noqa: BLE001  # a bug: the other stores go on, and this one may have missed a change
                _log.exception("%s: internal error; listing again", self._path)
                self._must_list, self._failure = True, KubeError(f"internal error: {error}")
            # Avoid a tight loop if the server fails, or ends watches as soon as they are open.
            if not useful:
                await asyncio.sleep(self._backoff.next())

    async def _compare_version(self) -> None:
        """Have the collection listed again if its version is lower than this store's."""
        found = await collection_version(self._client, self._path, self._query, accept=self._accept_list)
        if _is_lower(found, than=self._version):
            _log.warning("%s: resourceVersion went back from %s to %s; listing again", self._path, self._version, found)
            self._must_list = True

    async def _list(self) -> None:
        # Never version 0: an API server serves that from its cache, in one page whatever the limit, and after a 410
        # perhaps with an expired version.
        unknown: set[Key] = set()

        def view(entry: Any) -> tuple[Key, T | None] | None:
            """Return the key and view of a listed object; the stored view itself, if it is equal: it saves memory."""
            if (key := _key(entry)) is None:
                return None
            selected, is_readable = self._read(key, entry)
            if not is_readable:
                unknown.add(key)
            old = self.get(*key)
            return key, old if old == selected else selected

        listed = await list_objects(
            self._client,
            self._path,
            view,
            self._query,
            accept=self._accept_list,
            on_unreadable=lambda entry: unknown.update(filter(None, (_key(entry),))),
        )
        if not listed.version:
            raise KubeUnreachable("the API server's response to a list request has no resourceVersion to watch from")
        found = dict(listed.items)
        known = [(namespace, name) for namespace, items in self._items.items() for name in items]
        changes = [*found.items(), *((key, None) for key in known if key not in found and key not in unknown)]
        for number, (key, new) in enumerate(changes, start=1):
            self._set(key, new)
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        for key in [(namespace, name) for namespace, names in self._unknown.items() for name in names]:
            self._note(key, is_readable=key not in unknown)
        for key in unknown:
            self._note(key, is_readable=False)
        self._version = listed.version
        self._heard_at = self._caught_up_at = self._clock()
        self._must_list = False
        self._backoff.reset()
        self._connected()
        self._synced.set()

    def _read(self, key: Key, entry: Any) -> tuple[T | None, bool]:
        """Return the view of an object, or the stored one, and whether the object could be read."""
        try:
            return self._select(entry), True
        except TooLargeError as error:
            if not self.is_unknown(*key):
                _log.warning("%s: %s", self._path, error)
            return self.get(*key), False
        except ParseError:
            return None, True
        except Exception:  # noqa: BLE001  # a bug: the other objects must go on
            if not self.is_unknown(*key):
                _log.exception("%s: %s: internal error", self._path, "/".join(key))
            return self.get(*key), False

    def _note(self, key: Key, *, is_readable: bool) -> None:
        namespace, name = key
        if is_readable != self.is_unknown(namespace, name):
            return
        if is_readable:
            self._unknown[namespace].remove(name)
            if not self._unknown[namespace]:
                del self._unknown[namespace]
        else:
            _log.warning("%s: %s/%s cannot be read; what was known of it stays", self._path, namespace, name)
            self._unknown.setdefault(namespace, set()).add(name)

    async def _watch(self) -> bool:
        """Run one watch to its end. Return whether it received an event, or lasted for some time."""
        query = {**self._query, "resourceVersion": self._version, "allowWatchBookmarks": True}
        seconds = self._client.settings.watch_seconds * (1 + self._random())
        count, started = 0, self._clock()
        events = self._client.watch(self._path, query, seconds=seconds, accept=self._accept_watch, on_open=self._opened)
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    if not self._apply(event):
                        _log.warning("%s: an object without a name cannot be read; listing again", self._path)
                        self._must_list = True
                        return False
                    count += 1
                    self._backoff.reset()
                    # Reading lines that are in the buffer does not yield.
                    if count % _BATCH == 0:
                        await asyncio.sleep(0)
        except StatusError as error:
            if error.code != _GONE:
                raise
            self._must_list = True
        except WatchSilent:
            self._count_opening()
            raise
        else:
            self._count_opening()
        finally:
            self._opened_at = None
        return count > 0 or self._clock() - started >= _SHORT_WATCH_SECONDS

    def _count_opening(self) -> None:
        """Count the opening of the current watch as a proof, because the watch has not failed."""
        self._heard_at = max(self._heard_at, self._opened_at or self._heard_at)

    def _apply(self, event: Mapping[str, Any]) -> bool:
        """Apply an event; return whether it is known which object it is about."""
        self._heard_at = self._clock()
        kind, entry = event.get("type"), event.get("object")
        version = _metadata(entry).get("resourceVersion")
        if isinstance(version, str):
            self._version = version
        key = _key(entry)
        if key is None:
            return kind != UNREADABLE
        if kind == "DELETED":
            self._set(key, None)
            self._note(key, is_readable=True)
        elif kind in ("ADDED", "MODIFIED", UNREADABLE):
            view, is_readable = (self.get(*key), False) if kind == UNREADABLE else self._read(key, entry)
            self._set(key, view)
            self._note(key, is_readable=is_readable)
        return True

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
        self._connected()

    def _connected(self) -> None:
        if self._failure is not None:
            self._failure = None
            _log.info("%s: connected again", self._path)


def _is_lower(version: str, *, than: str) -> bool:
    """Compare resourceVersions, which are integers in Kubernetes' own APIs; False for other texts."""
    if not all(each.isascii() and each.isdigit() for each in (version, than)):
        return False
    return (len(version), version) < (len(than), than)


def _metadata(entry: object) -> Mapping[str, Any]:
    """Return an object's metadata; empty if it has none."""
    metadata = entry.get("metadata") if isinstance(entry, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _key(entry: object) -> Key | None:
    """Return an object's key; None if it has none (a bookmark, or no object at all)."""
    metadata = _metadata(entry)
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name:
        return None
    return (namespace if isinstance(namespace, str) else "", name)
