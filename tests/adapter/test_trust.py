"""Whose certificates are trusted: the flags' files, the ConfigMap, and how both are kept current."""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.trust import CertificateBundle, ClientTrust, TrustError, TrustKeeper, TrustOptions
from kube.certs import CertificateAuthority, KeyPair
from kube.client import KubeClient
from tests.adapter.serving import AccessApi, Authorities
from tests.eventually import eventually
from tests.kube.scripted import connected, scripted_server

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def vouches(authority: CertificateAuthority, pair: KeyPair, *, now: datetime.datetime = NOW) -> bool:
    bundle = CertificateBundle.parse(authority.cert_pem.decode(), source="test")
    (certificate,) = CertificateBundle.parse(pair.cert_pem.decode(), source="test").certificates
    return bundle.vouches_for(certificate, now=now)


def test_authority_vouches_for_its_own_valid_client_certificates_alone() -> None:
    authority, twin = CertificateAuthority.create("same name"), CertificateAuthority.create("same name")
    client = authority.issue("ann", client=True, days=10)
    assert vouches(authority, client)
    assert not vouches(twin, client)
    assert not vouches(authority, client, now=NOW + 11 * DAY)
    assert not vouches(authority, client, now=NOW - DAY)
    assert not vouches(authority, authority.issue("ann", server=True))
    assert vouches(authority, authority.issue("ann"))
    assert not vouches(authority, authority.issue("ann", client=True, days=5000), now=NOW + 4000 * DAY)


@contextlib.asynccontextmanager
async def keeper(
    directory: Path, options: TrustOptions | None = None
) -> AsyncIterator[tuple[TrustKeeper, AccessApi, list[ClientTrust]]]:
    seen: list[ClientTrust] = []
    async with scripted_server() as server, connected(server, directory) as client:
        api = AccessApi(Authorities())
        api.script(server)
        yield TrustKeeper(options or TrustOptions(), client, on_change=seen.append), api, seen


async def test_config_map_says_everything_that_flags_leave_open(tmp_path: Path) -> None:
    async with keeper(tmp_path) as (trust, api, seen):
        assert trust.problem() is not None
        await trust.refresh()
        assert trust.problem() is None
        proxy = trust.current.front_proxy
        assert proxy is not None
        assert api.config_map is not None
        assert proxy.authority.pem == api.config_map["requestheader-client-ca-file"]
        assert proxy.allowed_names == {"front-proxy-client"}
        assert proxy.username_headers == ("X-Remote-User",)
        assert proxy.extra_prefixes == ("X-Remote-Extra-",)
        await trust.refresh()
        assert seen == [trust.current]


async def test_flags_win_over_the_config_map(tmp_path: Path) -> None:
    own = CertificateAuthority.create("own")
    path = tmp_path / "ca.crt"
    path.write_bytes(b"# a comment in Fran\xc3\xa7ais\n" + own.cert_pem)
    options = TrustOptions(requestheader_client_ca_file=path, requestheader_allowed_names=("me",))
    async with keeper(tmp_path, options) as (trust, api, _):
        await trust.refresh()
        assert trust.current.front_proxy is not None
        assert trust.current.front_proxy.authority.pem == own.cert_pem.decode()
        assert trust.current.front_proxy.allowed_names == {"me"}
        assert trust.current.clients is not None
        assert api.config_map is not None
        assert trust.current.clients.pem == api.config_map["client-ca-file"]
        assert trust.current.pem == own.cert_pem.decode() + api.config_map["client-ca-file"]


async def test_skipped_lookup_needs_no_api_server(tmp_path: Path) -> None:
    async with keeper(tmp_path, TrustOptions(skip_lookup=True)) as (trust, api, _):
        api.refuse_with = 500
        await trust.load_files()
        assert trust.problem() is None
        await trust.refresh()
        assert trust.current == ClientTrust()


async def test_absent_config_map_means_no_certificates(tmp_path: Path) -> None:
    async with keeper(tmp_path) as (trust, api, _):
        api.config_map = None
        await trust.refresh()
        assert (trust.problem(), trust.current) == (None, ClientTrust())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("client-ca-file", "garbage", "ConfigMap key client-ca-file: no PEM certificates found"),
        ("requestheader-allowed-names", "[", "ConfigMap key requestheader-allowed-names: not a JSON list"),
        ("requestheader-allowed-names", "{}", "ConfigMap key requestheader-allowed-names: not a JSON list of strings"),
        ("requestheader-group-headers", "[1]", "ConfigMap key requestheader-group-headers: not a JSON list of strings"),
    ],
)
async def test_damaged_config_map_leaves_the_last_good_state(
    tmp_path: Path, key: str, value: str, message: str
) -> None:
    async with keeper(tmp_path) as (trust, api, _):
        await trust.refresh()
        good = trust.current
        assert api.config_map is not None
        api.config_map[key] = value
        with pytest.raises(TrustError, match=f"^{message}$"):
            await trust.refresh()
        assert (trust.current, trust.problem()) == (good, None)


@pytest.mark.parametrize("content", [None, "", "garbage"])
async def test_wrong_file_is_named_with_its_flag(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    async with keeper(tmp_path, TrustOptions(client_ca_file=path)) as (trust, _, _seen):
        with pytest.raises(TrustError, match=r"--client-ca-file=.*ca\.crt: "):
            await trust.load_files()


async def test_api_server_that_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is waited for, the reason is told once and shown, and once it is there its authorities are read."""
    monkeypatch.setattr("adapter.trust._RETRY_SECONDS", (0.005, 0.01))
    caplog.set_level(logging.INFO, logger="adapter.trust")
    async with scripted_server() as server:
        kubeconfig = server.kubeconfig(tmp_path)
        port = int(server.url.rpartition(":")[2])
    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        trust = TrustKeeper(TrustOptions(), client, on_change=lambda _: None)
        running = tasks.create_task(trust.run())

        async def refused() -> bool:
            return "cannot be reached" in (trust.problem() or "")

        async def ready() -> bool:
            return trust.problem() is None

        await eventually(refused, within=5.0, every=0.01)
        async with scripted_server(port=port) as server:
            AccessApi(Authorities()).script(server)
            await eventually(ready, within=5.0, every=0.01)
        running.cancel()
    assert trust.current.front_proxy is not None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_missing_right_is_explained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with keeper(tmp_path) as (trust, api, _), asyncio.TaskGroup() as tasks:
        api.refuse_with = 403
        running = tasks.create_task(trust.run())

        async def told() -> bool:
            return "extension-apiserver-authentication-reader" in (trust.problem() or "")

        await eventually(told, within=5.0, every=0.01)
        running.cancel()
