"""Lists of collections, in pages."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kube.api import listing as listing_module
from kube.api.client import ClientSettings, KubeUnreachable
from kube.api.listing import list_objects
from tests.kube.scripted import Collection, LoopIterations, connected, raw, respond, scripted_server, thing

PATH = "/api/v1/things"


def name_of(entry: Any) -> str | None:
    """Keep the names of objects, except for `plain`."""
    name = str(entry["metadata"]["name"])
    return None if name == "plain" else name


async def test_list_has_a_version_and_the_selected_views(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = respond(
            {"metadata": {"resourceVersion": "7"}, "items": [thing("a", "1"), thing("plain", "2"), thing("b", "3")]}
        )
        listed = await list_objects(client, PATH, name_of, {"labelSelector": "x"}, accept="application/special")
        assert (listed.version, listed.items) == ("7", ["a", "b"])
        assert server.requests == [f"GET {PATH}?labelSelector=x&limit=500"]
        assert server.headers[0]["Accept"] == "application/special"
        server.handlers[PATH] = respond({"metadata": {"resourceVersion": "8"}, "items": None})
        assert (await list_objects(client, PATH, name_of)).items == []


async def test_long_list_is_read_in_pages(tmp_path: Path) -> None:
    async with (
        scripted_server() as server,
        connected(server, tmp_path, settings=ClientSettings(page_objects=2)) as client,
    ):
        collection = Collection()
        collection.items = [thing(f"thing-{number}", "1") for number in range(5)]
        server.handlers[PATH] = collection.handle
        listed = await list_objects(client, PATH, name_of, {"resourceVersion": "0", "labelSelector": "x"})
        assert listed.items == [f"thing-{number}" for number in range(5)]
        # A continue token contains the resourceVersion, so requests with a token must not set it.
        assert server.requests == [
            f"GET {PATH}?resourceVersion=0&labelSelector=x&limit=2",
            f"GET {PATH}?labelSelector=x&limit=2&continue=2",
            f"GET {PATH}?labelSelector=x&limit=2&continue=4",
        ]


async def test_decoding_a_page_yields_to_other_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "_BYTES_AT_ONCE", 2000)
    iterations, seen_at = LoopIterations(), []

    def select(entry: Any) -> str:
        seen_at.append(iterations.count)
        return str(entry["metadata"]["name"])

    async with scripted_server() as server, connected(server, tmp_path) as client:
        small = [thing(f"small-{number}", "1") for number in range(3)]
        large = [thing(f"large-{number}", "1", text=number * "x" + 2000 * "x") for number in range(2)]
        server.handlers[PATH] = respond({"metadata": {"resourceVersion": "7"}, "items": [*small, *large]})
        async with iterations.counted():
            listed = await asyncio.wait_for(list_objects(client, PATH, select), 60)
    assert len(listed.items) == 5
    assert [*Counter(seen_at).values()] == [4, 1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata": {"resourceVersion": "7"}, "items": {}}',
        b'{"metadata": 5, "items": []}',
        b"[]",
        b'"text"',
        b"<html>",
    ],
)
async def test_response_that_is_no_list_is_unreachable(body: bytes, tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = raw(body)
        with pytest.raises(KubeUnreachable, match="the API server's response to a list request is no list"):
            await list_objects(client, PATH, name_of)


async def test_object_that_cannot_be_decoded_is_unreachable(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        server.handlers[PATH] = raw(b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": "\xff"}]}')
        with pytest.raises(KubeUnreachable, match="not JSON"):
            await list_objects(client, PATH, name_of)
