"""The service accounts of the manifests have the rights that the processes use, and no others.

The API server's audit log tells which rights a process uses: none of its requests may be refused, and for each right
there must be a request that no other right allows.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml

from kube.client import KubeClient
from playground.install import Account, Object
from tests.autoscaler.process import Autoscaler
from tests.e2e.installation import APPLICATIONS, Installation, autoscalers, installation
from tests.e2e.rights import Request, Right, is_allowed, needed_for, rights_of, without
from tests.eventually import eventually
from tests.manifests.rendering import render_with

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kubebuilder,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("rbac"),
    pytest.mark.skipif(
        "KUBEBUILDER_ASSETS" not in os.environ,
        reason="KUBEBUILDER_ASSETS names no directory with kube-apiserver and etcd",
    ),
]

ADAPTER = Account("milliscale", "milliscale-adapter")
AUTOSCALER = Account("milliscale", "milliscale-autoscaler")
HPA_CONTROLLER = Account("kube-system", "horizontal-pod-autoscaler")
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
SCALES = [f"/apis/apps/v1/namespaces/shop/statefulsets/{name}/scale" for name in APPLICATIONS]
LISTED = (
    f"{CUSTOM}/namespaces/shop/pods/*/packets",
    f"{CUSTOM}/namespaces/shop/services/*/requests",
    f"{CUSTOM}/namespaces/*/metrics/packets",
    f"{CUSTOM}/nodes/*/node_load",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("rbac")
    async with installation(folder, render_with(folder, "resource-metrics", "adapter-ui")) as made:
        yield made


async def add_account(installed: Installation, name: str, role: str) -> Path:
    """Create a service account with a ClusterRole, as a user would; return its kubeconfig."""
    account = Account("milliscale", name)
    await installed.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": account.name, "namespace": account.namespace},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"test:{name}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
            },
        ]
    )
    return await installed.kubeconfig(account)


def token_of(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])


async def get_page(port: int, path: str, token: str) -> int:
    """GET a page over TLS with a token; return the status."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"https://127.0.0.1:{port}{path}", ssl=False) as response,
    ):
        return response.status


async def check_rights(
    installed: Installation, account: Account, exercise: Callable[[], Awaitable[None]]
) -> dict[str, Request]:
    """Check that an account uses each of its rights and needs no other; return a request for each right.

    Args:
        installed: the cluster.
        account: whose rights.
        exercise: makes the process use its rights; called until it has used all.
    """
    rights = await rights_of(installed.client, account)

    async def needed() -> dict[str, Request]:
        await exercise()
        requests = installed.audit.requests(account)
        found = {str(right): needed_for(right, rights, requests) for right in rights}
        unused = [name for name, examples in found.items() if not examples]
        assert not unused, f"rights that are not used: {unused}"
        return {name: examples[0] for name, examples in found.items()}

    found = await eventually(needed)
    assert installed.audit.refused(account) == []
    return found


async def check_each_right_is_needed(installed: Installation, account: Account, requests: dict[str, Request]) -> None:
    """Remove one right after the other from its role or binding; the API server then refuses the request for it."""
    for right in await rights_of(installed.client, account):
        request = requests[str(right)]

        async def refused() -> bool:
            return not await is_allowed(installed.client, account, request.access)  # noqa: B023

        before = await remove(installed.client, right)
        await eventually(refused, every=0.02)
        await installed.apply([before])
    await installed.until_granted(account)


async def remove(client: KubeClient, right: Right) -> Object:
    """Remove a right; return the object that brings it back."""
    path = right.role if right.is_ours else right.binding
    kind = {"clusterroles": "ClusterRole", "roles": "Role", "clusterrolebindings": "ClusterRoleBinding"}
    before = await client.get(path)
    if right.is_ours:
        await client.put(path, without(before, right))
    else:
        await client.delete(path)
    for name in ("resourceVersion", "uid", "managedFields", "creationTimestamp"):
        del before["metadata"][name]
    return {"kind": kind.get(path.split("/")[-2], "RoleBinding"), **before}


async def test_adapter_has_exactly_the_rights_that_it_uses(installed: Installation) -> None:
    scraper = token_of(await add_account(installed, "prometheus", "milliscale-adapter-ui-viewer"))

    async def exercise() -> None:
        for path in LISTED:
            await installed.client.get(path)
        assert await get_page(installed.adapter_ui_port, "/", scraper) == 200

    requests = await check_rights(installed, ADAPTER, exercise)
    await check_each_right_is_needed(installed, ADAPTER, requests)


async def test_hpa_controller_of_kubernetes_reads_metrics_without_a_binding_of_ours(installed: Installation) -> None:
    account = {"name": HPA_CONTROLLER.name, "namespace": HPA_CONTROLLER.namespace}
    await installed.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}])
    assert not [right for right in await rights_of(installed.client, HPA_CONTROLLER) if right.is_ours]
    async with await KubeClient.connect(await installed.kubeconfig(HPA_CONTROLLER)) as client:
        for path in (*LISTED[:2], f"{EXTERNAL}/namespaces/shop/queue_depth"):
            assert (await client.get(path))["items"]


def page_port(process: Autoscaler) -> int:
    found = re.search(r"pages on https://\S+:(\d+)/", "\n".join(process.log_lines))
    assert found, process.log_lines[-10:]
    return int(found[1])


@pytest.mark.parametrize("overlay", ["base", "overlays/managed", "overlays/sharded", "overlays/shadow"])
async def test_autoscaler_has_exactly_the_rights_that_it_uses(
    installed: Installation, tmp_path: Path, overlay: str
) -> None:
    installed.audit.mark()
    objects = render_with(tmp_path, "autoscaler-ui", base=overlay)
    async with autoscalers(installed, objects) as processes:
        viewer = token_of(await add_account(installed, "viewer", "milliscale-hpa-viewer"))

        async def exercise() -> None:
            # The same scale-up again and again: scales and statuses are written, and events repeat.
            for scale in SCALES:
                await installed.client.patch(scale, {"spec": {"replicas": 1}})
            assert {await get_page(page_port(process), "/", viewer) for process in processes} == {200}

        requests = await check_rights(installed, AUTOSCALER, exercise)
        for process in processes:
            assert not [line for line in process.log_lines if "forbidden" in line.lower()]
        await check_each_right_is_needed(installed, AUTOSCALER, requests)
