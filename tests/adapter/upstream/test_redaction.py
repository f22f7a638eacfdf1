"""A server's error has no credential of the request in it, also if the server repeats the request's headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.prometheus import PrometheusClient, PrometheusOptions, PrometheusUnavailable
from adapter.upstream import without_credentials
from kube.api.status import StatusError
from tests.adapter.scripted_prometheus import ScriptedPrometheus, scripted
from tests.adapter.test_forward import API, fetch, forwarding, other_adapter
from tests.kube.scripted import respond

SECRET = 's3cret"of/the+adapter'


def repeating(prometheus: ScriptedPrometheus, name: str) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "error", "error": f"not valid: {request.headers[name]}"}, status=403)

    prometheus.reply = reply


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Authorization", {"token_file": "secret"}),
        ("Authorization", {"username": "adapter", "password_file": "secret"}),
        ("X-Api-Key", {"headers": (("X-Api-Key", SECRET),)}),
    ],
)
async def test_error_of_prometheus_does_not_repeat_credentials(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    options = {key: tmp_path / value if key.endswith("file") else value for key, value in options.items()}
    async with scripted() as prometheus:
        repeating(prometheus, name)
        async with PrometheusClient(PrometheusOptions(url=prometheus.url, **options)) as client:
            with pytest.raises(PrometheusUnavailable) as got:
                await client.instant("up")
    assert str(got.value) == "Prometheus answered with status 403: not valid: ..."


async def test_password_of_the_url_is_not_repeated() -> None:
    async with scripted() as prometheus:
        repeating(prometheus, "Authorization")
        url = prometheus.url.replace("http://", "http://adapter:passw0rd@")
        async with PrometheusClient(PrometheusOptions(url=url)) as client:
            with pytest.raises(PrometheusUnavailable, match=r"403: not valid: \.\.\.$"):
                await client.instant("up")


async def test_error_of_another_adapter_does_not_repeat_the_token(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (external, *_):
        (tmp_path / "token").write_text(SECRET)
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": f"bad: {SECRET}", "code": 500}
        server.handlers[f"{API}/namespaces/shop/s0-queue"] = respond(status, status=500)
        with pytest.raises(StatusError) as got:
            await fetch(external, "s0-queue")
    assert "bad: ..." in str(got.value)
    assert SECRET not in str(got.value)


def test_signature_and_password_are_removed_wherever_they_are() -> None:
    authorization = "AWS4-HMAC-SHA256 Credential=AKID/20261122/eu-west-1/aps/aws4_request, Signature=0123456789abcdef"
    headers = {"Authorization": authorization, "X-Amz-Security-Token": "session-token", "X-Amz-Date": "20261122T0"}
    body = b"expected 0123456789abcdef at 20261122T0, token:session-token"
    assert without_credentials(body, headers) == b"expected ... at 20261122T0, token:..."
    assert (
        without_credentials(b'"s3cret", Host', {"Authorization": "Basic YTpzM2NyZXQ=", "Host": "Host"})
        == b'"...", Host'
    )


def test_short_values_are_not_removed() -> None:
    assert without_credentials(b"tenant 1 of 11", {"X-Scope-OrgID": "1"}) == b"tenant 1 of 11"
