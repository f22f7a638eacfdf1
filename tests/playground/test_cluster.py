"""A cluster behaves the same with the playground's API server and a real one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.api.status import StatusError
from playground.cluster import Cluster, start_cluster
from playground.kube_apiserver import ClusterError, find_assets
from tests.eventually import eventually
from tests.objects import deployment

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(
    params=["playground", pytest.param("kube-apiserver", marks=pytest.mark.kubebuilder)],
)
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    if request.param == "playground":
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    async with start_cluster(tmp_path, ready_seconds=0.05) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with await cluster.client() as client:
        yield client


async def pods(client: KubeClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await client.get(PODS, {"labelSelector": "app=web"}))["items"]
    return items


async def settled(client: KubeClient, replicas: int) -> dict[str, Any]:
    """The Deployment, once as many pods are ready as it wants, and no others are left."""

    async def look() -> dict[str, Any]:
        found = await client.get(DEPLOYMENT)
        status = found["status"]
        assert status.get("observedGeneration") == found["metadata"]["generation"]
        assert (status.get("replicas", 0), status.get("readyReplicas", 0)) == (replicas, replicas)
        assert len(await pods(client)) == replicas
        return found

    return await eventually(look, within=15, every=0.05)


async def test_pods_of_a_deployment_run_and_follow_its_scale(admin: KubeClient) -> None:
    await admin.post("/apis/apps/v1/namespaces/default/deployments", deployment(replicas=2))
    found = await settled(admin, 2)
    assert [(one["type"], one["status"]) for one in found["status"]["conditions"]] == [("Available", "True")]
    for pod in await pods(admin):
        assert pod["metadata"]["name"].startswith("web-")
        assert pod["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
        assert pod["status"]["phase"] == "Running"
        assert {one["type"]: one["status"] for one in pod["status"]["conditions"]}["Ready"] == "True"
        assert pod["status"]["startTime"]
    await admin.patch(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 4}})
    await settled(admin, 4)
    await admin.patch(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 0}})
    await settled(admin, 0)


async def test_deleted_pods_are_replaced(admin: KubeClient) -> None:
    await admin.post("/apis/apps/v1/namespaces/default/deployments", deployment(replicas=1))
    await settled(admin, 1)
    old = (await pods(admin))[0]["metadata"]["name"]
    await admin.delete(f"{PODS}/{old}")

    async def replaced() -> bool:
        return [pod["metadata"]["name"] for pod in await pods(admin)] not in ([], [old])

    await eventually(replaced, within=10)


async def test_changed_template_replaces_the_pods(admin: KubeClient) -> None:
    await admin.post("/apis/apps/v1/namespaces/default/deployments", deployment(replicas=2))
    await settled(admin, 2)
    containers = [{"name": "c", "image": "new"}]
    await admin.patch(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}})

    async def replaced() -> bool:
        return [pod["spec"]["containers"][0]["image"] for pod in await pods(admin)] == ["new", "new"]

    await eventually(replaced, within=10)
    assert (await settled(admin, 2))["status"]["updatedReplicas"] == 2


async def test_pods_of_a_deleted_deployment_are_deleted(admin: KubeClient) -> None:
    await admin.post("/apis/apps/v1/namespaces/default/deployments", deployment(replicas=2))
    await settled(admin, 2)
    await admin.delete(DEPLOYMENT, {"propagationPolicy": "Background"})

    async def gone() -> bool:
        return await pods(admin) == []

    await eventually(gone, within=10)


async def test_failing_deployment_does_not_block_others(admin: KubeClient) -> None:
    too_long = "a" * 250  # no room for what a pod's name has after it
    await admin.post("/apis/apps/v1/namespaces/default/deployments", deployment(too_long))
    await admin.post("/apis/apps/v1/namespaces/default/deployments", deployment(replicas=1))
    await settled(admin, 1)


async def test_pods_are_on_a_ready_node(admin: KubeClient) -> None:
    async def ready() -> bool:
        nodes = (await admin.get("/api/v1/nodes"))["items"]
        return [
            (node["metadata"]["name"], one["status"])
            for node in nodes
            for one in node["status"].get("conditions", [])
            if one["type"] == "Ready"
        ] == [("playground", "True")]

    await eventually(ready, within=10)


async def test_users_are_authenticated_by_certificate(cluster: Cluster) -> None:
    async with await KubeClient.connect(cluster.pki.kubeconfig(cluster.url, "ann")) as ann:
        with pytest.raises(StatusError, match=r'pods is forbidden: User "ann" cannot list resource "pods"'):
            await ann.get(PODS)


async def test_discovery_has_the_required_resources(admin: KubeClient) -> None:
    mapper = RestMapper(admin)
    assert (await mapper.resource_for("deployments")).path("ns", "web", "scale").startswith("/apis/apps/v1/")
    kinds = await mapper.mappings_for_kind("autoscaling", "HorizontalPodAutoscaler")
    assert [info.version for info in kinds] == ["v2", "v1"]


async def test_extension_apiserver_authentication_has_the_cas(admin: KubeClient, cluster: Cluster) -> None:
    found = await admin.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    assert found["data"]["requestheader-client-ca-file"] == cluster.pki.requestheader_ca.cert_pem.decode()
    assert found["data"]["client-ca-file"] == cluster.pki.client_ca.cert_pem.decode()
    assert found["data"]["requestheader-allowed-names"] == '["front-proxy-client"]'


def test_missing_assets_are_an_error(tmp_path: Path) -> None:
    assert find_assets({}) is None
    (tmp_path / "etcd").touch()
    with pytest.raises(ClusterError, match=r"there is no kube-apiserver; install them there"):
        find_assets({"KUBEBUILDER_ASSETS": str(tmp_path)})


async def test_error_of_a_failed_start_has_the_end_of_the_log(tmp_path: Path) -> None:
    for program in ("kube-apiserver", "etcd"):
        path = tmp_path / "assets" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {program} is broken\nexit 3\n")
        path.chmod(0o755)
    with pytest.raises(ClusterError, match=r"(?s)etcd ended.*etcd is broken"):
        async with start_cluster(tmp_path / "cluster", assets=tmp_path / "assets"):
            pass
