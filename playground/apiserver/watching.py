"""Watches: the changes of a collection as a stream of events, as selected by labels and fields.

An object that begins to match is ADDED, one that no longer matches is DELETED. Bookmarks carry the latest revision to
clients that want them, so that a watch on quiet objects can be resumed long after; the last one is sent just before the
time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from kube.status import StatusError
from playground.apiserver.objects import Object
from playground.apiserver.resource_types import ResourceType
from playground.apiserver.selection import Selection
from playground.apiserver.storage import Change, Storage


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; `object` is in the storage's version, a Status where `type` is ERROR."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: Object


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a client asked for.

    Attributes:
        since: the resourceVersion to go on from, or None to begin with all objects as ADDED.
        bookmarks: whether BOOKMARK events are wanted.
        announce_initial: whether the end of the initial objects is marked by an annotated bookmark (sendInitialEvents).
        seconds: after which the watch ends.
        bookmark_seconds: between two bookmarks.
    """

    since: int | None
    bookmarks: bool
    announce_initial: bool
    seconds: float
    bookmark_seconds: float


async def watch(
    storage: Storage, kind: ResourceType, namespace: str, selection: Selection, options: WatchOptions
) -> AsyncGenerator[WatchEvent, None]:
    """The events of a collection (of one namespace, or with "" of all) until the time is up or history is lost."""
    initial = storage.objects(kind.group_resource, namespace) if options.since is None else []
    since = storage.revision if options.since is None else options.since
    try:
        subscription = storage.subscribe(kind.group_resource, since)
    except StatusError as error:
        yield WatchEvent("ERROR", error.body())
        return
    with contextlib.closing(subscription):
        for obj in initial:
            if selection.matches(obj):
                yield WatchEvent("ADDED", obj)
        if options.announce_initial:
            yield _bookmark(kind, since, annotations={"k8s.io/initial-events-end": "true"})
        loop = asyncio.get_running_loop()
        end = loop.time() + options.seconds
        next_bookmark = loop.time() + options.bookmark_seconds
        while True:
            until = min(end, next_bookmark) if options.bookmarks else end
            try:
                async with asyncio.timeout_at(until):
                    change = await subscription.next()
            except TimeoutError:
                if options.bookmarks:
                    yield _bookmark(kind, storage.revision)
                    next_bookmark = loop.time() + options.bookmark_seconds
                if loop.time() >= end:
                    return
                continue
            except StatusError as error:
                yield WatchEvent("ERROR", error.body())
                return
            event = _event_of(change, namespace, selection)
            if event is not None:
                yield event


def _event_of(change: Change, namespace: str, selection: Selection) -> WatchEvent | None:
    if namespace and change.object["metadata"].get("namespace") != namespace:
        return None
    before = change.previous is not None and selection.matches(change.previous)
    now = change.type != "DELETED" and selection.matches(change.object)
    if now:
        return WatchEvent("MODIFIED" if before else "ADDED", change.object)
    return WatchEvent("DELETED", change.object) if before else None


def _bookmark(kind: ResourceType, revision: int, *, annotations: dict[str, str] | None = None) -> WatchEvent:
    metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return WatchEvent("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
