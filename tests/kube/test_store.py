"""Store: lists, watches, staleness."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from autoscaler.objects.decoding import convert
from kube.api.client import ClientSettings
from kube.api.objects import UNREADABLE
from kube.api.retries import Backoff
from kube.cache import store as store_module
from kube.cache.store import Key, Store
from tests.eventually import until
from tests.kube.scripted import Collection, ScriptedServer, Watch, connected, scripted_server, thing

# The event loop's time moves on by itself when there is nothing else to do: no test waits for delays and intervals.
pytestmark = pytest.mark.looptime(start=time.monotonic)

PATH = "/api/v1/things"
LONG = 300
"""Seconds of virtual time, several bookmark intervals."""


class Coloured(msgspec.Struct):
    colour: str | None = None


def colour(entry: Mapping[str, Any]) -> str | None:
    """Select the colour; objects without one, or with one that is no text, are left out."""
    return convert(entry, Coloured, "thing").colour


class Followed:
    """A running store, its collection, and the reported changes."""

    def __init__(self, server: ScriptedServer, collection: Collection) -> None:
        self.server = server
        self.collection = collection
        self.changes: asyncio.Queue[tuple[Key, str | None, str | None]] = asyncio.Queue()
        self.store: Store[str]

    def on_change(self, key: Key, old: str | None, new: str | None) -> None:
        self.changes.put_nowait((key, old, new))

    async def change(self) -> tuple[str, str | None, str | None]:
        (_, name), old, new = await asyncio.wait_for(self.changes.get(), LONG)
        return name, old, new

    def disconnected(self) -> bool:
        return self.store.disconnected

    async def watch(self) -> Watch:
        return await asyncio.wait_for(self.collection.watches.get(), LONG)


@contextlib.asynccontextmanager
async def follow(folder: Path, *items: dict[str, Any], **options: Any) -> AsyncIterator[Followed]:
    async with scripted_server() as server, connected(server, folder, **options) as client:
        collection = Collection()
        collection.items = list(items)
        server.handlers[PATH] = collection.handle
        followed = Followed(server, collection)
        followed.store = Store(client, PATH, colour, on_change=followed.on_change)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(followed.store.run())
            await asyncio.wait_for(followed.store.wait_synced(), LONG)
            try:
                yield followed
            finally:
                running.cancel()


async def test_lists_then_watches_from_the_lists_version(tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red"), thing("b", "1", namespace="other", colour="blue")) as f:
        assert f.store.list() == ["red", "blue"]
        assert f.store.list("other") == ["blue"]
        assert f.store.get("default", "a") == "red"
        assert f.store.get("other", "a") is None
        assert (f.store.get("none", "a"), f.store.list("none")) == (None, [])
        assert len(f.store) == 2
        assert (await f.watch()).from_version == "1"
        assert "allowWatchBookmarks=true" in f.server.requests[1]
        assert {each["Accept"] for each in f.server.headers} == {"application/json"}


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_all_requests_have_the_selectors_and_the_media_type(metadata_only: bool, tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        collection = Collection()
        server.handlers[PATH] = collection.handle
        store = Store(
            client,
            PATH,
            colour,
            label_selector="a=b",
            field_selector="metadata.name=c",
            metadata_only=metadata_only,
            random=lambda: 0.5,
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.run())
            for _ in range(2):
                (await asyncio.wait_for(collection.watches.get(), LONG)).refuse(503)
            await asyncio.wait_for(collection.watches.get(), LONG)
            running.cancel()
    selected = f"GET {PATH}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dc"
    watch = f"{selected}&resourceVersion=1&allowWatchBookmarks=true&watch=true&timeoutSeconds=450"
    comparison = f"{selected}&limit=1"
    assert server.requests == [f"{selected}&limit=500", watch, comparison, watch, comparison, watch]
    kind = ";as=PartialObjectMetadata{};g=meta.k8s.io;v=v1" if metadata_only else ""
    assert [each["Accept"] for each in server.headers] == [
        "application/json" + kind.format("" if "watch" in each else "List") for each in server.requests
    ]


async def test_list_again_waits_for_the_end_of_the_watch(tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red")) as f:
        f.store.list_again()
        (await f.watch()).end()
        (await f.watch()).end()
        await f.watch()
        assert f.collection.lists == 2


class Batches:
    """Counts the changes between two iterations of the event loop."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._is_open = False

    def on_change(self, *_: object) -> None:
        if not self._is_open:
            self.sizes.append(0)
            self._is_open = True
            asyncio.get_running_loop().call_soon(self._close)
        self.sizes[-1] += 1

    def _close(self) -> None:
        self._is_open = False


async def test_long_lists_and_many_events_are_applied_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_BATCH", 2)
    listed, received = Batches(), Batches()
    things = [thing(f"thing-{number}", "1", colour="red") for number in range(5)]
    async with scripted_server() as server, connected(server, tmp_path) as client:
        collection = Collection()
        collection.items = things
        server.handlers[PATH] = collection.handle
        loop = asyncio.get_running_loop()
        store = Store(client, PATH, colour, on_change=lambda *_: (received if store.synced else listed).on_change())
        since = loop.time()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.run())
            watch = await asyncio.wait_for(collection.watches.get(), LONG)
            watch.send_together("DELETED", things)
            await until(lambda: len(store) == 0)
            running.cancel()
        assert loop.time() - since < 1, "other tasks may run, but nothing waits"
    assert (listed.sizes, received.sizes) == ([2, 2, 1], [2, 2, 1])


async def test_incomplete_list_changes_nothing_and_is_restarted(tmp_path: Path) -> None:
    things = thing("a", "1", colour="red"), thing("b", "1", colour="blue")
    async with follow(tmp_path, *things, settings=ClientSettings(page_objects=1)) as f:
        assert [await f.change(), await f.change()] == [("a", None, "red"), ("b", None, "blue")]
        watch = await f.watch()
        f.collection.items = [thing("a", "5", colour="yellow"), thing("new", "5", colour="yellow")]
        f.collection.expires = {"1": [thing("a", "7", colour="green"), thing("b", "1", colour="blue")]}
        f.collection.version = "7"
        watch.refuse(410)
        assert await f.change() == ("a", "red", "green")
        assert (await f.watch()).from_version == "7"
        assert f.server.requests.count(f"GET {PATH}?limit=1") == 3
        assert f.changes.empty()


async def test_events_add_change_and_delete(tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red"), thing("c", "1", colour=7), thing("d", "1")) as f:
        assert await f.change() == ("a", None, "red")
        assert not f.store.is_unknown("default"), "an object that is left out is known"
        watch = await f.watch()
        watch.send("ADDED", thing("b", "2", colour="blue"))
        assert await f.change() == ("b", None, "blue")
        watch.send("MODIFIED", thing("a", "3", colour="red", size=7))  # what the view has not is no change
        watch.send("MODIFIED", thing("a", "4", colour="green"))
        assert await f.change() == ("a", "red", "green")
        watch.send("DELETED", thing("b", "5", colour="blue"))
        assert await f.change() == ("b", "blue", None)
        assert f.store.list() == ["green"]
        watch.send("MODIFIED", thing("a", "6"))
        assert await f.change() == ("a", "green", None)
        assert len(f.store) == 0


async def test_ended_watch_is_resumed_without_a_new_list(tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red")) as f:
        watch = await f.watch()
        watch.send("MODIFIED", thing("a", "5", colour="green"))
        watch.end()
        watch = await f.watch()
        assert watch.from_version == "5"
        watch.send("BOOKMARK", {"metadata": {"resourceVersion": "99"}})
        watch.end()
        assert (await f.watch()).from_version == "99"
        assert f.store.list() == ["green"]
        assert f.collection.lists == 1


@pytest.mark.parametrize("how", ["refused", "in the stream"])
async def test_expired_version_is_listed_again_and_differences_are_reported(how: str, tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red"), thing("b", "1", colour="blue")) as f:
        assert [await f.change(), await f.change()] == [("a", None, "red"), ("b", None, "blue")]
        watch = await f.watch()
        f.collection.items = [thing("a", "7", colour="green"), thing("c", "7", colour="white")]
        f.collection.version = "7"
        if how == "refused":
            watch.refuse(410)
        else:
            watch.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            watch.end()
        assert [await f.change() for _ in range(3)] == [
            ("a", "red", "green"),
            ("c", None, "white"),
            ("b", "blue", None),
        ]
        assert (await f.watch()).from_version == "7"
        assert f.collection.lists == 2
        # Neither comes from the API server's cache, which would send all in one page.
        assert [asked for asked in f.server.requests if "watch" not in asked] == [f"GET {PATH}?limit=500"] * 2


@pytest.mark.parametrize("code", [503, 504], ids=["outage", "too large resource version"])
async def test_version_that_went_back_is_listed_again(code: int, tmp_path: Path) -> None:
    """As after a restore of etcd from a backup."""
    async with follow(tmp_path, thing("a", "1", colour="red")) as f:
        await f.change()
        watch = await f.watch()
        await seen(f, watch, "100")
        watch.end()
        watch = await f.watch()
        assert watch.from_version == "100"
        f.collection.items, f.collection.version = [thing("b", "9", colour="blue")], "9"
        watch.refuse(code)
        assert [await f.change(), await f.change()] == [("b", None, "blue"), ("a", "100", None)]
        assert (await f.watch()).from_version == "9"


async def test_silent_watch_is_compared_with_the_collections_version(tmp_path: Path) -> None:
    """API servers accept a watch from a version in the future, and send nothing."""
    async with followed_by(Clock(), tmp_path) as f:
        await f.change()
        watch = await f.watch()
        await seen(f, watch, "100")
        f.collection.items, f.collection.version = [thing("b", "9", colour="blue")], "9"
        assert [await f.change(), await f.change()] == [("b", None, "blue"), ("a", "100", None)]
        assert (await f.watch()).from_version == "9"


@pytest.mark.parametrize("version", ["101", "100", "opaque", ""])
async def test_version_that_is_not_lower_causes_no_list(version: str, tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red")) as f:
        await f.change()
        watch = await f.watch()
        await seen(f, watch, "100")
        watch.end()
        f.collection.version = version
        (await f.watch()).refuse(503)
        assert (await f.watch()).from_version == "100"
        assert f.collection.lists == 1


async def test_list_without_a_version_is_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        asked = asyncio.Event()

        async def without_version(_: web.Request) -> web.StreamResponse:
            if len(server.requests) == 2:
                asked.set()
            return web.json_response({"metadata": {}, "items": [thing("a", "1", colour="red")]})

        server.handlers[PATH] = without_version
        store = Store(client, PATH, colour)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.run())
            await asyncio.wait_for(asked.wait(), LONG)
            running.cancel()
    assert not store.synced
    assert len(store) == 0
    why = "the API server's response to a list request has no resourceVersion to watch from"
    assert caplog.messages == [f"{PATH}: {why}; retrying"]


async def test_delays_between_retries_double_to_half_a_minute(tmp_path: Path) -> None:
    times: list[float] = []

    async def forbidden(_: web.Request) -> web.StreamResponse:
        times.append(asyncio.get_running_loop().time())
        return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = forbidden
        running = asyncio.create_task(Store(client, PATH, colour, random=lambda: 0.5).run())
        await asyncio.sleep(LONG)
        running.cancel()
    delays = [round(end - start, 1) for start, end in pairwise(times)]
    assert delays == [1.2, 2.4, 4.8, 9.6, 19.2, *[22.5] * 11], "with jitter, from 15 to 30 s"


async def test_outage_is_logged_once_and_objects_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kube.cache.store")
    async with follow(tmp_path, thing("a", "1", colour="red")) as f:
        for _ in range(3):
            (await f.watch()).refuse(503)
        watch = await f.watch()
        assert f.disconnected()
        assert f.store.list() == ["red"]
        watch.send("MODIFIED", thing("a", "2", colour="green"))
        assert [await f.change(), await f.change()] == [("a", None, "red"), ("a", "red", "green")]
        assert not f.disconnected()
        assert f.collection.lists == 1
    assert [record.levelname for record in caplog.records if record.name == "kube.cache.store"] == ["WARNING", "INFO"]


@pytest.mark.parametrize(
    "event",
    [
        *({}, {"type": "ADDED"}, {"type": "ADDED", "object": 7}, {"type": "ADDED", "object": {"metadata": 7}}),
        *({"type": "ADDED", "object": {"metadata": {"name": name}, "colour": "x"}} for name in ("", 7)),
        {"type": "WHAT", "object": thing("a", "2", colour="x")},
    ],
)
async def test_malformed_event_is_ignored(event: dict[str, Any], tmp_path: Path) -> None:
    async with follow(tmp_path, thing("a", "1", colour="red")) as f:
        await f.change()
        watch = await f.watch()
        watch.events.put_nowait(event)
        watch.send("MODIFIED", thing("a", "3", colour="green"))
        assert await f.change() == ("a", "red", "green")
        assert f.collection.lists == 1


@pytest.mark.parametrize("metadata", [{"name": "node"}, {"name": "node", "namespace": 7}])
async def test_object_without_a_namespace_is_cluster_scoped(metadata: dict[str, Any], tmp_path: Path) -> None:
    async with follow(tmp_path, {"metadata": metadata, "colour": "red"}) as f:
        assert (f.store.get("", "node"), f.store.list("")) == ("red", ["red"])


# --- staleness -----------------------------------------------------------------------------------------------------


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def followed_by(clock: Clock, folder: Path, *, backoff: Backoff | None = None) -> AsyncIterator[Followed]:
    """Start a store with a clock, and wait for its first watch."""
    async with scripted_server() as server, connected(server, folder) as client:
        collection = Collection()
        collection.items = [thing("a", "1", colour="red")]
        server.handlers[PATH] = collection.handle
        followed = Followed(server, collection)
        followed.store = Store(client, PATH, colour, on_change=followed.on_change, backoff=backoff, clock=clock)
        clock.now += 3600
        assert (followed.store.stale, followed.store.problem) == (False, "not listed yet")
        assert followed.store.silent_seconds == 3600
        async with asyncio.TaskGroup() as group:
            running = group.create_task(followed.store.run())
            try:
                yield followed
            finally:
                running.cancel()


def condition(followed: Followed) -> tuple[bool, str | None]:
    """Return whether the store is stale, and its problem."""
    return followed.store.stale, followed.store.problem


async def seen(followed: Followed, watch: Watch, version: str) -> None:
    """Send an event and wait for it."""
    followed.collection.version = version
    watch.send("MODIFIED", thing("a", version, colour=version))
    while (await followed.change())[2] != version:
        pass


async def test_store_is_stale_after_one_and_a_half_silent_bookmark_intervals(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with followed_by(clock, tmp_path) as f:
        watch = await f.watch()
        await seen(f, watch, "2")
        clock.now += 89.9
        assert condition(f) == (False, None)
        clock.now += 0.1
        assert condition(f) == (True, "the watch is silent, objects may be out of date")
        assert f.store.get("default", "a") == "2", "what there is stays"
        await seen(f, watch, "3")
        assert (condition(f), f.store.silent_seconds) == ((False, None), 0)
        clock.now += 90
        assert f.store.stale
        watch.send("BOOKMARK", {"metadata": {"resourceVersion": "4"}})
        await until(lambda: not f.store.stale)


@pytest.mark.parametrize("step", ["the watch", "the list"])
async def test_disconnected_store_is_stale_after_a_bookmark_interval(step: str, tmp_path: Path) -> None:
    clock = Clock()
    async with followed_by(clock, tmp_path) as f:
        watch = await f.watch()
        await seen(f, watch, "2")
        if step == "the list":
            f.server.handlers[PATH] = refusing(f)
            watch.send("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
        watch.end()
        if step == "the watch":
            (await f.watch()).refuse(503)
        await until(f.disconnected)
        clock.now += 59.9
        assert condition(f) == (False, "no contact to the API server")
        clock.now += 0.1
        assert condition(f) == (True, "no contact to the API server")
        f.server.handlers[PATH] = f.collection.handle
        f.collection.version = "9"
        while True:
            again = await f.watch()
            again.open()
            if step == "the watch" or again.from_version == "9":
                break
        if step == "the watch":
            await until(lambda: not f.store.disconnected)
            assert f.store.stale, "what has changed meanwhile is still to come"
            clock.now += 5
        await until(lambda: not f.store.stale)
        assert f.store.problem is None


async def test_stale_store_stays_stale_while_a_new_watch_catches_up(tmp_path: Path) -> None:
    clock = Clock()
    async with followed_by(clock, tmp_path) as f:
        watch = await f.watch()
        await seen(f, watch, "2")
        clock.now += 90
        watch.end()
        again = await f.watch()
        await seen(f, again, "3")
        clock.now += 4.9
        await seen(f, again, "4")
        assert f.store.stale, "one event is not all of them"
        clock.now += 0.2
        assert condition(f) == (False, None)


def refusing(followed: Followed) -> Any:
    """Make lists fail."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await followed.collection.handle(request)
        return web.json_response({"kind": "Status", "code": 500, "message": "no"}, status=500)

    return handle


async def test_reopened_silent_watch_keeps_the_store_fresh(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Old and aggregated servers may send no bookmarks."""
    clock = Clock()
    async with followed_by(clock, tmp_path, backoff=Backoff(3600, 3600)) as f:
        watch = await f.watch()
        assert condition(f) == (False, None), "the list is a proof"
        watch.open()
        clock.now += 3600
        # Opened, and silent until the end.
        (await f.watch()).open()
        again = await f.watch()
        clock.now += 6
        assert condition(f) == (False, None), "neither while the next one is being opened"
        clock.now += 78
        assert condition(f) == (False, None)
        clock.now += 12
        assert condition(f)[0], "not for long"
        again.open()
        await until(lambda: f.store.silent_seconds == 0)
        clock.now += 6
        assert condition(f) == (False, None)
        assert f.collection.lists == 1
    assert caplog.records == []


async def test_watch_that_opens_and_fails_does_not_keep_the_store_fresh(tmp_path: Path) -> None:
    clock = Clock()
    async with followed_by(clock, tmp_path) as f:
        watch = await f.watch()
        await seen(f, watch, "2")
        watch.end()
        clock.now += 60
        for _ in range(3):
            watch = await f.watch()
            watch.send("ERROR", {"kind": "Status", "code": 500, "message": "etcd is away"})
            watch.end()
        await f.watch()
        assert f.store.stale


async def test_watch_that_ends_regularly_keeps_the_store_fresh(tmp_path: Path) -> None:
    """For example when something in between ends each watch, and nothing changes."""
    clock = Clock()
    async with followed_by(clock, tmp_path, backoff=Backoff(3600, 3600)) as f:
        for seconds in (80, 80, 0):
            watch = await f.watch()
            clock.now += 1
            watch.open()
            await until(lambda: f.store.silent_seconds == 0)
            clock.now += seconds
            watch.end()
        await f.watch()
        assert condition(f) == (False, None)


class CountedBackoff(Backoff):
    """A backoff with short delays that counts them."""

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)
        self.calls: list[str] = []

    def next(self) -> float:
        self.calls.append("wait")
        return super().next()

    def reset(self) -> None:
        self.calls.append("reset")
        super().reset()


async def test_backoff_grows_until_a_list_or_an_event(tmp_path: Path) -> None:
    backoff = CountedBackoff()
    async with followed_by(Clock(), tmp_path, backoff=backoff) as f:
        watch = await f.watch()
        assert backoff.calls == ["reset"], "by the list"
        watch.refuse(503)
        (await f.watch()).end()  # opened and ended at once without an event: no reason to hurry either
        watch = await f.watch()
        assert backoff.calls == ["reset", "wait", "wait"]
        await seen(f, watch, "2")
        watch.end()
        watch = await f.watch()
        assert backoff.calls == ["reset", "wait", "wait", "reset"]
        watch.events.put_nowait({"type": UNREADABLE})
        await f.watch()
        assert backoff.calls[-2:] == ["wait", "reset"], "the list that finds the unreadable object may find it again"
