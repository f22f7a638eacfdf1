"""Objects that are too large or too deep to be read: watches and lists go on, and stores say which one is unknown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube.api.client import ClientSettings, KubeClient, KubeUnreachable, ResponseTooLarge
from kube.api.listing import collection_version, list_objects
from kube.api.objects import UNREADABLE, TooLargeError
from kube.cache.store import Key, Store
from tests.eventually import eventually, until
from tests.kube.scripted import Collection, Handler, Watch, connected, scripted_server, thing

PATH = "/api/v1/things"
SMALL_PAGES = ClientSettings(page_objects=40, page_bytes=4000)
SHORT_EVENTS = ClientSettings(event_bytes=2**18)
NAMED = {"metadata": {"name": "big", "namespace": "team"}}


def frame(kind: str, name: str, value: str, *, version: str = "7") -> bytes:
    """A line of a watch as kube-apiserver writes it: a Go type's JSON, with "<" escaped."""
    metadata = f'{{"name":"{name}","generateName":"x-","namespace":"team","uid":"u","resourceVersion":"{version}"}}'
    head = f'{{"type":"{kind}","object":{{"kind":"Thing","apiVersion":"v1","metadata":{metadata},"spec":{{"value":'
    return head.encode() + value.encode() + b"}}}\n"


def lines(*texts: bytes) -> Handler:
    """A watch that sends these lines in pieces, and ends."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for text in texts:
            for start in range(0, len(text), 2**16):
                await response.write(text[start : start + 2**16])
        return response

    return handler


async def events_of(client: KubeClient) -> list[dict[str, Any]]:
    return [event async for event in client.watch(PATH)]


async def test_event_of_the_largest_object_that_etcd_takes_is_received(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        text = '"' + "\\u003c" * 1_572_864 + '"'
        server.handlers[PATH] = lines(frame("MODIFIED", "big", text), frame("ADDED", "small", '""'))
        big, small = await events_of(client)
    assert big["object"]["spec"] == {"value": "<" * 1_572_864}
    assert small["object"]["metadata"]["name"] == "small"


@pytest.mark.parametrize(("kind", "found"), [("ADDED", UNREADABLE), ("MODIFIED", UNREADABLE), ("DELETED", "DELETED")])
async def test_too_long_line_is_an_event_with_the_objects_name(kind: str, found: str, tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = lines(
            frame(kind, "big", '"' + "x" * (2**24 + 2**20) + '"'),
            frame("ADDED", "small", '""'),
            frame("ADDED", "last", '""'),
        )
        first, *others = await events_of(client)
    assert first["type"] == found
    assert {**first["object"]["metadata"], "uid": ""} == {**NAMED["metadata"], "uid": ""}
    assert [event["object"]["metadata"]["name"] for event in others] == ["small", "last"]


async def test_line_of_any_length_needs_bounded_memory(tmp_path: Path) -> None:
    piece, sent, kept, reading = b" " * 2**16, 0, 0, 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent, kept, reading
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(frame("ADDED", "big", "")[:-4])
        while sent < 2**26:
            await response.write(piece)
            sent += len(piece)
        kept, reading = tracemalloc.get_traced_memory()[0], client.large_responses
        await response.write(b"\n" + frame("ADDED", "small", '""'))
        return response

    async with (
        scripted_server() as server,
        connected(server, tmp_path, settings=ClientSettings(event_bytes=2**22)) as client,
    ):
        server.handlers[PATH] = endless
        tracemalloc.start()
        try:
            events = await events_of(client)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [event["type"] for event in events] == [UNREADABLE, "ADDED"]
    assert peak < 2**24, "of the line's 64 MiB only pieces are in memory"
    assert kept < 2**21, "and only its start, once it is too long"
    assert reading == 0, "and then it needs no slot"


async def test_four_long_lines_are_in_memory_at_a_time(tmp_path: Path) -> None:
    begun, rest = asyncio.Semaphore(0), asyncio.Event()

    async def long(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = frame("ADDED", "big", '"' + "x" * 2**21 + '"')
        await response.write(text[:-10])
        begun.release()
        await rest.wait()
        await response.write(text[-10:])
        return response

    async def reading(count: int) -> bool:
        return client.large_responses == count

    async with scripted_server() as server, connected(server, tmp_path) as client, asyncio.TaskGroup() as tasks:
        server.handlers[PATH] = long
        watches = [tasks.create_task(events_of(client)) for _ in range(6)]
        await eventually(partial(reading, 4), every=0.001)
        for _ in range(4):
            await begun.acquire()
        rest.set()
        assert [len(await watch) for watch in watches] == [1] * 6
        assert client.large_responses == 0


@pytest.mark.looptime
async def test_waiting_for_a_slot_is_no_silence(tmp_path: Path) -> None:
    async def long(request: web.Request) -> web.StreamResponse:
        until = asyncio.get_running_loop().time() + (70 if len(watches) < 5 else 80)
        response = web.StreamResponse()
        await response.prepare(request)
        text = frame("ADDED", "big", '"' + "x" * 2**21 + '"')
        await response.write(text[:-10])  # may take until there is a slot
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        await response.write(text[-10:])
        return response

    async def reading() -> bool:
        return client.large_responses == 4

    watches: list[asyncio.Task[list[dict[str, Any]]]] = []
    async with scripted_server() as server, connected(server, tmp_path) as client, asyncio.TaskGroup() as tasks:
        server.handlers[PATH] = long
        watches += [tasks.create_task(events_of(client)) for _ in range(4)]
        await eventually(reading, every=0.001)
        await asyncio.sleep(5)
        watches.append(tasks.create_task(events_of(client)))
        assert client.silence_seconds == 75
        assert [len(await watch) for watch in watches] == [1] * 5


DEEP = '{"a":' * 2000 + "1" + "}" * 2000


async def test_object_that_is_nested_too_deeply_does_not_end_the_watch(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = lines(frame("ADDED", "big", DEEP), frame("ADDED", "small", '""'))
        first, second = await events_of(client)
    assert (first["type"], first["object"]["metadata"]["name"]) == (UNREADABLE, "big")
    assert second["object"]["metadata"]["name"] == "small"


@pytest.mark.parametrize(
    "start",
    [
        (
            '{"type":"ADDED","object":{"apiVersion":"a/v1","kind":"T","metadata":{"annotations":{"name":"victim",'
            '"namespace":"other"},"name":"big","namespace":"team"},"spec":{"value":"'
        ),
        '{"type":"ADDED","object":{"metadata":{"name":"big","labels":{},"namespace":"team"},"spec":{"value":"',
    ],
    ids=["custom resource", "namespace after labels"],
)
async def test_name_that_is_not_at_the_start_is_not_guessed(start: str, tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = lines(start.encode() + b"x" * (2**24 + 2**20) + b'"}}}\n')
        assert await events_of(client) == [{"type": UNREADABLE}]


async def test_line_that_is_no_event_is_unreachable(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = lines(b"<html>\n")
        with pytest.raises(KubeUnreachable, match="not JSON"):
            await events_of(client)


def in_go_order(collection: Collection) -> Handler:
    """Lists as kube-apiserver writes them: no spaces, the list's metadata first."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await collection.handle(request)
        page = collection._page(request.query.get("continue", ""), int(request.query.get("limit", "0")))
        assert page.text is not None
        body = json.loads(page.text)
        return web.Response(body=json.dumps(body, separators=(",", ":")).encode(), content_type="application/json")

    return handler


def limits(requests: list[str]) -> list[str]:
    return [request.partition("limit=")[2].partition("&")[0] for request in requests]


@pytest.mark.parametrize("place", [0, 3, 11])
async def test_list_goes_on_after_an_object_that_is_too_large(place: int, tmp_path: Path) -> None:
    collection = Collection()
    collection.items = [thing(f"thing-{number}", "1", namespace="team") for number in range(12)]
    collection.items[place] = thing("big", "1", namespace="team", spec="x" * 5000)
    unreadable: list[Any] = []
    async with scripted_server() as server, connected(server, tmp_path, settings=SMALL_PAGES) as client:
        server.handlers[PATH] = in_go_order(collection)
        listed = await list_objects(
            client, PATH, lambda entry: entry["metadata"]["name"], on_unreadable=unreadable.append
        )
        assert listed.items == [f"thing-{number}" for number in range(12) if number != place]
        assert [entry["metadata"]["name"] for entry in unreadable] == ["big"]
        assert listed.version == "1"
        with pytest.raises(ResponseTooLarge):
            await list_objects(client, PATH, lambda entry: entry)


async def test_pages_grow_again_after_a_large_object(tmp_path: Path) -> None:
    collection = Collection()
    collection.items = [thing(f"thing-{number}", "1", namespace="team") for number in range(60)]
    collection.items[0] = thing("big", "1", namespace="team", spec="x" * 5000)
    async with scripted_server() as server, connected(server, tmp_path, settings=SMALL_PAGES) as client:
        server.handlers[PATH] = in_go_order(collection)
        await list_objects(client, PATH, lambda entry: entry, on_unreadable=lambda _: None)
        assert limits(server.requests) == ["40", "4", "1", "1", "2", "4", "8", "16", "32"]


async def test_server_that_ignores_the_limit_hides_no_objects(tmp_path: Path) -> None:
    items = [thing("big", "1", spec="x" * 5000), thing("other", "1")]
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
    async with scripted_server() as server, connected(server, tmp_path, settings=SMALL_PAGES) as client:

        async def whole(_: web.Request) -> web.StreamResponse:
            return web.Response(body=body)

        server.handlers[PATH] = whole
        with pytest.raises(ResponseTooLarge):
            await list_objects(client, PATH, lambda entry: entry, on_unreadable=lambda _: None)


async def test_version_of_a_collection_whose_first_object_is_too_large(tmp_path: Path) -> None:
    collection = Collection()
    collection.version = "12"
    collection.items = [thing("big", "1", spec="x" * 5000), thing("other", "1")]
    async with scripted_server() as server, connected(server, tmp_path, settings=SMALL_PAGES) as client:
        server.handlers[PATH] = in_go_order(collection)
        assert await collection_version(client, PATH) == "12"


@pytest.mark.looptime
async def test_list_whose_pages_take_too_long_has_smaller_ones(tmp_path: Path) -> None:
    items = [thing(f"thing-{number}", "1") for number in range(20)]
    limits: list[int] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        limits.append(limit)
        metadata = {"resourceVersion": "1", **({"continue": str(start + limit)} if start + limit < len(items) else {})}
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f'{{"metadata":{json.dumps(metadata)},"items":['.encode())
        for number, item in enumerate(items[start : start + limit]):
            await asyncio.sleep(4)
            await response.write((b"," if number else b"") + json.dumps(item).encode())
        await response.write(b"]}")
        return response

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = handler
        listed = await list_objects(client, PATH, lambda entry: entry["metadata"]["name"])
    assert listed.items == [f"thing-{number}" for number in range(20)]
    assert limits[:3] == [500, 50, 5]


@pytest.mark.looptime
async def test_silent_server_is_not_asked_for_smaller_pages(tmp_path: Path) -> None:
    requests = 0

    async def handler(_: web.Request) -> web.StreamResponse:
        nonlocal requests
        requests += 1
        await asyncio.Event().wait()
        raise AssertionError

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = handler
        with pytest.raises(KubeUnreachable, match="did not respond in time"):
            await list_objects(client, PATH, lambda entry: entry)
    assert requests == 1


async def test_list_goes_on_after_an_object_that_is_nested_too_deeply(tmp_path: Path) -> None:
    items = [json.dumps(thing(f"thing-{number}", "1")) for number in range(5)]
    items[2] = json.dumps(thing("deep", "1", spec=0)).replace("0}", DEEP + "}")
    unreadable: list[Any] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        rest = f',"continue":"{start + limit}"' if start + limit < len(items) else ""
        page = ",".join(items[start : start + limit])
        return web.Response(text=f'{{"metadata":{{"resourceVersion":"1"{rest}}},"items":[{page}]}}')

    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = handler
        listed = await list_objects(
            client, PATH, lambda entry: entry["metadata"]["name"], on_unreadable=unreadable.append
        )
    assert listed.items == ["thing-0", "thing-1", "thing-3", "thing-4"]
    assert [entry["metadata"]["name"] for entry in unreadable] == ["deep"]


# --- stores --------------------------------------------------------------------------------------------------------


virtual_time = pytest.mark.looptime(start=time.monotonic)


def colour(entry: Mapping[str, Any]) -> str | None:
    """Select the colour; a number is a bug."""
    found = entry.get("colour")
    if found == "many":
        raise TooLargeError("too much")
    return found.lower() if found is not None else None


class Running:
    """A running store of a collection in namespace `team`."""

    def __init__(self, store: Store[str], collection: Collection) -> None:
        self.store, self.collection = store, collection

    async def until(self, name: str, value: str | None) -> None:
        await until(lambda: self.store.get("team", name) == value)

    async def watch(self) -> Watch:
        return await asyncio.wait_for(self.collection.watches.get(), 60)


@contextlib.asynccontextmanager
async def running(
    folder: Path, *items: dict[str, Any], fails_on: str = "", settings: ClientSettings = SHORT_EVENTS
) -> AsyncIterator[Running]:
    async with scripted_server() as server, connected(server, folder, settings=settings) as client:
        collection = Collection()
        collection.items = list(items)
        server.handlers[PATH] = in_go_order(collection)

        def on_change(key: Key, _old: str | None, new: str | None) -> None:
            if new is not None and new == fails_on:
                raise ZeroDivisionError(key)

        store = Store(client, PATH, colour, on_change=on_change)
        task = asyncio.create_task(store.run())
        try:
            await asyncio.wait_for(store.wait_synced(), 60)
            yield Running(store, collection)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


def named(name: str, version: str = "2", **fields: Any) -> dict[str, Any]:
    return thing(name, version, namespace="team", **fields)


@virtual_time
async def test_object_that_cannot_be_read_is_unknown_and_the_others_are_up_to_date(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, named("big", colour="red"), named("other", colour="red")) as r:
        watch = await r.watch()
        for _ in range(2):
            watch.send("MODIFIED", named("big", colour="blue", spec="x" * 2**19))
        watch.send("MODIFIED", named("other", colour="blue"))
        await r.until("other", "blue")
        assert r.store.get("team", "big") == "red"
        assert r.store.is_unknown("team", "big")
        assert r.store.is_unknown("team")
        assert not r.store.is_unknown("team", "other")
        assert not r.store.is_unknown("default")
        assert r.store.problem is None
        assert [record.message for record in caplog.records] == [
            f"{PATH}: team/big cannot be read; what was known of it stays"
        ]
        watch.send("MODIFIED", named("big", colour="green"))
        await r.until("big", "green")
        assert not r.store.is_unknown("team")
        assert r.collection.lists == 1, "the watch went on"


@virtual_time
async def test_unknown_object_is_forgotten_when_it_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, named("big", colour="red"), named("other", colour="red")) as r:
        watch = await r.watch()
        for kind in ("MODIFIED", "DELETED"):
            watch.send(kind, named("big", colour="blue", spec="x" * 2**19))
        watch.send("MODIFIED", named("other", colour="blue"))
        await r.until("other", "blue")
        assert r.store.get("team", "big") is None
        assert not r.store.is_unknown("team")


@virtual_time
async def test_unreadable_object_without_a_name_has_the_collection_listed(tmp_path: Path) -> None:
    async with running(tmp_path, named("big", colour="red"), named("other", colour="red")) as r:
        watch = await r.watch()
        r.collection.items[0] = named("big", colour="blue")
        watch.send("MODIFIED", {"metadata": {"labels": {}, "name": "big", "namespace": "team"}, "spec": "x" * 2**19})
        await r.until("big", "blue")
        await r.watch()
        assert r.collection.lists == 2
        assert r.store.problem is None


@virtual_time
async def test_object_of_a_list_that_is_too_large_is_unknown_and_kept(tmp_path: Path) -> None:
    listed = named("big", colour="red"), named("other", colour="red")
    async with running(tmp_path, *listed, settings=ClientSettings(page_bytes=4000)) as r:
        watch = await r.watch()
        r.collection.items = [named("big", colour="blue", spec="x" * 5000), named("other", colour="blue")]
        watch.refuse(410)
        await r.until("other", "blue")
        watch = await r.watch()
        assert r.store.get("team", "big") == "red"
        assert r.store.is_unknown("team", "big")
        assert r.store.problem is None
        r.collection.items = [named("other", colour="blue")]
        watch.refuse(410)
        await r.until("big", None)
        await r.watch()
        assert not r.store.is_unknown("team")


@virtual_time
async def test_object_that_select_fails_on_is_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, named("listed", colour=5), named("other", colour="red")) as r:
        watch = await r.watch()
        assert r.store.is_unknown("team", "listed")
        assert r.store.get("team", "other") == "red"
        for version in ("3", "4"):
            watch.send("MODIFIED", named("other", version, colour=5))
        watch.send("ADDED", named("last", colour="red"))
        await r.until("last", "red")
        assert r.store.get("team", "other") == "red"
        assert r.store.is_unknown("team", "other")
    assert sum(record.exc_info is not None for record in caplog.records) == 2, "one traceback for each object"


@virtual_time
async def test_object_of_which_too_much_would_be_kept_is_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, named("listed", colour="many"), named("other", colour="red")) as r:
        watch = await r.watch()
        assert r.store.is_unknown("team", "listed")
        watch.send("MODIFIED", named("other", "3", colour="many"))
        watch.send("MODIFIED", named("listed", "4", colour="red"))
        await r.until("listed", "red")
        assert r.store.get("team", "other") == "red"
        assert r.store.is_unknown("team", "other")
        assert not r.store.is_unknown("team", "listed")
    assert "too much" in caplog.text
    assert "Traceback" not in caplog.text


@virtual_time
async def test_internal_error_ends_no_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, named("a", colour="red"), fails_on="broken") as r:
        watch = await r.watch()
        r.collection.items = [named("a", colour="broken"), named("b", colour="red")]
        watch.send("MODIFIED", named("a", colour="broken"))
        await until(lambda: str(r.store.failure) == "internal error: ('team', 'a')")
        await r.until("b", "red")
        assert (await r.watch()).from_version == "1"
        assert r.store.problem is None
    assert "internal error; listing again" in caplog.text
