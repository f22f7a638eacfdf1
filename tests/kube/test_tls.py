"""TLS settings of a kubeconfig."""

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kube.api.client import KubeClient, KubeUnreachable
from playground.certs import CertificateAuthority

NAME = "api.internal"


def data(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@contextlib.asynccontextmanager
async def tls_server(
    folder: Path, ca: CertificateAuthority, *, clients: CertificateAuthority, port: int = 0
) -> AsyncIterator[int]:
    """Start a server whose certificate is for another name than its address; yield its port."""
    pair = ca.issue(NAME, hosts=[NAME], server=True)
    (folder / "server.pem").write_bytes(pair.cert_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=clients.cert_pem.decode())

    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = (request.transport.get_extra_info("peercert") or {}).get("subject", ())
        name = dict(each[0] for each in subject).get("commonName", "")
        return web.json_response({"name": name}, headers={"Connection": "close"})

    app = web.Application()
    app.router.add_get("/who", who)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def connected(folder: Path, port: int, user: dict[str, str], **cluster: Any) -> KubeClient:
    """Return a client with a kubeconfig."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"https://127.0.0.1:{port}", **cluster}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return await KubeClient.connect(folder / "kubeconfig")


async def who(folder: Path, port: int, user: dict[str, str], **cluster: Any) -> str:
    """Return the user that the server sees for a kubeconfig."""
    async with await connected(folder, port, user, **cluster) as client:
        return str((await client.get("/who"))["name"])


async def test_kubeconfig_certificates_are_used_and_verified(tmp_path: Path) -> None:
    ca, clients = CertificateAuthority.create("servers"), CertificateAuthority.create("clients")
    alice = clients.issue("alice", client=True)
    user = {"client-certificate-data": data(alice.cert_pem), "client-key-data": data(alice.key_pem)}
    trusted = {"certificate-authority-data": data(ca.cert_pem)}
    async with tls_server(tmp_path, ca, clients=clients) as port:
        assert await who(tmp_path, port, user, **trusted, **{"tls-server-name": NAME}) == "alice"
        assert await who(tmp_path, port, {}, **trusted, **{"tls-server-name": NAME}) == ""
        assert await who(tmp_path, port, user, **{"insecure-skip-tls-verify": True}) == "alice"
        assert await who(tmp_path, port, {}, **{"insecure-skip-tls-verify": True}) == ""
        with pytest.raises(KubeUnreachable, match="its certificate cannot be verified"):
            await who(tmp_path, port, {})
        with pytest.raises(KubeUnreachable, match="IP address mismatch"):
            await who(tmp_path, port, user, **trusted)
        others = {"certificate-authority-data": data(clients.cert_pem)}
        with pytest.raises(KubeUnreachable, match="its certificate cannot be verified"):
            await who(tmp_path, port, user, **others, **{"tls-server-name": NAME})


async def test_client_certificate_and_ca_of_a_kubeconfig_are_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.api.config._CREDENTIAL_SECONDS", 0.0)
    clients, first, second = (CertificateAuthority.create(name) for name in ("clients", "first", "second"))
    user = {"client-certificate": "client.crt", "client-key": "client.key"}

    def write(name: str, ca: CertificateAuthority) -> None:
        pair = clients.issue(name, client=True)
        for file, content in (("client.crt", pair.cert_pem), ("client.key", pair.key_pem), ("ca.crt", ca.cert_pem)):
            (tmp_path / file).write_bytes(content)

    write("before", first)
    async with tls_server(tmp_path, first, clients=clients) as port:
        cluster = {"certificate-authority": "ca.crt", "tls-server-name": NAME}
        client = await connected(tmp_path, port, user, **cluster)
        assert await client.get("/who") == {"name": "before"}
        write("after", first)
        assert await client.get("/who") == {"name": "after"}
    async with tls_server(tmp_path, second, clients=clients, port=port), client:
        with pytest.raises(KubeUnreachable, match="its certificate cannot be verified"):
            await client.get("/who")
        write("after", second)
        assert await client.get("/who") == {"name": "after"}
