"""Objects in memory: which are listed, which are watched, and the behaviour when that fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter.metrics.objects import WatchedObjects
from adapter.settings import ObjectSettings
from kube.api.mapping import ResourceInfo
from kube.cache.store import Store
from kube.values.selectors import LabelSelector
from tests.eventually import eventually
from tests.kube.scripted import Collection, ScriptedServer, connected, respond, scripted_server, thing

PODS = ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True)
NODES = ResourceInfo("", "v1", "Node", "nodes", "node", namespaced=False)
ALL = LabelSelector()
WEB = LabelSelector.parse("app=web")


def pod(name: str, version: str, *, namespace: str = "shop", **labels: str) -> dict[str, Any]:
    found = thing(name, version, namespace=namespace)
    found["metadata"]["labels"] = labels
    return found


# Virtual time: an idle kind is dropped because its time is up, not because the machine is slow.
pytestmark = pytest.mark.looptime


class WatchedEnv:
    def __init__(
        self, server: ScriptedServer, objects: WatchedObjects, pods: Collection, nodes: Collection, direct: Collection
    ) -> None:
        self.server, self.objects, self.pods, self.nodes, self.direct = server, objects, pods, nodes, direct

    async def names(self, selector: LabelSelector = ALL, namespace: str = "shop") -> list[str]:
        return await self.objects.names(PODS, namespace, selector)

    async def follows(self, collection: Collection) -> Any:
        """Wait until a collection is watched; the watch."""
        watch = await asyncio.wait_for(collection.watches.get(), 60)
        watch.open()
        return watch


@asynccontextmanager
async def env(folder: Path, **options: Any) -> AsyncIterator[WatchedEnv]:
    pods, nodes, direct = Collection(), Collection(), Collection()
    pods.items = [pod("web-1", "1", app="web"), pod("web-0", "1", app="web"), pod("db-0", "1", app="db")]
    nodes.items = [thing("node-0", "1", namespace="")]
    direct.items = [pod("listed", "1")]
    async with scripted_server() as server, connected(server, folder) as client:
        server.handlers |= {
            "/api/v1/pods": pods.handle,
            "/api/v1/nodes": nodes.handle,
            "/api/v1/namespaces/shop/pods": direct.handle,
        }
        objects = WatchedObjects(client, **options)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(objects.run())
            await asyncio.sleep(0)  # it begins
            try:
                yield WatchedEnv(server, objects, pods, nodes, direct)
            finally:
                running.cancel()


async def test_requests_for_followed_kinds_list_nothing(tmp_path: Path) -> None:
    async with env(tmp_path) as cluster:
        await cluster.follows(cluster.pods)
        for _ in range(1000):
            assert await cluster.names(WEB) == ["web-0", "web-1"]
        assert await cluster.names() == ["db-0", "web-0", "web-1"]
        assert await cluster.names(namespace="empty") == []
        assert (cluster.pods.lists, cluster.direct.lists) == (1, 0)


async def test_cache_of_names_is_bounded_whatever_clients_request(tmp_path: Path) -> None:
    async with env(tmp_path) as cluster:
        await cluster.follows(cluster.pods)
        for number in range(300):
            assert await cluster.names(namespace=f"none-{number}") == []
            assert await cluster.names(LabelSelector.parse(f"app=web,more!={number}")) == ["web-0", "web-1"]
        assert await cluster.names(LabelSelector.parse(f"app=web,{','.join(f'no-{n}!=x' for n in range(300))}")) == [
            "web-0",
            "web-1",
        ]
        followed = cluster.objects._followed[PODS.group_resource]
        assert list(followed.names) == ["shop"]
        assert sum(map(len, followed.names["shop"])) < 100 * 30


async def test_changes_are_followed(tmp_path: Path) -> None:
    async with env(tmp_path) as cluster:
        watch = await cluster.follows(cluster.pods)
        watch.send("ADDED", pod("web-2", "2", app="web"))
        watch.send("MODIFIED", pod("web-0", "3", app="db"))
        watch.send("DELETED", pod("web-1", "4", app="web"))

        async def followed() -> bool:
            return await cluster.names(WEB) == ["web-2"]

        await eventually(followed, within=5.0, every=0.01)


async def test_only_metadata_is_transferred(tmp_path: Path) -> None:
    """A pod as a whole takes fifty times as much."""
    async with env(tmp_path) as cluster:
        await cluster.follows(cluster.pods)
        requests = zip(cluster.server.requests, cluster.server.headers, strict=True)
        forms = {
            "watch=true" in line: headers["Accept"] for line, headers in requests if line.startswith("GET /api/v1/pods")
        }
    of_metadata = "application/json;as={};g=meta.k8s.io;v=v1"
    assert forms == {
        False: of_metadata.format("PartialObjectMetadataList"),
        True: of_metadata.format("PartialObjectMetadata"),
    }


async def test_objects_with_megabytes_of_labels_are_left_out(tmp_path: Path) -> None:
    async with env(tmp_path) as cluster:
        many = {f"team/{n}": "" for n in range(2_000)}
        cluster.pods.items.append(pod("large", "1", app="web", **many))
        watch = await cluster.follows(cluster.pods)
        assert await cluster.names(WEB) == ["web-0", "web-1"]
        watch.send("ADDED", pod("late", "2", app="web", **many))
        watch.send("ADDED", pod("last", "3", app="web"))
        await eventually(lambda: has(cluster, "last"))
        assert await cluster.names(WEB) == ["last", "web-0", "web-1"]
        assert cluster.direct.lists == 0


async def has(cluster: WatchedEnv, name: str) -> bool:
    return name in await cluster.names()


async def test_number_of_watched_kinds_is_bounded(tmp_path: Path) -> None:
    """Clients choose the kinds in requests, and each watched kind costs a connection and memory."""
    kinds = [
        ResourceInfo("many.example", "v1", f"Kind{n}", f"kinds{n}", f"kind{n}", namespaced=True) for n in range(60)
    ]
    paths = [f"/apis/many.example/v1/kinds{n}" for n in range(60)]
    async with env(tmp_path) as cluster:
        direct = respond({"items": [thing("listed", "1")]})
        cluster.server.handlers |= {kind.path(namespace="shop"): direct for kind in kinds}
        followed = [Collection() for _ in kinds]
        cluster.server.handlers |= {path: one.handle for path, one in zip(paths, followed, strict=True)}
        for kind in kinds:
            assert await cluster.objects.names(kind, "shop", ALL) == ["listed"]
        for one in followed[:49]:  # and pods
            await cluster.follows(one)
        assert [one.lists for one in followed] == [1] * 49 + [0] * 11
        assert await cluster.objects.names(kinds[59], "shop", ALL) == ["listed"]


@pytest.mark.parametrize("code", [403, 500])
async def test_each_request_lists_where_watching_is_forbidden(tmp_path: Path, code: int) -> None:
    async with env(tmp_path) as cluster:
        (await asyncio.wait_for(cluster.pods.watches.get(), 60)).refuse(code)

        async def lists() -> bool:
            return await cluster.names() == ["listed"]

        await eventually(lists, within=5.0, every=0.01)
        before = cluster.direct.lists
        assert await cluster.names() == ["listed"]
        assert cluster.direct.lists == before + 1


@pytest.mark.parametrize(("silent_seconds", "found"), [(89.9, ["web-0", "web-1", "web-2"]), (90.0, ["listed"])])
async def test_each_request_lists_while_the_watch_is_silent(
    silent_seconds: float, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with env(tmp_path) as cluster:
        watch = await cluster.follows(cluster.pods)
        watch.send("ADDED", pod("web-2", "2", app="web"))

        async def heard() -> bool:
            return len(await cluster.names(WEB)) == 3

        await eventually(heard, within=5.0, every=0.01)
        monkeypatch.setattr(Store, "silent_seconds", silent_seconds)
        assert await cluster.names(WEB) == found


async def test_each_request_lists_the_namespace_of_an_object_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with env(tmp_path) as cluster:
        watch = await cluster.follows(cluster.pods)
        watch.send("ADDED", pod("web-2", "2", namespace="other", app="web"))

        async def others() -> bool:
            return await cluster.names(WEB, "other") == ["web-2"]

        await eventually(others, every=0.01)
        assert await cluster.names(WEB) == ["web-0", "web-1"]
        monkeypatch.setattr(Store, "is_unknown", lambda _, namespace: namespace == "shop")
        assert await cluster.names(WEB) == ["listed"]
        assert await others()


async def test_other_kinds_are_watched_while_they_are_requested(tmp_path: Path) -> None:
    async with env(tmp_path, settings=ObjectSettings(idle_seconds=0.3), check_seconds=0.05) as cluster:
        assert cluster.nodes.lists == 0
        await cluster.objects.names(NODES, "", ALL)
        await cluster.follows(cluster.nodes)
        lists = cluster.nodes.lists
        assert await cluster.objects.names(NODES, "", ALL) == ["node-0"]
        assert cluster.nodes.lists == lists
        await asyncio.sleep(0.6)  # without requests
        await cluster.objects.names(NODES, "", ALL)
        assert cluster.nodes.lists > lists
        await cluster.follows(cluster.nodes)
        assert cluster.pods.lists == 1


async def test_objects_by_name_and_of_all_namespaces(tmp_path: Path) -> None:
    async with env(tmp_path) as cluster:
        cluster.pods.items.append(pod("web-0", "1", namespace="other", app="web"))
        await cluster.follows(cluster.pods)
        found = await cluster.objects.objects(PODS, namespace="shop", selector=WEB, name="web-0")
        assert [(one.namespace, one.name, dict(one.labels)) for one in found] == [("shop", "web-0", {"app": "web"})]
        assert await cluster.objects.objects(PODS, namespace="shop", selector=WEB, name="db-0") == []
        everywhere = await cluster.objects.objects(PODS, namespace="", selector=WEB)
        assert [(one.namespace, one.name) for one in everywhere] == [
            ("other", "web-0"),
            ("shop", "web-0"),
            ("shop", "web-1"),
        ]
        named = await cluster.objects.objects(PODS, namespace="", selector=ALL, name="web-0")
        assert [(one.namespace, one.name) for one in named] == [("other", "web-0"), ("shop", "web-0")]


async def test_each_request_lists_during_the_first_list(tmp_path: Path) -> None:
    """Half a list would look as if the other objects were gone."""
    async with env(tmp_path) as cluster:
        assert await cluster.names() == ["listed"]
        await cluster.follows(cluster.pods)
        assert await cluster.names(WEB) == ["web-0", "web-1"]
        assert cluster.direct.lists == 1


async def test_pods_are_followed_without_requests(tmp_path: Path) -> None:
    async with env(tmp_path, settings=ObjectSettings(idle_seconds=0.0), check_seconds=0.01) as cluster:
        await cluster.follows(cluster.pods)
        await cluster.objects.names(NODES, "", ALL)
        await cluster.follows(cluster.nodes)

        async def nodes_are_given_up() -> bool:
            lists = cluster.nodes.lists
            await cluster.objects.names(NODES, "", ALL)
            return cluster.nodes.lists > lists

        await eventually(nodes_are_given_up, within=5.0, every=0.05)
        assert await cluster.names(WEB) == ["web-0", "web-1"]
        assert (cluster.pods.lists, cluster.direct.lists) == (1, 0)
