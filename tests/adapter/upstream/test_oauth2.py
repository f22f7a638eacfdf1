"""OAuth 2.0 client credentials, at a token endpoint and a Prometheus that verifies the tokens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote_plus

import msgspec
import pytest
from aiohttp import web

from adapter.prometheus import PrometheusClient, PrometheusOptions, PrometheusUnavailable
from adapter.upstream import Auth, CredentialsError, OAuth2Auth
from adapter.upstream.access import Parameters
from adapter.upstream.oauth2 import OAuth2Tokens
from playground.certs import CertificateAuthority
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, responds, scripted
from tests.web_servers import served

SECRET = "s3cret:with/reserved+characters%"


@dataclass
class TokenServer:
    """An authorization server with one client."""

    basic: bool = True
    """It accepts the client's secret with HTTP Basic; otherwise only in the form."""
    reply: web.Response | None = None
    """What it responds instead of a token."""
    valid: set[str] = field(default_factory=set)
    """Tokens that are accepted."""
    forms: list[dict[str, Any]] = field(default_factory=list)
    """The forms of the requests."""
    url: str = ""

    async def token(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = dict(await request.post())
        self.forms.append(form)
        client = (form.get("client_id"), form.get("client_secret"))
        if self.basic:
            kind, _, encoded = request.headers.get("Authorization", " ").partition(" ")
            pair = base64.b64decode(encoded).decode().partition(":")
            client = (unquote_plus(pair[0]), unquote_plus(pair[2])) if kind == "Basic" else (None, None)
        if client != ("adapter", SECRET):
            return web.json_response({"error": "invalid_client", "error_description": f"not {client[1]}"}, status=401)
        if self.reply is not None:
            return self.reply
        token = f"token-{len(self.forms)}"
        self.valid.add(token)
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": 3600})

    async def query(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.valid:
            return web.Response(status=401, text="no valid token")
        return await responds(ONE)(request)


@contextlib.asynccontextmanager
async def running(tokens: TokenServer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedPrometheus]:
    application = web.Application()
    application.router.add_post("/token", tokens.token)
    async with served(application, tls=tls) as url, scripted() as prometheus:
        tokens.url = f"{url}/token"
        prometheus.reply = tokens.query
        yield prometheus


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return tmp_path / "secret"


def auth(tokens: TokenServer, secret: Path, **options: Any) -> Auth:
    return Auth(oauth2=OAuth2Auth(token_url=tokens.url, client_id="adapter", client_secret_file=secret, **options))


async def test_token_is_requested_once_and_sent_with_each_query(secret: Path) -> None:
    tokens = TokenServer()
    async with running(tokens) as prometheus:
        parameters = Parameters([("audience", "https://mimir"), ("resource", "a")])
        form = auth(tokens, secret, scopes=("metrics:read", "b"), endpoint_params=parameters)
        async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=form)) as client:
            await asyncio.gather(*(client.instant(f"up{number}") for number in range(20)))
    assert tokens.forms == [
        {"grant_type": "client_credentials", "audience": "https://mimir", "resource": "a", "scope": "metrics:read b"}
    ]
    assert {headers["Authorization"] for headers in prometheus.headers} == {"Bearer token-1"}


async def test_secret_is_sent_in_the_form_to_servers_that_refuse_basic_authentication(secret: Path) -> None:
    tokens = TokenServer(basic=False)
    async with running(tokens) as prometheus:
        options = PrometheusOptions(url=prometheus.url, auth=auth(tokens, secret))
        async with PrometheusClient(options) as client:
            await client.instant("up")
            tokens.valid.clear()
            await client.instant("up")
    with_secret = {"grant_type": "client_credentials", "client_id": "adapter", "client_secret": SECRET}
    assert tokens.forms == [{"grant_type": "client_credentials"}, with_secret, with_secret]


async def test_refused_token_is_replaced_and_the_query_sent_once_more(secret: Path) -> None:
    tokens = TokenServer()
    async with running(tokens) as prometheus:
        options = PrometheusOptions(url=prometheus.url, auth=auth(tokens, secret))
        async with PrometheusClient(options) as client:
            await client.instant("up")
            tokens.valid.clear()  # revoked
            await client.instant("up")
            tokens.valid.clear()
            with pytest.raises(PrometheusUnavailable, match="status 401"):
                await client.instant("up")  # a server that refuses every token gets no endless requests
    assert [headers["Authorization"][-1] for headers in prometheus.headers] == ["1", "1", "2", "2"]
    assert len(tokens.forms) == 2


async def test_secret_is_read_for_each_token(secret: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").rename(file)
    tokens = TokenServer()
    async with running(tokens):
        issuer = OAuth2Tokens(tokens_auth(tokens, file), what="Prometheus")
        with pytest.raises(CredentialsError, match="status 401"):
            await issuer.issue(False)
        (tmp_path / "secret").rename(file)
        await issuer.issue(False)


def tokens_auth(tokens: TokenServer, secret: Path) -> OAuth2Auth:
    form = auth(tokens, secret).oauth2
    assert form is not None
    return form


async def test_ca_of_the_token_url(secret: Path, tmp_path: Path) -> None:
    authority = CertificateAuthority.create("test")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem)
    pair = authority.issue("login", hosts=("127.0.0.1",), server=True)
    (tmp_path / "login.pem").write_bytes(pair.cert_pem + pair.key_pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "login.pem")
    tokens = TokenServer()
    async with running(tokens, tls=tls) as prometheus:
        form = auth(tokens, secret, ca_file=tmp_path / "ca.pem")
        async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=form)) as client:
            await client.instant("up")
        async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=auth(tokens, secret))) as client:
            with pytest.raises(PrometheusUnavailable, match="gives no token: it cannot be reached"):
                await client.instant("up")


@pytest.mark.parametrize(
    ("status", "text", "message"),
    [
        (200, "<html>", "no usable access_token"),
        (200, '{"access_token": "a\\nb: c"}', "no usable access_token"),
        (200, '{"access_token": "a", "token_type": "mac"}', "no bearer token"),
        (200, '{"access_token": "a", "expires_in": 0}', "expired already"),
        (200, '{"access_token": "a", "expires_in": -5}', "expired already"),
        (200, "[" * 60_000, "no usable access_token"),
        (200, "a" * 70_000, "longer than 65536 bytes"),
        (302, "", "status 302"),
        (400, '{"error": "invalid_scope"}', "status 400: invalid_scope"),
        (500, f'{{"error": "{SECRET}"}}', "status 500$"),
        (401, '{"error_description": "user x, password p4ss word"}', "status 401$"),  # in endpointParams
        (500, f'{{"error": "{quote_plus(SECRET)}"}}', "status 500$"),
        (500, f'{{"error": "{base64.b64encode(f"adapter:{quote_plus(SECRET)}".encode()).decode()}"}}', "status 500$"),
    ],
    ids=range(13),
)
async def test_unusable_response_is_an_error_without_the_secret(
    status: int, text: str, message: str, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tokens := TokenServer()) as prometheus:

        async def respond(_: web.Request) -> web.Response:
            return web.Response(status=status, text=text, headers={"Location": prometheus.url})

        application = web.Application()
        application.router.add_post("/token", respond)
        async with served(application) as url:
            tokens.url = f"{url}/token"
            form = auth(tokens, secret, endpoint_params=Parameters([("password", "p4ss word")]))
            options = PrometheusOptions(url=prometheus.url, auth=form)
            async with PrometheusClient(options) as client:
                with pytest.raises(PrometheusUnavailable, match="the token URL of Prometheus gives no token: ") as got:
                    await client.instant("up")
    assert re.search(message, str(got.value))
    assert SECRET not in str(got.value)
    assert SECRET not in caplog.text
    assert not prometheus.requests


async def test_lifetime_of_a_token(secret: Path) -> None:
    for lifetime, seconds in (("", 300.0), (', "expires_in": "60"', 60.0), (', "expires_in": 1e300', 86_400.0)):
        tokens = TokenServer(reply=web.Response(text=f'{{"access_token": "a"{lifetime}}}'))
        async with running(tokens):
            issued = await OAuth2Tokens(tokens_auth(tokens, secret), what="Prometheus", clock=lambda: 5.0).issue(False)
        assert issued.expires == 5.0 + seconds
        assert issued.value == (("Authorization", "Bearer a"),)


@pytest.mark.parametrize(("content", "message"), [(b" \n", "is empty"), (b"\xff", "not UTF-8"), (None, "No such file")])
async def test_unusable_secret_file_is_an_error(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    tokens = TokenServer(url="http://127.0.0.1:1")
    with pytest.raises(CredentialsError, match=message):
        await OAuth2Tokens(tokens_auth(tokens, tmp_path / "secret"), what="Prometheus").issue(False)


def test_passwords_are_not_in_representations(secret: Path) -> None:
    form = OAuth2Auth(
        token_url="https://login/token",
        client_id="adapter",
        client_secret_file=secret,
        endpoint_params=Parameters([("password", "hunter2")]),
        proxy_url="http://user:hunter3@proxy:1",
    )
    options = PrometheusOptions(
        url="https://a",
        auth=Auth(oauth2=form),
        proxy_url="http://user:hunter4@proxy:1",
        headers=(("X-Key", "hunter5"),),
    )
    assert "hunter" not in repr(options)
    assert "login/token" in repr(options)
    assert len({form, msgspec.structs.replace(form)}) == 1
