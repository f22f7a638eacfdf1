"""Tokens, passwords and certificates for Prometheus."""

from __future__ import annotations

import base64
import logging
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from adapter.prometheus import PrometheusClient, PrometheusConfigError, PrometheusOptions, PrometheusUnavailable, Vector
from playground.certs import CertificateAuthority
from tests.adapter.scripted_prometheus import ONE, ScriptedPrometheus, responds, scripted


async def test_token_is_reloaded_when_its_file_changes(server: ScriptedPrometheus, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with PrometheusClient(PrometheusOptions(url=server.url, token_file=token)) as client:
        await client.instant("a")
        (tmp_path / "new").write_text("second")
        (tmp_path / "new").rename(token)
        await client.instant("a")
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1)
        token.unlink()
        with pytest.raises(PrometheusUnavailable, match="token file for Prometheus cannot be read: No such file"):
            await client.instant("a")
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first", *["Bearer second"] * 3]


async def test_basic_auth_password_is_reloaded(server: ScriptedPrometheus, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first\n")
    options = PrometheusOptions(url=server.url, username="me", password_file=password)
    async with PrometheusClient(options) as client:
        await client.instant("a")
        password.write_text("second!")
        server.reply = responds({"status": "success", "data": []})
        await client.series("a", start=0, end=1)
    shown = [base64.b64decode(headers["Authorization"].removeprefix("Basic ")) for headers in server.headers]
    assert shown == [b"me:first", *[b"me:second!"] * 2]


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    authority = CertificateAuthority.create("test")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem)
    for name, pair in (
        ("server", authority.issue("prometheus", hosts=("127.0.0.1",), server=True)),
        ("client", authority.issue("adapter", client=True)),
    ):
        (tmp_path / f"{name}.pem").write_bytes(pair.cert_pem)
        (tmp_path / f"{name}.key").write_bytes(pair.key_pem)
    return authority


async def test_ca_and_client_certificate_are_used(authority: CertificateAuthority, tmp_path: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    async with scripted(tls=tls) as server:
        options = PrometheusOptions(
            url=server.url,
            ca_file=tmp_path / "ca.pem",
            cert_file=tmp_path / "client.pem",
            key_file=tmp_path / "client.key",
        )
        async with PrometheusClient(options) as client:
            assert isinstance(await client.instant("a"), Vector)
            server.reply = responds({"status": "success", "data": []})
            assert await client.series("a", start=0, end=1) == ()
        async with PrometheusClient(PrometheusOptions(url=server.url)) as other_client:
            for call in (other_client.instant("a"), other_client.series("a", start=0, end=1)):
                with pytest.raises(PrometheusUnavailable, match="certificate"):
                    await call


async def test_certificate_verification_can_be_skipped(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with scripted(tls=tls) as server:
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            with pytest.raises(PrometheusUnavailable):
                await client.series("a", start=0, end=1)
        assert "is not verified" not in caplog.text
        unverified = PrometheusOptions(url=server.url, insecure_skip_tls_verify=True)
        async with PrometheusClient(unverified) as client:
            assert isinstance(await client.instant("a"), Vector)
            server.reply = responds({"status": "success", "data": []})
            assert await client.series("a", start=0, end=1) == ()
    assert f"the certificate of Prometheus at {server.url.removeprefix('https://')} is not verified" in caplog.text


async def test_tls_files_are_reloaded_when_they_change(
    authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    names: list[str] = []

    async def name_of_client(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        names.append(dict(pair[0] for pair in certificate["subject"])["commonName"])
        return await responds(ONE)(request)

    async with scripted(tls=tls) as server:
        server.reply = name_of_client
        options = PrometheusOptions(
            url=server.url,
            ca_file=tmp_path / "ca.pem",
            cert_file=tmp_path / "client.pem",
            key_file=tmp_path / "client.key",
        )
        async with PrometheusClient(options) as client:
            await client.instant("a")
            renewed = authority.issue("renewed", client=True)
            (tmp_path / "client.pem").write_bytes(renewed.cert_pem)
            with caplog.at_level(logging.WARNING):
                await client.instant("a")  # the key of before does not fit
            (tmp_path / "client.key").write_bytes(renewed.key_pem)
            await client.instant("a")
    assert names == ["adapter", "adapter", "renewed"]
    assert "a TLS file has changed and cannot be used; the old one stays" in caplog.text


@pytest.mark.parametrize(
    ("options", "says_what"),
    [
        ({"url": "localhost:9090"}, "not a URL of a Prometheus"),
        ({"url": "ftp://a"}, "not a URL of a Prometheus"),
        ({"url": "http://"}, "not a URL of a Prometheus"),
        ({"url": "http://a:0"}, "not a URL of a Prometheus"),
        ({"url": "http://a:99999"}, "not a URL of a Prometheus"),
        ({"url": "http://[a"}, "not a URL of a Prometheus"),
        ({"url": "http://a b"}, "not a URL of a Prometheus"),
        ({"url": "http://a?b=c"}, "no ? and no #"),
        (
            {"url": "http://a", "verb": "PUT"},
            'unsupported Prometheus HTTP verb "PUT"; supported verbs: "GET" and "POST"',
        ),
        ({"url": "http://a", "cert_file": Path("a")}, "needs both"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], says_what: str) -> None:
    with pytest.raises(PrometheusConfigError) as refused:
        PrometheusOptions(**options)  # type: ignore[arg-type]
    assert says_what in str(refused.value)


async def test_tls_files_that_cannot_be_used_are_named(authority: CertificateAuthority, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    for name in ("bad.pem", "nowhere.pem"):
        options = PrometheusOptions(url="https://a", ca_file=tmp_path / name)
        with pytest.raises(PrometheusConfigError, match=f"CA file for Prometheus .*{name}"):
            await PrometheusClient(options).__aenter__()
        options = PrometheusOptions(
            url="https://a", ca_file=tmp_path / "ca.pem", cert_file=tmp_path / name, key_file=tmp_path / "client.key"
        )
        with pytest.raises(PrometheusConfigError, match=f"client certificate for Prometheus .*{name}"):
            await PrometheusClient(options).__aenter__()
