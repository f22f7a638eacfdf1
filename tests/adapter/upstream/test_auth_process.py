"""The adapter as a process, with a server for each form of `auth`; its log has no credentials at any level."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from aiohttp import web

from tests.adapter.scripted_prometheus import ONE, responds, scripted
from tests.adapter.test_process import running_adapter
from tests.adapter.upstream.aws_services import FakeAws, Key, ReceivedRequest, RefusedError, SignatureVerifier
from tests.adapter.upstream.test_azure import Entra
from tests.adapter.upstream.test_oauth2 import SECRET, TokenServer
from tests.eventually import eventually
from tests.kube.access_api import Authorities
from tests.web_servers import served

pytestmark = pytest.mark.e2e

GOOGLE_TOKEN = "ya29.google-token-of-the-metadata-server"
RULES = """
prometheusServers:
  amp:
    url: {url}/amp
    auth: {{sigv4: {{region: eu-west-1, roleArn: "arn:aws:iam::123456789012:role/reader"}}}}
  gmp: {{url: "{url}/gmp", auth: {{google: {{}}}}}}
  azure: {{url: "{url}/azure", auth: {{azure: {{}}}}}}
  mimir:
    url: {url}/mimir
    queryParameters: {{dedup: true}}
    auth: {{oauth2: {{tokenUrl: "{tokens}/token", clientId: adapter, clientSecretFile: {secret}}}}}
externalRules:
- {{name: of_amp, query: vector(1), prometheus: amp}}
- {{name: of_gmp, query: vector(1), prometheus: gmp}}
- {{name: of_azure, query: vector(1), prometheus: azure}}
- {{name: of_mimir, query: vector(1), prometheus: mimir}}
"""


class MetadataServer:
    """Google's metadata server of a node, as workload identity of GKE answers."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.Response:
        headers = {"Metadata-Flavor": "Google"}
        account = "/computeMetadata/v1/instance/service-accounts/default"
        if request.path == f"{account}/token":
            assert request.headers["Metadata-Flavor"] == "Google"
            self.scopes.append(request.query.get("scopes", ""))
            token = {"access_token": GOOGLE_TOKEN, "expires_in": 3599, "token_type": "Bearer"}
            return web.json_response(token, headers=headers)
        texts = {"/computeMetadata/v1/project/project-id": "project", "/": "computeMetadata/"}
        if request.path == f"{account}/":
            return web.json_response({"email": "a@b", "scopes": [], "aliases": ["default"]}, headers=headers)
        return web.Response(text=texts.get(request.path, "googleapis.com"), headers=headers)


async def test_each_form_of_auth_is_accepted_and_no_credential_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = SignatureVerifier("eu-west-1", "aps", {"AKIDEXAMPLE": Key("static-secret")})
    aws, entra, tokens, metadata = FakeAws(verifier), Entra(), TokenServer(), MetadataServer()
    (tmp_path / "secret").write_text(SECRET)
    oauth2 = web.Application()
    oauth2.router.add_post("/token", tokens.token)

    async def verify(request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        match request.path.split("/")[1]:
            case "amp":
                try:
                    accepted = verifier.verify(await ReceivedRequest.of(request)).startswith("ASIA")
                except RefusedError:
                    accepted = False
            case "gmp":
                accepted = authorization == f"Bearer {GOOGLE_TOKEN}"
            case "azure":
                accepted = authorization.removeprefix("Bearer ") in entra.valid
            case _:
                accepted = authorization.removeprefix("Bearer ") in tokens.valid and request.query["dedup"] == "true"
        return await responds(ONE if accepted else {"status": "error"}, status=200 if accepted else 401)(request)

    async with (
        served(aws.application()) as sts,
        served(entra.application()) as imds,
        served(metadata.application()) as gce,
        served(oauth2) as token_url,
        scripted() as prometheus,
    ):
        prometheus.reply = verify
        environment = {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "static-secret",
            "AWS_ENDPOINT_URL_STS": sts,
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": imds,
            "AZURE_TOKEN_CREDENTIALS": "prod",
            "GCE_METADATA_HOST": gce.removeprefix("http://"),
            "GCE_METADATA_IP": gce.removeprefix("http://"),
            "CLOUDSDK_CONFIG": str(tmp_path / "none"),
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AZURE_CLIENT_ID", "GOOGLE_APPLICATION_CREDENTIALS"):
            monkeypatch.delenv(name, raising=False)
        rules = RULES.format(url=prometheus.url, tokens=token_url, secret=tmp_path / "secret")
        async with running_adapter(tmp_path / "a", rules, authorities=Authorities(), more=("--v=10",)) as adapter:
            for metric in ("of_amp", "of_gmp", "of_azure", "of_mimir"):
                assert await eventually(functools.partial(adapter.serves, metric, "1"), within=30)
            shown = (await adapter.client.request_as_master("/debug/rules")).body.decode()
    log = (tmp_path / "a" / "log").read_text()
    assert "monitoring.read" in metadata.scopes[0]
    assert [form["Action"] for form in aws.forms] == ["AssumeRole"]
    assert len(tokens.forms) == len(entra.requests) == 1
    secrets = {"static-secret", SECRET, GOOGLE_TOKEN, *entra.valid, *tokens.valid}
    secrets |= {text for key in verifier.keys.values() for text in (key.secret, key.token) if text}
    assert len(secrets) == 7
    for secret in secrets:
        assert secret not in log
        assert secret not in shown
