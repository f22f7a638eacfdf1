"""Aggregated APIs: requests reach the server that an APIService names, in the caller's name, over TLS; or are 503."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from bench.recorded_heads import recorded_requests
from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.forwarded import identity_headers
from playground.apiserver.identity import User
from playground.certs import CertificateAuthority
from tests.eventually import eventually
from tests.web_servers import served, server_tls

API = "/apis/custom.metrics.k8s.io/v1beta2"
CHECKER = "system:kube-aggregator"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@dataclass
class Extension:
    """A small aggregated API server that trusts only the front proxy; it echoes its requests."""

    authority: CertificateAuthority
    port: int = 0
    healthy: bool = True
    requests: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    heads: list[list[tuple[str, str]]] = field(default_factory=list)

    @property
    def forwarded(self) -> list[tuple[str, dict[str, list[str]]]]:
        """The requests of callers. The API server's own, which look whether it is available, may come at any time."""
        return [one for one in self.requests if one[1]["x-remote-user"] != [CHECKER]]

    @property
    def forwarded_heads(self) -> list[list[tuple[str, str]]]:
        """The heads of the requests of callers."""
        return [head for head in self.heads if dict(head)["X-Remote-User"] != CHECKER]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        headers = {key.lower(): request.headers.getall(key) for key in request.headers}
        headers["certificate"] = [value for part in certificate["subject"] for _, value in part]
        self.requests.append((f"{request.method} {request.raw_path}", headers))
        self.heads.append([(name.decode(), value.decode()) for name, value in request.raw_headers])
        if request.path == API:
            return web.json_response({"kind": "APIResourceList"}, status=200 if self.healthy else 500)
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"type":"ADDED","object":{}}\n')
            await asyncio.Event().wait()
        return web.json_response({"echo": await request.text()}, status=418)


@pytest.fixture
async def extension(server: PlaygroundApiServer, tmp_path: Path) -> AsyncIterator[Extension]:
    authority = CertificateAuthority.create("extension")
    pair = authority.issue("extension", hosts=["adapter.default.svc"], server=True)
    extension = Extension(authority)
    tls = server_tls(pair, tmp_path, client_ca=server.pki.requestheader_ca_file)
    async with served(extension.handle, tls=tls, handler_cancellation=True) as url:
        extension.port = urlsplit(url).port or 0
        yield extension


def api_service(port: int, version: str = "v1beta2", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io",
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 200,
            "service": {"namespace": "default", "name": "adapter", "port": port},
            **spec,
        },
    }


async def register(server: PlaygroundApiServer, extension: Extension, **spec: Any) -> None:
    trust = spec or {"caBundle": base64.b64encode(extension.authority.cert_pem).decode()}
    server.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "adapter", "namespace": "default"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    server.create(api_service(extension.port, **trust))


async def availability(admin: KubeClient, status: str) -> dict[str, str]:
    """The Available condition, once it is that."""

    async def look() -> dict[str, str]:
        found = await admin.get(f"{API_SERVICES}/v1beta2.custom.metrics.k8s.io")
        conditions: list[dict[str, str]] = found["status"].get("conditions", [])
        assert [condition["status"] for condition in conditions] == [status], conditions
        return conditions[0]

    return await eventually(look, within=5, every=0.02)


async def test_registered_server_becomes_available(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    await register(server, extension)
    condition = await availability(admin, "True")
    assert (condition["reason"], condition["message"]) == ("Passed", "all checks passed")
    line, headers = extension.requests[0]
    assert line == f"GET {API}"
    assert headers["x-remote-user"] == ["system:kube-aggregator"]
    assert headers["x-remote-group"] == ["system:masters"]


async def test_requests_are_forwarded_as_their_user(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    await register(server, extension)
    await availability(admin, "True")
    async with await KubeClient.connect(server.kubeconfig("ann", ["system:masters", "team"])) as ann:
        with pytest.raises(StatusError) as relayed:
            await ann.post(f"{API}/namespaces/default/pods/*/pps?labelSelector=a%20in%20(b)", {"some": "body"})
    assert relayed.value.code == 418
    assert json.loads(json.loads(relayed.value.message)["echo"]) == {"some": "body"}
    line, headers = extension.forwarded[-1]
    assert line == f"POST {API}/namespaces/default/pods/*/pps?labelSelector=a%20in%20(b)"
    assert headers["x-remote-user"] == ["ann"]
    assert headers["x-remote-group"] == ["system:masters", "team", "system:authenticated"]
    assert headers["certificate"] == ["front-proxy-client"]


def as_ann(server: PlaygroundApiServer) -> ssl.SSLContext:
    """For requests of a user with all rights."""
    pair = server.pki.client_ca.issue("ann", organizations=["system:masters"], client=True)
    (server.pki.folder / "ann.pem").write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.create_default_context(cafile=str(server.pki.serving_ca_file))
    context.load_cert_chain(server.pki.folder / "ann.pem")
    return context


def recorded(client: str, target: str = "") -> list[tuple[str, str]]:
    """The head of a request of a real kube-apiserver's."""
    found = next(one for one in recorded_requests() if one.client == client and target in one.target)
    return [(name, value) for name, value in found.headers]


# What differs from one request to the next, and from one cluster to another.
VARYING = {
    *("Host", "Audit-Id", "Kubectl-Session", "X-Forwarded-Host", "X-Forwarded-Uri", "X-Remote-Uid"),
    "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id",
}


def compared(head: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A head without the values that vary, but with the kind of a credential."""
    return [
        (name, value.partition("=")[0] if "Extra" in name else "" if name in VARYING else value) for name, value in head
    ]


@pytest.mark.parametrize("client", ["kcm", "kubectl", "sa-token"])
async def test_forwarded_headers_equal_those_of_kube_apiserver(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension, client: str
) -> None:
    await register(server, extension)
    await availability(admin, "True")
    expected = recorded(client)
    fields = dict(expected)
    sent: dict[str, str] = {}
    sent |= {
        name: fields[name] for name in ("User-Agent", "Accept", "Kubectl-Command", "Kubectl-Session") if name in fields
    }
    if client == "kubectl":
        sent["Accept-Encoding"] = "gzip"
    groups = [value for name, value in expected if name == "X-Remote-Group" and value != "system:authenticated"]
    context = ssl.create_default_context(cafile=str(server.pki.serving_ca_file))
    if client == "sa-token":
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cm"}})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "cm"}}
        server.create(account)
        sent["Authorization"] = f"Bearer {server.token('cm', 'reader')}"
    else:
        pair = server.pki.client_ca.issue(fields["X-Remote-User"], organizations=groups, client=True)
        (server.pki.folder / "caller.pem").write_bytes(pair.cert_pem + pair.key_pem)
        context.load_cert_chain(server.pki.folder / "caller.pem")
    await admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding(fields["X-Remote-User"]))
    path = f"{API}/namespaces/cm/pods/%2A/packets"
    async with aiohttp.ClientSession(skip_auto_headers=["Accept", "Accept-Encoding"]) as session:
        url = URL(f"{server.url}{path}?labelSelector=app%3Dweb", encoded=True)
        async with session.get(url, headers=sent, ssl=context) as relayed:
            assert relayed.status == 418
            assert relayed.headers["Audit-Id"] == dict(extension.forwarded_heads[-1])["Audit-Id"]
    head = extension.forwarded_heads[-1]
    assert compared(head) == compared(expected)
    assert dict(head)["X-Forwarded-Uri"] == path
    assert dict(head)["Host"] == dict(head)["X-Forwarded-Host"] == f"adapter.default.svc:{extension.port}"


async def test_headers_of_checks_equal_those_of_kube_apiserver(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    await register(server, extension)
    await availability(admin, "True")
    assert compared(extension.heads[0]) == compared(recorded("kube-apiserver", "custom.metrics"))


def test_header_names_of_extras_are_escaped() -> None:
    extra = {"example.org/a%b": ("1", "2"), "scopes": ("x",), "\u00e9": ("y",)}
    assert identity_headers(User("ann", (), extra=extra))[1:] == [
        ("X-Remote-Extra-Example.org%2fa%25b", "1"),
        ("X-Remote-Extra-Example.org%2fa%25b", "2"),
        ("X-Remote-Extra-Scopes", "x"),
        ("X-Remote-Extra-%c3%a9", "y"),
    ]


def binding(user: str) -> dict[str, Any]:
    """The right to do everything."""
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "caller"},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
    }


async def test_remote_headers_of_clients_are_dropped(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    await register(server, extension)
    await availability(admin, "True")
    forged = {"X-Remote-User": "root", "x-remote-group": "wheel", "X-Remote-Extra-Scopes": "all"}
    async with aiohttp.ClientSession() as session:
        await session.get(f"{server.url}{API}/x", headers=forged, ssl=as_ann(server))
    _, headers = extension.forwarded[-1]
    assert headers["x-remote-user"] == ["ann"]
    assert headers["x-remote-group"] == ["system:masters", "system:authenticated"]
    assert "x-remote-extra-scopes" not in headers


async def test_no_accept_header_is_added(admin: KubeClient, server: PlaygroundApiServer, extension: Extension) -> None:
    await register(server, extension)
    await availability(admin, "True")
    silent = ("Accept", "User-Agent")
    async with aiohttp.ClientSession(skip_auto_headers=silent) as session:
        await session.get(f"{server.url}{API}", ssl=as_ann(server))
    _, headers = extension.forwarded[-1]
    assert not {name.lower() for name in silent} & set(headers)


async def test_forwarded_requests_are_authorized(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    await register(server, extension)
    await availability(admin, "True")
    before = len(extension.requests)
    async with await KubeClient.connect(server.kubeconfig("bob", [])) as bob:
        with pytest.raises(StatusError, match=r'cannot get resource "pods/pps" in API group "custom.metrics.k8s.io"'):
            await bob.get(f"{API}/namespaces/default/pods/*/pps")
    assert not [line for line, _ in extension.requests[before:] if "pps" in line]


async def test_watch_is_streamed(admin: KubeClient, server: PlaygroundApiServer, extension: Extension) -> None:
    await register(server, extension)
    await availability(admin, "True")
    async with aclosing(admin.watch(f"{API}/namespaces/default/things")) as events, asyncio.timeout(60):
        assert (await anext(events))["type"] == "ADDED"


async def test_unavailable_server_gets_no_requests(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    extension.healthy = False
    await register(server, extension)
    condition = await availability(admin, "False")
    url = f"https://localhost:{extension.port}{API}"
    assert condition["reason"] == "FailedDiscoveryCheck"
    assert condition["message"] == f"failing or missing response from {url}: bad status from {url}: 500"
    with pytest.raises(StatusError, match=r"^service unavailable$") as refusal:
        await admin.get(f"{API}/namespaces/default/pods/*/pps")
    assert refusal.value.code == 503
    extension.healthy = True
    await availability(admin, "True")


async def test_certificate_of_another_ca_is_refused(
    admin: KubeClient, server: PlaygroundApiServer, extension: Extension
) -> None:
    await register(server, extension, caBundle=base64.b64encode(CertificateAuthority.create("other").cert_pem).decode())
    assert "certificate verify failed" in (await availability(admin, "False"))["message"].lower()


async def test_insecure_skip_tls_verify(admin: KubeClient, server: PlaygroundApiServer, extension: Extension) -> None:
    await register(server, extension, insecureSkipTLSVerify=True)
    await availability(admin, "True")


async def test_missing_service_is_the_condition_reason(admin: KubeClient, server: PlaygroundApiServer) -> None:
    server.create(api_service(1, insecureSkipTLSVerify=True))
    condition = await availability(admin, "False")
    assert condition["reason"] == "ServiceNotFound"
    assert condition["message"] == 'service/adapter in "default" is not present'


async def test_versions_are_sorted_by_priority(admin: KubeClient, server: PlaygroundApiServer) -> None:
    server.create(api_service(1, "v1beta1", insecureSkipTLSVerify=True, versionPriority=100))
    server.create(api_service(1, "v1beta2", insecureSkipTLSVerify=True, versionPriority=200))
    group = await admin.get("/apis/custom.metrics.k8s.io")
    assert [entry["version"] for entry in group["versions"]] == ["v1beta2", "v1beta1"]
    assert group["preferredVersion"]["groupVersion"] == "custom.metrics.k8s.io/v1beta2"
    await admin.patch(f"{API_SERVICES}/v1beta1.custom.metrics.k8s.io", {"spec": {"versionPriority": 300}})
    group = await admin.get("/apis/custom.metrics.k8s.io")
    assert group["preferredVersion"]["version"] == "v1beta1"
