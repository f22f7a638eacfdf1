"""RestMapper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from kube.mapping import GroupResource, NoMatchError, ResourceInfo, RestMapper
from tests.eventually import eventually
from tests.kube.scripted import Handler, ScriptedServer, connected, raw, respond, scripted_server


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


async def test_resource_without_a_group_is_found_in_any_group(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        assert (await rest.resource_for("deployments")).group_resource == GroupResource("apps", "deployments")
        # Where discovery gives no singular name it is the kind's.
        assert (await rest.resource_for("deployment", "apps")).api_version == "apps/v1"


async def test_preferred_version_of_a_kind_comes_first(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v1", "v1beta1"]


async def test_resource_paths(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        pods, namespaces = await rest.resource_for("pods"), await rest.resource_for("namespaces")
        deployments = await rest.resource_for("deployments")
        assert pods.path() == "/api/v1/pods"
        assert pods.path("default", "web-0") == "/api/v1/namespaces/default/pods/web-0"
        assert namespaces.path("ignored", "default") == "/api/v1/namespaces/default"
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
        assert server.requests.count("GET /apis") == 1
        clock.now = 10.0
        assert (await rest.resource_for("widgets", "down.example")).kind == "Widget"
        await rest.resource_for("pods")
        assert server.requests.count("GET /apis") == 2


async def test_group_that_cannot_be_read_keeps_its_resources(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await rest.resource_for("deployments", "apps")
        server.handlers["/apis/apps/v1"] = respond({"kind": "Status", "code": 503}, status=503)
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets")
        assert server.requests.count("GET /apis") == 2
        assert (await rest.resource_for("deployments", "apps")).version == "v1"


async def test_removed_version_is_dropped(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await rest.resource_for("deployments", "apps")
        del server.handlers["/apis/apps/v1"]
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets")
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v1beta1"]


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
        requests, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: web.Request) -> web.StreamResponse:
            requests.set()
            await go_on.wait()
            return web.json_response({"groups": [group("apps", "v1beta1", preferred="v1beta1")]})

        server.handlers["/apis"] = slow
        clock.now = 30.0
        await served(rest, "v1")
        await asyncio.wait_for(requests.wait(), 60)
        for _ in range(10):
            await served(rest, "v1")
        looking = asyncio.create_task(rest.resource_for("gadgets"))
        go_on.set()
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
        assert rest._refreshing is not None
        await asyncio.wait_for(asyncio.shield(rest._refreshing), 60)
        clock.now = 59.9
        await served(rest, "v1")
        server.handlers["/apis"] = good
        del server.handlers["/apis/apps/v1"]
        clock.now = 60.0
        await served(rest, "v1beta1")
        assert readings(server) == 3


# --- aggregated discovery ------------------------------------------------------------------------------------------


def aggregated(*groups: dict[str, object]) -> dict[str, object]:
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": list(groups)}


def aggregated_group(name: str, **versions: list[dict[str, object]] | None) -> dict[str, object]:
    """Return a group with versions in the order of preference; None: its server is down."""
    return {
        "metadata": {"name": name} if name else {"creationTimestamp": None},
        "versions": [
            {"version": version, "resources": resources or [], "freshness": "Current" if resources else "Stale"}
            for version, resources in versions.items()
        ],
    }


def aggregated_resource(name: str, kind: str, *, singular: str = "", scope: str = "Namespaced") -> dict[str, object]:
    response = {"group": "", "version": "", "kind": kind}
    return {"resource": name, "responseKind": response, "scope": scope, "singularResource": singular}


PODS = aggregated_resource("pods", "Pod", singular="pod")
NODES = aggregated_resource("nodes", "Node", scope="Cluster")
DEPLOYMENTS = aggregated_resource("deployments", "Deployment", singular="deployment")


async def test_aggregated_discovery_takes_two_requests(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, _):
        server.handlers["/api"] = respond(aggregated(aggregated_group("", v1=[PODS, NODES])))
        server.handlers["/apis"] = respond(
            aggregated(
                aggregated_group("apps", v1=[DEPLOYMENTS], v1beta1=[DEPLOYMENTS]),
                aggregated_group("custom.metrics.k8s.io", v1beta2=[aggregated_resource("widgets", "MetricValueList")]),
                aggregated_group("odd.example", v1=[{"resource": "things"}, {"responseKind": {"kind": "Thing"}}]),
            )
        )
        pods, nodes = await rest.resource_for("pod"), await rest.resource_for("nodes")
        assert pods == ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True)
        assert nodes == ResourceInfo("", "v1", "Node", "nodes", "node", namespaced=False)
        deployments = await rest.mappings_for_kind("apps", "Deployment")
        assert [info.path("a", "b", "scale") for info in deployments] == [
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "/apis/apps/v1beta1/namespaces/a/deployments/b/scale",
        ]
        for unknown in ("widgets", "things"):
            with pytest.raises(NoMatchError):
                await rest.resource_for(unknown)
        assert server.requests == ["GET /apis", "GET /api"]
        assert server.headers[0]["Accept"] == (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
            "application/json"
        )


async def test_stale_aggregated_group_keeps_its_resources(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        server.handlers["/api"] = respond(aggregated(aggregated_group("", v1=[PODS])))
        server.handlers["/apis"] = respond(aggregated(aggregated_group("apps", v1=[DEPLOYMENTS])))
        await served(rest, "v1")
        server.handlers["/apis"] = respond(aggregated(aggregated_group("apps", v1=None)))
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets")
        assert readings(server) == 2
        assert (await rest.resource_for("deployments", "apps")).version == "v1"
