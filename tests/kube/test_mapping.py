"""The REST mapper finds resources by name and kind, and reads discovery no more often than it must."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.mapping import GroupResource, NoMatchError, RestMapper
from tests.kube.scripted import ScriptedServer, answer, connected, scripted_server


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
        server.answers["/apis"] = answer({"groups": groups})
        server.answers["/api/v1"] = answer(
            {
                "resources": [
                    resource("pods", "Pod", singular="pod"),
                    resource("pods/status", "Pod"),
                    resource("namespaces", "Namespace", singular="namespace", namespaced=False),
                ]
            }
        )
        deployments = [resource("deployments", "Deployment"), resource("deployments/scale", "Scale")]
        server.answers["/apis/apps/v1"] = answer({"resources": deployments})
        server.answers["/apis/apps/v1beta1"] = answer({"resources": deployments})
        server.answers["/apis/custom.metrics.k8s.io/v1beta1"] = answer(
            {"resources": [resource("pods/pods", "MetricValueList"), resource("widgets", "MetricValueList")]}
        )
        clock = Clock()
        yield RestMapper(client, refresh_seconds=10, clock=clock), server, clock


@pytest.mark.parametrize("name", ["pods", "pod", "Pods"])
async def test_a_name_is_plural_or_singular(name: str, tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        found = await rest.resource_for(name)
        assert (found.kind, found.plural, found.api_version, found.namespaced) == ("Pod", "pods", "v1", True)


async def test_a_name_without_a_group_is_found_in_any(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        assert (await rest.resource_for("deployments")).group_resource == GroupResource("apps", "deployments")
        # Where discovery gives no singular name it is the kind's.
        assert (await rest.resource_for("deployment", "apps")).api_version == "apps/v1"


async def test_a_kinds_versions_come_preferred_first(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v1", "v1beta1"]


async def test_paths(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        pods, namespaces = await rest.resource_for("pods"), await rest.resource_for("namespaces")
        deployments = await rest.resource_for("deployments")
        assert pods.path() == "/api/v1/pods"
        assert pods.path("default", "web-0") == "/api/v1/namespaces/default/pods/web-0"
        assert namespaces.path("ignored", "default") == "/api/v1/namespaces/default"
        assert deployments.path("a", "b", "scale") == "/apis/apps/v1/namespaces/a/deployments/b/scale"


async def test_metrics_and_subresources_are_no_resources(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, _, _):
        with pytest.raises(NoMatchError, match='no matches for resource "widgets"'):
            await rest.resource_for("widgets")
        with pytest.raises(NoMatchError, match='no matches for kind "Scale" in group "apps"'):
            await rest.mappings_for_kind("apps", "Scale")


async def test_something_new_is_found_but_not_by_asking_all_the_time(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        with pytest.raises(NoMatchError):
            await rest.resource_for("widgets", "down.example")
        server.answers["/apis/down.example/v1"] = answer({"resources": [resource("widgets", "Widget")]})
        with pytest.raises(NoMatchError):
            await rest.resource_for("widgets", "down.example")
        assert server.asked.count("GET /apis") == 1
        clock.now = 10.0
        assert (await rest.resource_for("widgets", "down.example")).kind == "Widget"
        await rest.resource_for("pods")
        assert server.asked.count("GET /apis") == 2


async def test_a_group_that_cannot_be_read_this_time_keeps_what_it_had(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await rest.resource_for("deployments", "apps")
        server.answers["/apis/apps/v1"] = answer({"kind": "Status", "code": 503}, status=503)
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets")
        assert server.asked.count("GET /apis") == 2
        assert (await rest.resource_for("deployments", "apps")).version == "v1"


async def test_a_version_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    async with mapper(tmp_path) as (rest, server, clock):
        await rest.resource_for("deployments", "apps")
        del server.answers["/apis/apps/v1"]
        clock.now = 10.0
        with pytest.raises(NoMatchError):
            await rest.resource_for("gadgets")
        assert [info.version for info in await rest.mappings_for_kind("apps", "Deployment")] == ["v1beta1"]
