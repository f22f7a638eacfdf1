"""Requests through a forward proxy: with CONNECT for https, with the whole URL for http."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.prometheus import PrometheusClient, PrometheusOptions, PrometheusUnavailable
from adapter.upstream import Auth, OAuth2Auth
from playground.certs import CertificateAuthority
from tests.adapter.scripted_prometheus import scripted
from tests.adapter.upstream.test_oauth2 import SECRET, TokenServer, running


@dataclass
class ForwardProxy:
    """A proxy for one user, which connects every request to where it is sent."""

    url: str = ""
    """With the user's password."""
    lines: list[str] = field(default_factory=list)
    """The first lines of all requests."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.lines.append(head.partition("\r\n")[0])
        method, target, _ = self.lines[-1].split()
        password = base64.b64encode(b"user:pass word").decode()
        if f"Proxy-Authorization: Basic {password}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        else:
            connects = method == "CONNECT"
            host, _, port = (target if connects else target.split("/")[2]).partition(":")
            upstream, to_upstream = await asyncio.open_connection(host, int(port))
            if connects:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = target.split("/", 3)[3]
                to_upstream.write(f"{method} /{path} HTTP/1.1\r\n{head.partition(chr(10))[2]}".encode())
            with contextlib.suppress(ConnectionError):
                await asyncio.wait(
                    [asyncio.create_task(_copy(reader, to_upstream)), asyncio.create_task(_copy(upstream, writer))]
                )
            to_upstream.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@contextlib.asynccontextmanager
async def proxy(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[ForwardProxy]:
    running = ForwardProxy()
    server = await asyncio.start_server(running.handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    running.url = f"http{'s' if tls else ''}://user:pass%20word@127.0.0.1:{port}"
    async with server:
        yield running


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    authority = CertificateAuthority.create("test")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem)
    pair = authority.issue("server", hosts=("127.0.0.1",), server=True)
    (tmp_path / "server.pem").write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


async def test_http_goes_through_the_proxy() -> None:
    async with proxy() as forward, scripted() as server:
        options = PrometheusOptions(url=server.url, proxy_url=forward.url)
        async with PrometheusClient(options) as client:
            await client.instant("up")
    assert forward.lines[0].startswith(f"GET {server.url}/api/v1/query?")
    assert len(server.requests) == 1


async def test_https_goes_through_a_tunnel(tls: ssl.SSLContext, tmp_path: Path) -> None:
    async with proxy() as forward, scripted(tls=tls) as server:
        options = PrometheusOptions(url=server.url, proxy_url=forward.url, ca_file=tmp_path / "ca.pem")
        async with PrometheusClient(options) as client:
            await client.instant("up")
            await client.instant("up")
    assert forward.lines == [f"CONNECT {server.url.removeprefix('https://')} HTTP/1.1"]
    assert all("Proxy-Authorization" not in headers for headers in server.headers)


@pytest.mark.parametrize("prometheus_has_tls", [False, True])
async def test_proxy_with_tls(prometheus_has_tls: bool, tls: ssl.SSLContext, tmp_path: Path) -> None:
    async with proxy(tls=tls) as forward, scripted(tls=tls if prometheus_has_tls else None) as server:
        options = PrometheusOptions(url=server.url, proxy_url=forward.url, ca_file=tmp_path / "ca.pem")
        async with PrometheusClient(options) as client:
            await client.instant("up")
    assert len(forward.lines) == 1


async def test_environment_sets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with scripted() as server, PrometheusClient(PrometheusOptions(url=server.url)) as client:
        await client.instant("up")


async def test_errors_of_a_proxy_have_no_password(tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture) -> None:
    async with proxy() as forward, scripted(tls=tls) as server:
        wrong = forward.url.replace("pass%20word", "hunter2")
        async with PrometheusClient(PrometheusOptions(url=server.url, proxy_url=wrong)) as client:
            with pytest.raises(PrometheusUnavailable, match=r"its proxy refuses .* with status 407") as refused:
                await client.instant("up")
    gone = PrometheusOptions(url="http://127.0.0.1:1", proxy_url="http://user:hunter2@127.0.0.1:1")
    async with PrometheusClient(gone) as client:
        with pytest.raises(PrometheusUnavailable, match="its proxy cannot be reached") as unreachable:
            await client.instant("up")
    assert "hunter2" not in f"{refused.value} {unreachable.value} {caplog.text} {gone!r}"


async def test_token_url_has_a_proxy_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    tokens = TokenServer()
    async with running(tokens) as prometheus, proxy() as forward:
        form = OAuth2Auth(
            token_url=tokens.url, client_id="adapter", client_secret_file=tmp_path / "secret", proxy_url=forward.url
        )
        async with PrometheusClient(PrometheusOptions(url=prometheus.url, auth=Auth(oauth2=form))) as client:
            await client.instant("up")
    assert forward.lines == [f"POST {tokens.url} HTTP/1.1"]
