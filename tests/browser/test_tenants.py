"""Pages on an address that is no loopback one: over TLS, and only about namespaces in which the user has rights."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Response, expect

from kube.api.client import KubeClient
from playground.cluster import Cluster, start_cluster
from playground.install import apply
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from tests import objects
from tests.browser.tabs import Tab, open_tab
from tests.eventually import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
]

HPAS = {"shop": "checkout", "billing": "invoices"}
"""{namespace: HPA}."""


@dataclass(frozen=True, slots=True)
class Site:
    """A running autoscaler with pages for all HPAS, for the users of a cluster."""

    url: str
    cluster: Cluster
    client: KubeClient

    def client_certificate(self, user: str) -> dict[str, Any]:
        """Return options of `open_tab` for a user of the cluster."""
        pair = self.cluster.pki.client_ca.issue(user, client=True)
        origin = self.url.rstrip("/")
        return {"client_certificates": [{"origin": origin, "cert": pair.cert_pem, "key": pair.key_pem}]}

    async def set_max_replicas(self, namespace: str, replicas: int) -> None:
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{HPAS[namespace]}"
        await self.client.patch(path, {"spec": {"maxReplicas": replicas}})


def role_binding(user: str, namespace: str) -> list[dict[str, Any]]:
    """Rights to read the HPAs of a namespace, as the example in docs/page.md."""
    group = "rbac.authorization.k8s.io"
    metadata = {"namespace": namespace, "name": "hpa-pages"}
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A cluster whose user `alice` has rights in the namespace `shop`, and `bob` none."""
    folder: Path = tmp_path_factory.mktemp("site")
    async with start_cluster(folder / "cluster") as cluster, await cluster.client() as client:
        for namespace, name in HPAS.items():
            await apply(client, [objects.namespace(namespace), objects.hpa(name, namespace=namespace)])
        await apply(client, role_binding("alice", "shop"))
        port = free_port()
        command = [
            *(sys.executable, "-m", "autoscaler", "run", "--mode=dry-run"),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--bind-address={LOOPBACK}",
            "--metrics-port=0",
            f"--ui-address=0.0.0.0:{port}",
            f"--cert-dir={folder / 'certificates'}",
        ]
        async with await ChildProcess.start("autoscaler", command, log=folder / "autoscaler.log") as child:

            async def listens() -> bool:
                if child.exit_status is not None:
                    raise RuntimeError("\n".join(child.last_lines()))
                try:
                    _, writer = await asyncio.open_connection(LOOPBACK, port)
                except OSError:
                    return False
                writer.close()
                return True

            await eventually(listens)
            yield Site(f"https://{LOOPBACK}:{port}/", cluster, client)


async def open_page(tab: Tab, url: str) -> int:
    """Open a page; return the status of the response."""
    response = await tab.page.goto(url)
    assert isinstance(response, Response)
    return response.status


async def test_user_sees_only_the_namespace_with_rights(site: Site, browser: Browser) -> None:
    async with open_tab(browser, ignore_https_errors=True, **site.client_certificate("alice")) as tab:
        assert await open_page(tab, site.url) == 200
        await expect(tab.page.get_by_role("link", name="checkout")).to_be_visible()
        assert "billing" not in await tab.page.content()
        assert "invoices" not in await tab.page.content()
        assert await open_page(tab, f"{site.url}hpas/shop/checkout") == 200
        assert await open_page(tab, f"{site.url}hpas/billing/invoices") == 403
        assert await open_page(tab, f"{site.url}hpas/billing/nothing") == 403


async def test_events_are_only_about_namespaces_in_which_the_user_has_rights(site: Site, browser: Browser) -> None:
    async with open_tab(browser, ignore_https_errors=True, **site.client_certificate("alice")) as tab:
        await open_page(tab, site.url)
        await tab.is_live()
        await site.set_max_replicas("billing", 17)
        await site.set_max_replicas("shop", 19)
        await expect(tab.page.get_by_role("row", name="checkout")).to_contain_text("19")
        assert "invoices" not in await tab.page.content()


async def test_user_without_rights_sees_nothing(site: Site, browser: Browser) -> None:
    async with open_tab(browser, ignore_https_errors=True, **site.client_certificate("bob")) as tab:
        await open_page(tab, site.url)
        content = await tab.page.content()
        for namespace, name in HPAS.items():
            assert namespace not in content
            assert name not in content
            assert await open_page(tab, f"{site.url}hpas/{namespace}/{name}") == 403


async def test_user_without_a_certificate_is_not_let_in(site: Site, browser: Browser) -> None:
    async with open_tab(browser, ignore_https_errors=True) as tab:
        assert await open_page(tab, site.url) == 401
        await expect(tab.page.get_by_role("heading")).to_contain_text("401")
