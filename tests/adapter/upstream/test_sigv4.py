"""Signature Version 4: what the adapter sends, verified as AWS does it."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from adapter.prometheus import PrometheusClient, PrometheusOptions, PrometheusUnavailable
from adapter.upstream import Auth, SigV4Auth
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, responds, scripted
from tests.adapter.upstream.aws_services import FakeAws, Key, ReceivedRequest, RefusedError, SignatureVerifier
from tests.web_servers import served

AUTH = Auth(sigv4=SigV4Auth(region="eu-west-1"))
ROLE = "arn:aws:iam::123456789012:role/reader"
# Everything that an encoding could change.
QUERY = 'sum(rate(http_requests_total{pod=~"a+b|c d",path!="/x?y=1&z=%20"}[5m])) by (pod) * 1e-3 # ü € ~*\'()!$,;:@'


@pytest.fixture
def verifier() -> SignatureVerifier:
    return SignatureVerifier("eu-west-1", "aps", {"AKIDEXAMPLE": Key("static-secret")})


@pytest.fixture
async def amp(verifier: SignatureVerifier) -> AsyncIterator[ScriptedPrometheus]:
    """A Prometheus that verifies signatures."""

    async def reply(request: web.Request) -> web.StreamResponse:
        try:
            verifier.verify(await ReceivedRequest.of(request))
        except RefusedError as error:
            return web.json_response({"message": str(error)}, status=403)
        found = {"status": "success", "data": []} if request.path.endswith("series") else ONE
        return await responds(found)(request)

    async with scripted() as server:
        server.reply = reply
        yield server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of the machine that runs the tests."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "static-secret")


def without_static_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_queries_and_series_are_signed(amp: ScriptedPrometheus, verb: str) -> None:
    options = PrometheusOptions(
        url=f"{amp.url}/workspaces/ws-1",
        verb=verb,
        auth=AUTH,
        headers=(("X-Scope-OrgID", "team  a"),),
        query_parameters=(("dedup", "true"), ("replicaLabels[]", "a b+c"), ("replicaLabels[]", "z")),
    )
    async with PrometheusClient(options) as client:
        await client.instant(QUERY)
        await client.series('up{pod=~"a|b"}', start=0, end=1)
    (method, path, parameters), (_, _, series), (_, labels_path, labels) = amp.requests
    assert (method, path, parameters["query"]) == (verb, "/workspaces/ws-1/api/v1/query", QUERY)
    assert (parameters["dedup"], series["match[]"]) == ("true", 'up{pod=~"a|b"}')
    assert (labels_path, labels["match[]"]) == ("/workspaces/ws-1/api/v1/labels", series["match[]"])


async def test_path_with_reserved_characters_is_signed(amp: ScriptedPrometheus) -> None:
    async with PrometheusClient(PrometheusOptions(url=f"{amp.url}/a%20b/c:d", auth=AUTH)) as client:
        await client.instant("up")
    assert amp.requests[0][1] == "/a%20b/c:d/api/v1/query"


async def test_wrong_secret_is_refused(amp: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    async with PrometheusClient(PrometheusOptions(url=amp.url, auth=AUTH)) as client:
        with pytest.raises(PrometheusUnavailable, match="status 403"):
            await client.instant("up")
    assert len(amp.requests) == 1  # the same credentials are not sent twice


async def test_role_of_a_service_account_is_assumed_with_its_token(
    amp: ScriptedPrometheus, verifier: SignatureVerifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    aws = FakeAws(verifier)
    without_static_keys(monkeypatch)
    (tmp_path / "token").write_text("projected-token")
    async with served(aws.application()) as url:
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        async with PrometheusClient(PrometheusOptions(url=amp.url, auth=AUTH)) as client:
            await client.instant("up")
            await client.instant("up")
    (form,) = aws.forms
    assert (form["Action"], form["RoleArn"]) == ("AssumeRoleWithWebIdentity", ROLE)
    assert form["WebIdentityToken"] == "projected-token"


async def test_pod_identity_gives_credentials(
    amp: ScriptedPrometheus, verifier: SignatureVerifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    aws = FakeAws(verifier)
    without_static_keys(monkeypatch)
    (tmp_path / "token").write_text("pod-token")
    async with served(aws.application()) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        async with PrometheusClient(PrometheusOptions(url=amp.url, auth=AUTH)) as client:
            await asyncio.gather(*(client.instant("up") for _ in range(20)))
    assert aws.pod_tokens == ["pod-token"]  # once for twenty queries


async def test_role_is_assumed_with_the_pods_credentials(
    amp: ScriptedPrometheus, verifier: SignatureVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = FakeAws(verifier)
    async with served(aws.application()) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        auth = Auth(sigv4=SigV4Auth(region="eu-west-1", role_arn=ROLE, external_id="partner"))
        async with PrometheusClient(PrometheusOptions(url=amp.url, auth=auth)) as client:
            await client.instant("up")
            await client.instant("up")
            del verifier.keys["ASIA1"]  # revoked: the client gets others, and sends the query again
            await client.instant("up")
    assert [form["signed by"] for form in aws.forms] == ["AKIDEXAMPLE"] * 2
    assert (aws.forms[0]["RoleArn"], aws.forms[0]["ExternalId"]) == (ROLE, "partner")
    assert len(amp.requests) == 4


async def test_errors_of_sts_have_no_credentials(
    amp: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        body = (await request.read()).decode()
        token = "FwoGZXIvYXdzEBYaDPlusSomethingLongThatIsAToken=="
        error = f"<Code>AccessDenied</Code><Message>no right {token} for {len(body)}</Message>"
        return web.Response(text=f"<ErrorResponse><Error>{error}</Error></ErrorResponse>", status=403)

    application = web.Application()
    application.router.add_post("/", refuse)
    async with served(application) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        auth = Auth(sigv4=SigV4Auth(region="eu-west-1", role_arn=ROLE))
        async with PrometheusClient(PrometheusOptions(url=amp.url, auth=auth)) as client:
            with pytest.raises(PrometheusUnavailable) as got:
                await client.instant("up")
    assert str(got.value).startswith("AWS gives no credentials for Prometheus: ClientError: ")
    assert "no right" in str(got.value)
    for text in (str(got.value), caplog.text):
        assert "AToken" not in text
        assert "static-secret" not in text
    assert not amp.requests


async def test_missing_credentials_are_an_error_of_the_query(
    amp: ScriptedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_static_keys(monkeypatch)
    async with PrometheusClient(PrometheusOptions(url=amp.url, auth=AUTH)) as client:
        with pytest.raises(PrometheusUnavailable, match="AWS gives no credentials: none are in the environment"):
            await client.instant("up")


# From AWS' test suite for Signature Version 4. All are signed with these:
SUITE = SignatureVerifier(
    "us-east-1",
    "service",
    {"AKIDEXAMPLE": Key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")},
    now=datetime.datetime(2015, 8, 30, 12, 36, tzinfo=datetime.UTC),
)
CASES = {
    "get-vanilla-query-order-key-case": (
        "GET",
        "/?Param2=value2&Param1=value1",
        "",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "post-x-www-form-urlencoded": (
        "POST",
        "/",
        "Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verifier_agrees_with_aws_test_suite(case: str) -> None:
    method, target, body, signature = CASES[case]
    headers = [("Host", "example.amazonaws.com"), ("X-Amz-Date", "20150830T123600Z")]
    names = "host;x-amz-date"
    if body:
        headers.append(("Content-Type", "application/x-www-form-urlencoded"))
        names = f"content-type;{names}"
    scope = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
    authorization = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    received = ReceivedRequest(method, target, [*headers, ("Authorization", authorization)], body.encode())
    assert SUITE.verify(received) == "AKIDEXAMPLE"
    changed = ReceivedRequest(method, f"{target}x", received.headers, received.body)
    with pytest.raises(RefusedError, match="another signature"):
        SUITE.verify(changed)
