"""Watches: the changes of a collection as a stream of events.

An object that begins to match the selectors is ADDED, one that no longer matches is DELETED. Bookmarks carry the latest
revision; the last one is sent just before the watch times out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from kube.api.status import StatusError
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
    """Options of a watch."""

    since: int | None
    """The resourceVersion to start from; None to start with all objects as ADDED."""
    bookmarks: bool
    """Whether to send BOOKMARK events."""
    seconds: float
    """The timeout."""
    bookmark_seconds: float
    """The interval of bookmarks."""


async def watch(
    storage: Storage, kind: ResourceType, namespace: str, selection: Selection, options: WatchOptions
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events of a collection (of one namespace, or with "" of all) until the timeout or a compaction."""
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


def _bookmark(kind: ResourceType, revision: int) -> WatchEvent:
    metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    return WatchEvent("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
