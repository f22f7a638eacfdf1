"""The autoscaler's pages over TLS, with the rights that the manifests give it: a tenant sees its own HPAs only."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube.api.client import KubeClient
from playground.apiserver.pki import client_tls
from playground.cluster import Cluster, start_cluster
from playground.install import Account, apply, read_objects, write_account_kubeconfig
from tests.autoscaler.process import ALONE, Autoscaler, autoscaler
from tests.eventually import eventually
from tests.kube.access_api import write_pair
from tests.objects import hpa

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
TEAMS = ("team-a", "team-b")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kubebuilder,
]


@dataclass
class Pages:
    """The pages of a running autoscaler; `get` sends a request of a user."""

    cluster: Cluster
    url: str

    async def get(self, path: str, user: str, *groups: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.get(self.url + path, ssl=self.tls(user, *groups)) as response,
        ):
            return response.status, await response.text()

    def tls(self, user: str, *groups: str) -> ssl.SSLContext:
        """Return TLS with a client certificate of a user, if one is named."""
        # The server's certificate is self-signed, as in a pod without --tls-cert-file.
        context = client_tls()
        if user:
            pair = self.cluster.pki.client_ca.issue(user, organizations=groups, client=True)
            files = write_pair(self.cluster.pki.folder, pair, user)
            context.load_cert_chain(files.cert, files.key)
        return context


async def install(admin: KubeClient) -> None:
    """Apply what the component autoscaler-ui and the base have about rights, and an HPA for each team."""
    for path in ("base/namespace.yaml", "base/metrics-readers.yaml", "base/autoscaler-rbac.yaml"):
        await apply(admin, await read_objects(MANIFESTS / path))
    for path in ("rbac.yaml", "viewers.yaml"):
        await apply(admin, await read_objects(MANIFESTS / "components/autoscaler-ui" / path))
    for team in TEAMS:
        await apply(admin, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}])
        made = hpa(f"shop-of-{team}")
        made["metadata"]["namespace"] = team
        await apply(admin, [made])


def binding(subject: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "hpa-viewer", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "milliscale-hpa-viewer"},
        "subjects": [subject],
    }


def url_of(process: Autoscaler) -> str:
    """Return the URL that the log names, with an address to connect to."""
    found = re.search(r"pages on https://\S+:(\d+)/", "\n".join(process.log_lines))
    assert found, process.log_lines
    return f"https://127.0.0.1:{found[1]}"


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[Pages]:
    kubeconfig = tmp_path / "autoscaler.kubeconfig"
    async with start_cluster(tmp_path / "cluster") as cluster:
        async with await cluster.client() as admin:
            await install(admin)
            group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-a"}
            await apply(admin, [binding(group, "team-a")])
            account = Account("milliscale", "milliscale-autoscaler")
            await write_account_kubeconfig(admin, kubeconfig, admin=cluster.kubeconfig, account=account)
        flags = (
            "--mode=dry-run",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--ui-address=0.0.0.0:0",
            f"--cert-dir={tmp_path / 'serving-cert'}",
            "--authorization-webhook-cache-authorized-ttl=1s",
        )
        async with autoscaler(kubeconfig, *ALONE, *flags) as process:

            async def listening() -> str:
                return url_of(process)

            yield Pages(cluster, await eventually(listening, every=0.05))


async def until_readable(pages: Pages, path: str, *user: str) -> str:
    """Return a page, as soon as the CAs are read, and kube-apiserver knows the Roles."""

    async def readable() -> str:
        status, text = await pages.get(path, *user)
        assert status == 200, text
        return text

    return await eventually(readable)


async def test_a_tenant_sees_the_hpas_of_its_namespace_only(pages: Pages) -> None:
    text = await until_readable(pages, "/", "jane", "team-a")
    assert "shop-of-team-a" in text
    assert "team-b" not in text
    assert (await pages.get("/hpas/team-a/shop-of-team-a", "jane", "team-a"))[0] == 200
    for name in ("shop-of-team-b", "no-such-hpa"):
        for path in ("", "/events", "/what-if"):
            status, text = await pages.get(f"/hpas/team-b/{name}{path}", "jane", "team-a")
            assert status == 403, path
            assert "cannot get resource &#34;horizontalpodautoscalers&#34;" in text

    status, text = await pages.get("/", "root", "system:masters")
    assert status == 200
    assert all(f"shop-of-{team}" in text for team in TEAMS)
    for user, code in (("eve", (200, 403)), ("", (401,))):
        status, text = await pages.get("/", user)
        assert status in code
        assert "shop-of" not in text
    assert (await pages.get("/", "", token="no-such-token"))[0] == 401


async def test_an_open_page_ends_with_the_right_to_see_it(pages: Pages) -> None:
    path = "/hpas/team-a/shop-of-team-a"
    await until_readable(pages, path, "jane", "team-a")
    context = pages.tls("jane", "team-a")
    async with aiohttp.ClientSession() as http, http.get(f"{pages.url}{path}/events", ssl=context) as stream:
        first = await stream.content.readuntil(b"\n\n")
        assert first.startswith(b"event: replace\n")
        async with await pages.cluster.client() as admin:
            bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings"
            await admin.delete(f"{bindings}/hpa-viewer")
        assert (await stream.text()).endswith("event: reload\ndata: \n\n")
    assert (await pages.get(path, "jane", "team-a"))[0] == 403
