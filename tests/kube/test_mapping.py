"""RestMapper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api.client import ResponseTooLarge
from kube.api.mapping import GroupResource, NoMatchError, RestMapper
from tests.eventually import eventually
from tests.kube.scripted import Handler, Held, ScriptedServer, connected, raw, respond, scripted_server


def group(name: str, *versions: str, preferred: str) -> dict[str, object]:
    return {
        "name": name,
        "versions": [{"groupVersion": f"{name}/{version}", "version": version} for version in versions],
        "preferredVersion": {"version": preferred},
    }


def resource(name: str, kind: str, *, singular: str = "", namespaced: bool = True) -> dict[str, object]:
    return {"name": name, "singularName": singular, "kind": kind, "namespaced": namespaced, "verbs": ["get"]}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def mapper(folder: Path) -> AsyncIterator[tuple[RestMapper, ScriptedServer, Clock]]:
    async with scripted_server() as server, connected(server, folder) as client:
        groups = [
            group("apps", "v1beta1", "v1", preferred="v1"),
            group("down.example", "v1", preferred="v1"),
            group("custom.metrics.k8s.io", "v1beta1", preferred="v1beta1"),
        ]
        server.handlers["/apis"] = respond({"groups": groups})
        server.handlers["/api/v1"] = respond(
            {
                "resources": [
                    resource("pods", "Pod", singular="pod"),
                    resource("pods/status", "Pod"),
                    resource("namespaces", "Namespace", singular="namespace", namespaced=False),
                ]
            }
        )
        deployments = [resource("deployments", "Deployment"), resource("deployments/scale", "Scale")]
        server.handlers["/apis/apps/v1"] = respond({"resources": deployments})
        server.handlers["/apis/apps/v1beta1"] = respond({"resources": deployments})
        server.handlers["/apis/custom.metrics.k8s.io/v1beta1"] = respond(
            {"resources": [resource("pods/pods", "MetricValueList"), resource("widgets", "MetricValueList")]}
        )
        clock = Clock()
        yield RestMapper(client, refresh_seconds=10, clock=clock), server, clock


@pytest.mark.parametrize("name", ["pods", "pod", "Pods"])
async def test_resource_is_found_by_plural_and_singular(name: str, tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        found = await rest.resource_for(name)
        assert (found.kind, found.plural, found.api_version, found.namespaced) == ("Pod", "pods", "v1", True)
        # Without a group it is found in any group; where discovery gives no singular name it is the kind's.
        assert (await rest.resource_for("deployments")).group_resource == GroupResource("apps", "deployments")
        assert (await rest.resource_for("deployment", "apps")).api_version == "apps/v1"
        # The preferred version comes first.
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v1", "v1beta1"]


async def test_resource_paths(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        pods, namespaces = await rest.resource_for("pods"), await rest.resource_for("namespaces")
        deployments = await rest.resource_for("deployments")
        assert pods.path() == "/api/v1/pods"
        assert pods.path("default", "web-0") == "/api/v1/namespaces/default/pods/web-0"
        assert namespaces.path("", "default") == "/api/v1/namespaces/default"
        # The API server has no such path, so that nobody reaches a cluster-scoped object through a namespace.
        assert namespaces.path("a", "default") == "/api/v1/namespaces/a/namespaces/default"
        assert deployments.path("a", "b", "scale") == "/apis/apps/v1/namespaces/a/deployments/b/scale"


async def test_metrics_and_subresources_are_left_out(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        with pytest.raises(NoMatchError, match='no matches for resource "widgets"'):
            await rest.resource_for("widgets")
        with pytest.raises(NoMatchError, match='no matches for kind "Scale" in group "apps"'):
            await rest.mappings_for_kind("apps", "Scale")


async def test_unknown_name_is_looked_up_again_after_the_refresh_interval(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        with pytest.raises(NoMatchError):
            await rest.resource_for("widgets", "down.example")
        server.handlers["/apis/down.example/v1"] = respond({"resources": [resource("widgets", "Widget")]})
        with pytest.raises(NoMatchError):
            await rest.resource_for("widgets", "down.example")
        assert readings(server) == 1
        clock.now = 10.0
        assert (await rest.resource_for("widgets", "down.example")).kind == "Widget"
        await rest.resource_for("pods")
        assert readings(server) == 2


async def test_unknown_group_is_looked_up_again_after_the_refresh_interval(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        for number in range(20):
            with pytest.raises(NoMatchError, match=f'no matches for kind "X" in group "no-{number}"'):
                await rest.mappings_for_kind(f"no-{number}", "X")
        assert server.requests == ["GET /apis"]
        server.handlers["/apis"] = respond({"groups": [group("no-1", "v1", preferred="v1")]})
        server.handlers["/apis/no-1/v1"] = respond({"resources": [resource("xs", "X")]})
        clock.now = 10.0
        assert [info.plural for info in await rest.mappings_for_kind("no-1", "X")] == ["xs"]


async def test_new_resource_is_found_in_any_group_once_discovery_has_expired(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        with pytest.raises(NoMatchError):
            await rest.resource_for("widgets")
        read = len(server.requests)
        groups = [group("new.example", "v1", preferred="v1")]
        server.handlers["/apis"] = respond({"groups": groups})
        server.handlers["/apis/new.example/v1"] = respond({"resources": [resource("widgets", "Widget")]})
        clock.now = 29.9
        with pytest.raises(NoMatchError):
            await rest.resource_for("widgets")
        assert server.requests[read:] == ["GET /api/v1"]
        clock.now = 30.0
        assert (await rest.resource_for("widgets")).group == "new.example"


async def test_only_groups_that_are_named_are_read(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, _):
        await rest.mappings_for_kind("apps", "Deployment")
        assert sorted(server.requests) == ["GET /apis", "GET /apis/apps/v1", "GET /apis/apps/v1beta1"]
        assert server.headers[0]["Accept"] == "application/json"


async def test_metrics_are_never_read(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, _):
        with pytest.raises(NoMatchError):
            await rest.mappings_for_kind("custom.metrics.k8s.io", "MetricValueList")
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets")
        assert not [request for request in server.requests if "metrics" in request]


async def test_group_that_is_too_large_hides_no_other(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, _):
        server.handlers["/apis"] = respond(
            {"groups": [group(name, "v1", preferred="v1") for name in ("large.example", "apps")]}
        )
        server.handlers["/apis/large.example/v1"] = raw(b"[" + b" " * 2**24 + b"]")
        assert (await rest.resource_for("deployments")).group == "apps"
        assert (await rest.mappings_for_kind("apps", "Deployment"))[0].version == "v1"
        with pytest.raises(ResponseTooLarge):
            await rest.mappings_for_kind("large.example", "Thing")


async def test_group_that_cannot_be_read_keeps_its_resources(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await rest.resource_for("deployments", "apps")
        server.handlers["/apis/apps/v1"] = respond({"kind": "Status", "code": 503}, status=503)
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets", "apps")
        assert server.requests.count("GET /apis/apps/v1") == 2
        assert (await rest.resource_for("deployments", "apps")).version == "v1"


async def test_removed_version_is_dropped(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await rest.resource_for("deployments", "apps")
        del server.handlers["/apis/apps/v1"]
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets", "apps")
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v1beta1"]


async def test_callers_wait_for_hanging_discovery_together(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, _):
        server.handlers["/apis/apps/v1"] = held = Held(respond({"kind": "Status", "code": 500}, status=500))
        async with asyncio.TaskGroup() as tasks:
            lookups = [tasks.create_task(rest.mappings_for_kind("apps", "Deployment")) for _ in range(21)]
            await asyncio.wait_for(held.arrived.wait(), 60)
            assert (await rest.resource_for("pods")).kind == "Pod", "other groups do not wait"
            held.open.set()
            for lookup in lookups:
                assert [info.version for info in await lookup] == ["v1beta1"]
        assert held.times == 1


# --- what is known grows old ---------------------------------------------------------------------------------------


async def served(rest: RestMapper, version: str, kind: str = "Deployment") -> None:
    """Wait until this is the preferred version of a kind in the group apps."""

    async def is_served() -> bool:
        return (await rest.mappings_for_kind("apps", kind))[0].version == version

    await eventually(is_served, within=10, every=0.001)


def readings(server: ScriptedServer) -> int:
    return server.requests.count("GET /apis")


async def test_kind_moves_to_another_version_after_30_seconds(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await served(rest, "v1")
        server.handlers["/apis"] = respond({"groups": [group("apps", "v2", preferred="v2")]})
        server.handlers["/apis/apps/v2"] = respond({"resources": [resource("deployments", "Deployment")]})
        clock.now = 29.9
        assert (await rest.resource_for("deployments", "apps")).version == "v1"
        assert readings(server) == 1
        clock.now = 30.0
        # This one does not wait.
        assert (await rest.resource_for("deployments", "apps")).version == "v1"
        await served(rest, "v2")
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v2"]
        assert readings(server) == 2


async def test_expired_discovery_is_read_once_for_concurrent_lookups(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await served(rest, "v1")
        held = Held(respond({"groups": [group("apps", "v1beta1", preferred="v1beta1")]}))
        server.handlers["/apis"] = held
        clock.now = 30.0
        await served(rest, "v1")
        await asyncio.wait_for(held.arrived.wait(), 60)
        for _ in range(10):
            await served(rest, "v1")
        looking = asyncio.create_task(rest.resource_for("gadgets", "apps"))
        held.open.set()
        await served(rest, "v1beta1")
        with pytest.raises(NoMatchError):
            await looking
        assert readings(server) == 2


@pytest.mark.parametrize("failure", [respond({"kind": "Status", "code": 500}, status=500), raw(b"<html>")])
async def test_failed_refresh_keeps_discovery_and_is_retried(failure: Handler, tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await served(rest, "v1")
        good, server.handlers["/apis"] = server.handlers["/apis"], failure
        clock.now = 30.0
        await served(rest, "v1")

        async def tried() -> bool:
            return readings(server) == 2

        await eventually(tried, within=10, every=0.001)
        await refreshed(rest)
        clock.now = 59.9
        await served(rest, "v1")
        server.handlers["/apis"] = good
        del server.handlers["/apis/apps/v1"]
        clock.now = 60.0
        await served(rest, "v1beta1")
        assert readings(server) == 3


async def refreshed(rest: RestMapper) -> None:
    """Wait for the refreshes in the background."""
    for refreshing in (rest._versions.refreshing, *(each.refreshing for each in rest._groups.values())):
        if refreshing is not None:
            await asyncio.wait([refreshing])
