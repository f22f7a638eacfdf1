"""Google's application default credentials: workload identity federation.

The metadata server is in test_auth_process.py: google-auth reads its address once for each process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.prometheus import PrometheusClient, PrometheusOptions, PrometheusUnavailable
from adapter.upstream import Auth, GoogleAuth
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, responds, scripted
from tests.web_servers import served

SCOPE = "https://www.googleapis.com/auth/monitoring.read"
POOL = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/cluster"


@dataclass
class GoogleTokenServers:
    """Google's STS."""

    valid: set[str] = field(default_factory=set)
    forms: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/sts", self._exchange)
        return application

    async def _exchange(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = dict(await request.post())
        self.forms.append(form)
        if form["subject_token"] != "projected-token":
            return web.json_response({"error": "invalid_grant", "error_description": "a wrong token"}, status=400)
        return self._issued(issued_token_type="urn:ietf:params:oauth:token-type:access_token")

    def _issued(self, **more: str) -> web.Response:
        token = f"google-token-{len(self.forms)}"
        self.valid.add(token)
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more})

    async def query(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.valid:
            return web.Response(status=401)
        return await responds(ONE)(request)


@pytest.fixture
async def google() -> AsyncIterator[GoogleTokenServers]:
    servers = GoogleTokenServers()
    async with served(servers.application()) as url:
        servers.url = url
        yield servers


@pytest.fixture
async def prometheus(google: GoogleTokenServers) -> AsyncIterator[ScriptedPrometheus]:
    async with scripted() as server:
        server.reply = google.query
        yield server


@pytest.fixture
def federation(google: GoogleTokenServers, tmp_path: Path) -> Path:
    """The configuration of workload identity federation, as gcloud makes it."""
    (tmp_path / "token").write_text("projected-token")
    configuration = {
        "type": "external_account",
        "audience": POOL,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.url}/sts",
        "credential_source": {"file": str(tmp_path / "token")},
    }
    (tmp_path / "federation.json").write_text(json.dumps(configuration))
    return tmp_path / "federation.json"


async def test_token_of_the_pod_is_exchanged(
    google: GoogleTokenServers, prometheus: ScriptedPrometheus, federation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(federation))
    options = PrometheusOptions(url=prometheus.url, auth=Auth(google=GoogleAuth()))
    async with PrometheusClient(options) as client:
        await asyncio.gather(*(client.instant(f"up{number}") for number in range(20)))
        google.valid.clear()
        await client.instant("up")  # with another token
    assert len(google.forms) == 2
    assert (google.forms[0]["audience"], google.forms[0]["scope"]) == (POOL, SCOPE)
    assert [headers["Authorization"] for headers in prometheus.headers[-2:]] == [
        "Bearer google-token-1",
        "Bearer google-token-2",
    ]


async def test_errors_are_those_of_the_query_and_have_no_token(
    google: GoogleTokenServers,
    prometheus: ScriptedPrometheus,
    federation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "another-token-that-is-secret-and-longer-than-a-name"
    (tmp_path / "token").write_text(secret)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(federation))
    auth = Auth(google=GoogleAuth())
    async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=auth)) as client:
        with pytest.raises(
            PrometheusUnavailable, match=r"Google gives no credentials for Prometheus: .*a wrong"
        ) as got:
            await client.instant("up")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=auth)) as client:
        with pytest.raises(PrometheusUnavailable, match=r"Google gives no credentials .*none\.json was not found"):
            await client.instant("up")
    assert secret not in f"{got.value} {caplog.text}"
    assert not prometheus.requests
