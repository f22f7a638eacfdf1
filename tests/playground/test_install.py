"""The manifests' objects, adapted to processes that run beside the cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer
from playground.binaries import find_async
from playground.install import InstallError, Manifests, apply, write_account_kubeconfig


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PlaygroundApiServer]:
    async with PlaygroundApiServer(tmp_path / "cluster") as server:
        yield server


@pytest.fixture
async def client(server: PlaygroundApiServer) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(server.kubeconfig()) as client:
        yield client


@pytest.fixture
async def manifests() -> Manifests:
    return await Manifests.render(await find_async("kubectl"))


async def test_process_has_only_the_rights_of_its_service_account(
    server: PlaygroundApiServer, client: KubeClient, manifests: Manifests, tmp_path: Path
) -> None:
    await apply(client, manifests.rights)
    path = tmp_path / "autoscaler.kubeconfig"
    account = manifests.account("autoscaler")
    await write_account_kubeconfig(client, path, admin=server.kubeconfig(), account=account)
    assert path.stat().st_mode & 0o777 == 0o600
    async with await KubeClient.connect(path) as autoscaler:
        assert await autoscaler.get("/apis/autoscaling/v2/horizontalpodautoscalers")
        with pytest.raises(StatusError) as refused:
            await autoscaler.get("/api/v1/secrets")
        assert refused.value.code == 403
        assert f"system:serviceaccount:{account.namespace}:{account.name}" in refused.value.message


async def test_api_services_point_to_a_local_port(client: KubeClient, manifests: Manifests) -> None:
    await apply(client, [*manifests.rights, *manifests.registration(port=12345)])
    listed = await client.get("/apis/apiregistration.k8s.io/v1/apiservices")
    ours = [entry for entry in listed["items"] if (entry["spec"].get("service") or {}).get("port") == 12345]
    assert {entry["metadata"]["name"] for entry in ours} == {
        "v1beta1.custom.metrics.k8s.io",
        "v1beta2.custom.metrics.k8s.io",
        "v1beta1.external.metrics.k8s.io",
    }
    reference = ours[0]["spec"]["service"]
    service = await client.get(f"/api/v1/namespaces/{reference['namespace']}/services/{reference['name']}")
    assert service["spec"]["externalName"] == "localhost"


async def test_apply_patches_existing_objects(client: KubeClient) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    await apply(client, [{**config, "data": {"key": "old", "kept": "yes"}}])
    await apply(client, [{**config, "data": {"key": "new"}}])
    found = await client.get("/api/v1/namespaces/default/configmaps/a")
    assert found["data"] == {"key": "new", "kept": "yes"}


async def test_unknown_kind_is_an_error(client: KubeClient) -> None:
    unknown = {"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "a", "namespace": "default"}}
    with pytest.raises(InstallError, match='cannot apply Unknown a: no matches for kind "Unknown"'):
        await apply(client, [unknown])
