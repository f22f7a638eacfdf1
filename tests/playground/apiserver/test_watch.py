"""A watch delivers every change once, in order, from the client's version on; or 410 if the client must list again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.cache.store import Store
from playground.apiserver import PlaygroundApiServer
from tests.objects import config_map

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

Event = tuple[str, str]


async def next_events(events: AsyncIterator[dict[str, Any]], count: int) -> list[Event]:
    """The next events that are no bookmarks, as (type, name)."""
    found: list[Event] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            event = await anext(events)
            if event["type"] != "BOOKMARK":
                found.append((event["type"], event["object"]["metadata"]["name"]))
    return found


async def revision(client: KubeClient) -> str:
    return str((await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"])


async def test_watch_resumes_from_a_list(admin: KubeClient) -> None:
    await admin.post(CONFIG_MAPS, config_map("before"))
    since = await revision(admin)
    await admin.post(CONFIG_MAPS, config_map("a"))
    async with aclosing(admin.watch(CONFIG_MAPS, {"resourceVersion": since})) as events:
        assert await next_events(events, 1) == [("ADDED", "a")]
        await admin.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
        await admin.delete(f"{CONFIG_MAPS}/a")
        assert await next_events(events, 2) == [("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["no version", "version 0"])
async def test_watch_without_version_starts_with_all_objects(admin: KubeClient, query: dict[str, str]) -> None:
    await admin.post(CONFIG_MAPS, config_map("a"))
    async with aclosing(admin.watch(CONFIG_MAPS, query)) as events:
        assert await next_events(events, 1) == [("ADDED", "a")]


async def test_selected_labels_add_and_delete_objects(admin: KubeClient) -> None:
    query = {"resourceVersion": await revision(admin), "labelSelector": "tier=front"}
    async with aclosing(admin.watch(CONFIG_MAPS, query)) as events:
        await admin.post(CONFIG_MAPS, config_map("a", tier="back"))
        await admin.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"tier": "front"}}})
        await admin.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"more": "x"}}})
        await admin.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"tier": "back"}}})
        await admin.delete(f"{CONFIG_MAPS}/a")
        await admin.post(CONFIG_MAPS, config_map("last", tier="front"))
        assert await next_events(events, 4) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "last")]


async def test_watch_is_limited_to_its_namespace(admin: KubeClient) -> None:
    query = {"resourceVersion": await revision(admin)}
    async with aclosing(admin.watch(CONFIG_MAPS, query)) as events:
        await admin.post("/api/v1/namespaces/kube-system/configmaps", config_map("elsewhere"))
        await admin.post(CONFIG_MAPS, config_map("here"))
        assert await next_events(events, 1) == [("ADDED", "here")]


async def test_bookmarks_have_the_latest_revision(admin: KubeClient) -> None:
    since = await revision(admin)
    query = {"resourceVersion": since, "allowWatchBookmarks": "true"}
    async with aclosing(admin.watch(CONFIG_MAPS, query)) as events, asyncio.timeout(60):
        await admin.post("/api/v1/namespaces", {"metadata": {"name": "something-else"}})
        bookmark = await anext(events)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) > int(since)


async def test_bookmarks_are_only_sent_if_requested(admin: KubeClient) -> None:
    async with aclosing(admin.watch(CONFIG_MAPS, {"resourceVersion": await revision(admin)}, seconds=1)) as events:
        assert [event async for event in events] == []


async def test_compacted_history_is_410(admin: KubeClient, server: PlaygroundApiServer) -> None:
    since = await revision(admin)
    await admin.post(CONFIG_MAPS, config_map("a"))
    server.storage.compact()
    with pytest.raises(StatusError, match=r"^too old resource version") as refusal:
        async with aclosing(admin.watch(CONFIG_MAPS, {"resourceVersion": since})) as events:
            await anext(events)
    assert (refusal.value.code, refusal.value.reason) == (410, "Expired")


async def test_store_survives_compaction_and_an_outage(admin: KubeClient, server: PlaygroundApiServer) -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()

    def changed(key: tuple[str, str], old: object, new: object) -> None:
        changes.put_nowait(key[1])

    store: Store[str] = Store(admin, CONFIG_MAPS, lambda obj: str(obj["metadata"]["name"]), on_change=changed)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(store.run())
        await store.wait_synced()
        await server.hang_up()
        server.create({**config_map("while-down"), "apiVersion": "v1", "kind": "ConfigMap"})
        server.storage.compact()
        await server.listen()
        assert await changes.get() == "while-down"
        running.cancel()
