"""Pages on an address that is not a loopback one: TLS, and the users and rights of a cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from autoscaler.ui.access import NamespaceAccess
from kube.api.client import KubeClient
from kube.security.tls import TLSOptions
from kube.serving.delegated import DelegatedAuth
from kube.serving.options import AuthOptions
from kube.web.event_stream import EventStream, EventStreams, ServerEvent
from kube.web.options import PageSettings, UIAddress
from kube.web.pages import PageRequest, StaticFiles, Templates
from kube.web.server import PageServer
from playground.certs import CertificateAuthority, KeyPair
from playground.cluster import Cluster, start_cluster
from tests.eventually import eventually
from tests.kube.access_api import write_pair

GROUP = "autoscaling"
NAMESPACES = ("team-a", "team-b")


class TenantPages:
    """/ lists the namespaces that the user may see; /NAMESPACE is one of them; /-/events is a stream of one event."""

    def __init__(self, access: NamespaceAccess) -> None:
        self.static = StaticFiles(["kube.web"])
        self.templates = Templates("kube.web", process="test", static=self.static.url)
        self._access = access

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        assert request.user is not None
        if request.segments == ("-", "events"):
            return EventStream(_one_event())
        if request.segments:
            await self._access.require(request.user, GROUP, request.segments[0])
            return web.Response(text=f"pods of {request.segments[0]}")
        visible = await self._access.visible(request.user, ((GROUP, name) for name in NAMESPACES))
        return web.Response(text=f"{request.user.name}: {' '.join(sorted(name for _, name in visible))}")


async def _one_event() -> AsyncIterator[ServerEvent]:
    yield ServerEvent("replace", "")
    await asyncio.Event().wait()


@dataclass
class Site:
    """Pages of a cluster; `get` sends a request."""

    cluster: Cluster
    admin: KubeClient
    url: str
    http: aiohttp.ClientSession

    async def get(
        self, path: str = "", *, pair: KeyPair | None = None, token: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Return the status and the text; raises aiohttp.ClientError if there is no response."""
        sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        async with self.http.get(self.url + path, ssl=self._tls(pair), headers=sent) as response:
            return response.status, await response.text()

    def stream(self, pair: KeyPair) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Open an event stream."""
        return self.http.get(self.url + "-/events", ssl=self._tls(pair))

    def user(self, name: str, *groups: str) -> KeyPair:
        """Return a client certificate of the cluster."""
        return self.cluster.pki.client_ca.issue(name, organizations=groups, client=True)

    async def bind(self, role: str, user: str, namespace: str) -> None:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        await self.admin.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)

    def _tls(self, pair: KeyPair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.cluster.pki.serving_ca.cert_pem.decode())
        if pair is not None:
            files = write_pair(self.cluster.pki.folder, pair, "user")
            context.load_cert_chain(files.cert, files.key)
        return context


@asynccontextmanager
async def served(cluster: Cluster, folder: Path) -> AsyncIterator[Site]:
    """Serve as on an address that is not a loopback one."""
    serving = write_pair(folder, cluster.pki.serving_ca.issue("pages", hosts=["127.0.0.1"], server=True))
    async with await cluster.client() as admin, aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        for name in NAMESPACES:
            await admin.post(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        auth = DelegatedAuth(
            AuthOptions(tls=TLSOptions(certificate=serving)), authentication_client=admin, authorization_client=admin
        )
        reloading = tasks.create_task(auth.run())
        access = NamespaceAccess(auth.authorizer)
        server = PageServer(
            TenantPages(access),
            UIAddress("127.0.0.1", 0),
            auth=auth,
            registry=CollectorRegistry(),
            metrics_prefix="test",
            streams=EventStreams(PageSettings(streams_per_user=2)),
        )
        listening = server.bind()
        await server.start(listening)

        async def loaded() -> bool:
            return auth.trust.problem() is None

        await eventually(loaded, every=0.01)
        yield Site(cluster, admin, f"https://127.0.0.1:{listening.getsockname()[1]}/", http)
        await server.stop()
        reloading.cancel()


@pytest.fixture(
    params=["playground", pytest.param("kube-apiserver", marks=pytest.mark.kubebuilder)],
)
async def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    if request.param == "playground":
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    async with start_cluster(tmp_path / "cluster") as cluster, served(cluster, tmp_path) as site:
        yield site


async def make_role(admin: KubeClient) -> None:
    """A role like Kubernetes' `view`, which the playground's API server does not have."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "hpa-viewer"},
        "rules": [{"apiGroups": [GROUP], "resources": ["horizontalpodautoscalers"], "verbs": ["get"]}],
    }
    await admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)


async def test_a_user_with_rights_in_one_namespace_sees_that_one_only(site: Site) -> None:
    await make_role(site.admin)
    await site.bind("hpa-viewer", "jane", "team-a")
    jane = site.user("jane")

    async def sees_own() -> bool:  # kube-apiserver authorizes with a cache of its own
        return await site.get(pair=jane) == (200, "jane: team-a")

    await eventually(sees_own, every=0.02)
    assert await site.get("team-a", pair=jane) == (200, "pods of team-a")
    for namespace in ("team-b", "no-such-namespace"):
        status, text = await site.get(namespace, pair=jane)
        assert status == 403
        assert "horizontalpodautoscalers.autoscaling is forbidden: User &#34;jane&#34; cannot get resource" in text
        assert f"in the namespace &#34;{namespace}&#34;" in text
    assert await site.get(pair=site.user("eve")) == (200, "eve: ")
    assert (await site.get("team-a", pair=site.user("eve")))[0] == 403
    assert await site.get(pair=site.user("root", "system:masters")) == (200, "root: team-a team-b")


async def test_a_user_cannot_take_the_event_streams_of_others(site: Site) -> None:
    jane, eve = site.user("jane"), site.user("eve")
    async with site.stream(eve) as first, site.stream(eve) as second:
        assert (first.status, second.status) == (200, 200)
        async with site.stream(eve) as third, site.stream(jane) as others:
            assert (third.status, others.status) == (503, 200)

    async def closed() -> bool:
        async with site.stream(eve) as again:
            return again.status == 200

    await eventually(closed, every=0.02)


async def test_a_bearer_token_is_reviewed(site: Site) -> None:
    accounts = "/api/v1/namespaces/team-a/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}
    await site.admin.post(accounts, account)
    request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await site.admin.post(f"{accounts}/viewer/token", request))["status"]["token"]
    assert await site.get(token=token) == (200, "system:serviceaccount:team-a:viewer: ")
    assert (await site.get(token=token + "x"))[0] == 401


async def test_a_client_without_credentials_gets_401_and_nothing_of_the_pages(site: Site) -> None:
    for path in ("", "team-a", "events"):
        status, text = await site.get(path)
        assert status == 401
        assert "team-" not in text
        assert "kubectl port-forward" in text
    # The style sheet of that page is everyone's.
    assert (await site.get(StaticFiles(["kube.web"]).url("base.css").lstrip("/")))[0] == 200


async def test_headers_of_a_front_proxy_need_its_certificate(site: Site) -> None:
    headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    assert (await site.get(headers=headers))[0] == 401
    proxy = site.cluster.pki.front_proxy
    pair = KeyPair(cert_pem=proxy.certificate.read_bytes(), key_pem=proxy.key.read_bytes())
    assert await site.get(pair=pair, headers=headers) == (200, "root: team-a team-b")


async def test_a_certificate_of_another_ca_is_refused_in_the_handshake(site: Site) -> None:
    impostor = CertificateAuthority.create("playground-client-ca").issue(
        "root", organizations=["system:masters"], client=True
    )
    with pytest.raises(aiohttp.ClientError):
        await site.get(pair=impostor)
    assert (await site.get(pair=site.user("root", "system:masters")))[0] == 200


async def test_http_is_not_spoken_on_other_addresses(site: Site) -> None:
    with pytest.raises(aiohttp.ClientError):
        await site.http.get(site.url.replace("https", "http"))


def test_pages_on_other_addresses_need_authentication() -> None:
    pages = TenantPages(NamespaceAccess(None))
    with pytest.raises(ValueError, match="need authentication"):
        PageServer(pages, UIAddress("::", 0), auth=None, registry=CollectorRegistry(), metrics_prefix="test")
