"""Microsoft Entra ID: workload identity at a token endpoint of ours. Managed identity is in test_auth_process.py."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.prometheus import PrometheusClient, PrometheusOptions, PrometheusUnavailable
from adapter.upstream import Auth, AzureAuth
from playground.certs import CertificateAuthority
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, responds, scripted
from tests.web_servers import served

SCOPE = "https://prometheus.monitor.azure.com/.default"


@dataclass
class Entra:
    """Issues tokens for a federated token, and for nodes' identities."""

    valid: set[str] = field(default_factory=set)
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/tenant-1/oauth2/v2.0/token", self._token)
        application.router.add_get("/metadata/identity/oauth2/token", self._metadata)
        return application

    async def _token(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = dict(await request.post())
        self.requests.append(form)
        if form["client_assertion"] != "projected-token":
            text = f"AADSTS70021: No matching federated identity for {form['client_assertion']}"
            return web.json_response({"error": "invalid_request", "error_description": text}, status=400)
        return web.json_response({"token_type": "Bearer", "expires_in": 3600, "access_token": self._issued()})

    async def _metadata(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true":
            return web.json_response({"error": "invalid_request"}, status=400)
        self.requests.append(dict(request.query))
        fields = {"expires_in": "3600", "expires_on": str(int(time.time()) + 3600), "resource": "a"}
        return web.json_response({"token_type": "Bearer", "access_token": self._issued(), **fields})

    def _issued(self) -> str:
        token = f"azure-token-{len(self.requests)}"
        self.valid.add(token)
        return token

    async def query(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.valid:
            return web.Response(status=401)
        return await responds(ONE)(request)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of the machine that runs the tests."""
    for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "prod")


@pytest.fixture
async def workload_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Entra]:
    """Entra ID with the variables that the webhook of workload identity sets."""
    authority = CertificateAuthority.create("test")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem)
    pair = authority.issue("login", hosts=("127.0.0.1",), server=True)
    (tmp_path / "login.pem").write_bytes(pair.cert_pem + pair.key_pem)
    (tmp_path / "token").write_text("projected-token")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "login.pem")
    entra = Entra()
    async with served(entra.application(), tls=tls) as url:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", url)
        monkeypatch.setenv("AZURE_TENANT_ID", "tenant-1")
        monkeypatch.setenv("AZURE_CLIENT_ID", "client-1")
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
        yield entra


async def test_workload_identity(workload_identity: Entra) -> None:
    entra = workload_identity
    async with scripted() as prometheus:
        prometheus.reply = entra.query
        options = PrometheusOptions(url=prometheus.url, auth=Auth(azure=AzureAuth()))
        async with PrometheusClient(options) as client:
            await asyncio.gather(*(client.instant(f"up{number}") for number in range(20)))
            entra.valid.clear()
            await client.instant("up")  # with another token
    assert len(entra.requests) == 2
    form = entra.requests[0]
    assert (form["grant_type"], form["client_id"], form["scope"]) == ("client_credentials", "client-1", SCOPE)


async def test_client_id_and_scope_are_those_of_the_server(workload_identity: Entra) -> None:
    async with scripted() as prometheus:
        prometheus.reply = workload_identity.query
        auth = Auth(azure=AzureAuth(client_id="client-2", scope="https://prometheus.monitor.azure.us/.default"))
        async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=auth)) as client:
            await client.instant("up")
    (form,) = workload_identity.requests
    assert (form["client_id"], form["scope"]) == ("client-2", "https://prometheus.monitor.azure.us/.default")


async def test_errors_are_those_of_the_query_and_have_no_token(
    workload_identity: Entra, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "another-token-that-is-secret-and-longer-than-a-name"
    (tmp_path / "token").write_text(secret)
    server: ScriptedPrometheus
    async with scripted() as server:
        options = PrometheusOptions(url=server.url, auth=Auth(azure=AzureAuth()))
        async with PrometheusClient(options) as client:
            with pytest.raises(PrometheusUnavailable, match="Azure gives no credentials for Prometheus: ") as got:
                await client.instant("up")
    assert "AADSTS70021" in str(got.value)
    own = [record.getMessage() for record in caplog.records if record.name.startswith("adapter")]
    assert secret not in f"{got.value} {own}"
    assert not server.requests
