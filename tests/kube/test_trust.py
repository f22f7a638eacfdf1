"""The CAs of client certificates: from flags and from the ConfigMap, reloaded when they change."""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from kube.api.client import KubeClient
from kube.security.trust import CertificateBundle, ClientTrust, TrustError, TrustOptions, TrustReloader
from playground.certs import CertificateAuthority, KeyPair
from tests.eventually import eventually
from tests.kube.access_api import AccessApi, Authorities
from tests.kube.scripted import connected, scripted_server

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def verifies(authority: CertificateAuthority, pair: KeyPair, *, now: datetime.datetime = NOW) -> bool:
    bundle = CertificateBundle.parse(authority.cert_pem.decode(), source="test")
    (certificate,) = CertificateBundle.parse(pair.cert_pem.decode(), source="test").certificates
    return bundle.verifies(certificate, now=now)


def test_ca_verifies_only_its_own_valid_client_certificates() -> None:
    authority, twin = CertificateAuthority.create("same name"), CertificateAuthority.create("same name")
    client = authority.issue("ann", client=True, days=10)
    assert verifies(authority, client)
    assert not verifies(twin, client)
    assert not verifies(authority, client, now=NOW + 11 * DAY)
    assert not verifies(authority, client, now=NOW - DAY)
    assert not verifies(authority, authority.issue("ann", server=True))
    assert verifies(authority, authority.issue("ann"))
    assert not verifies(authority, authority.issue("ann", client=True, days=5000), now=NOW + 4000 * DAY)


def test_a_certificate_is_a_clients_where_its_usages_say_so() -> None:
    """Without a list of usages it is one for anything; with one that cannot be read it is none."""
    authority = CertificateAuthority.create("authority")
    bundle = CertificateBundle.parse(authority.cert_pem.decode(), source="test")
    usages = ExtensionOID.EXTENDED_KEY_USAGE

    def trusted(extension: x509.ExtensionType | None) -> bool:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
        builder = x509.CertificateBuilder(authority.certificate.subject, subject, key.public_key(), 1)
        builder = builder.not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
        return bundle.verifies(builder.sign(authority.key, hashes.SHA256()), now=NOW)

    assert trusted(None)
    assert trusted(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]))
    assert trusted(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]))
    assert not trusted(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]))
    assert not trusted(x509.UnrecognizedExtension(usages, b"no usages"))


@dataclass
class Reloading:
    """A running reloader, its API server, and every trust that it applied."""

    trust: TrustReloader
    api: AccessApi
    seen: list[ClientTrust]

    async def knows(self) -> ClientTrust:
        """The trust, once everything has been read."""

        async def ready() -> bool:
            return self.trust.problem() is None

        await eventually(ready, within=5.0, every=0.005)
        return self.trust.current

    async def becomes(self, check: Callable[[ClientTrust], bool]) -> None:
        """Return when the trust is so."""

        async def changed() -> bool:
            return check(self.trust.current)

        await eventually(changed, within=5.0, every=0.005)

    async def says(self, text: str) -> None:
        """Return when this is part of the problem."""

        async def told() -> bool:
            return text in (self.trust.problem() or "")

        await eventually(told, within=5.0, every=0.005)


@contextlib.asynccontextmanager
async def reloader(
    directory: Path,
    options: TrustOptions | None = None,
    *,
    published: Mapping[str, str] | None = None,
    refused: int | None = None,
    on_change: Callable[[ClientTrust], None] = lambda _: None,
) -> AsyncIterator[Reloading]:
    """Run a reloader; the ConfigMap has its usual data, and `published` beside."""
    seen: list[ClientTrust] = []
    async with scripted_server() as server, connected(server, directory) as client, asyncio.TaskGroup() as tasks:
        api = AccessApi(Authorities())
        api.refuse_with = refused
        assert api.config_map is not None
        api.config_map |= published or {}
        api.script(server)

        def change(trust: ClientTrust) -> None:
            on_change(trust)
            seen.append(trust)

        trust = TrustReloader(options or TrustOptions(), client, on_change=change)
        assert trust.problem() is not None
        running = tasks.create_task(trust.run())
        try:
            yield Reloading(trust, api, seen)
        finally:
            running.cancel()


async def test_config_map_completes_the_flags(tmp_path: Path) -> None:
    async with reloader(tmp_path) as reloading:
        trust = await reloading.knows()
        proxy = trust.front_proxy
        assert proxy is not None
        assert reloading.api.config_map is not None
        assert proxy.ca.pem == reloading.api.config_map["requestheader-client-ca-file"]
        assert proxy.allowed_names == {"front-proxy-client"}
        assert proxy.username_headers == ("X-Remote-User",)
        assert proxy.extra_prefixes == ("X-Remote-Extra-",)
        assert reloading.seen == [trust]


async def test_config_map_is_watched(tmp_path: Path) -> None:
    async with reloader(tmp_path) as reloading:
        before = await reloading.knows()
        other = Authorities().config_map()
        reloading.api.publish(other)
        await reloading.becomes(
            lambda trust: trust.clients is not None and trust.clients.pem == other["client-ca-file"]
        )
        assert reloading.seen == [before, reloading.trust.current]
        # The Role that Kubernetes has for this gives the right to this one alone.
        assert set(reloading.api.field_selectors) == {"metadata.name=extension-apiserver-authentication"}


async def test_flags_win_over_the_config_map(tmp_path: Path) -> None:
    own = CertificateAuthority.create("own")
    path = tmp_path / "ca.crt"
    path.write_bytes(b"# a comment in Fran\xc3\xa7ais\n" + own.cert_pem)
    options = TrustOptions(requestheader_client_ca_file=path, requestheader_allowed_names=("me",))
    async with reloader(tmp_path, options) as reloading:
        trust = await reloading.knows()
        assert trust.front_proxy is not None
        assert trust.front_proxy.ca.pem == own.cert_pem.decode()
        assert trust.front_proxy.allowed_names == {"me"}
        assert trust.clients is not None
        assert reloading.api.config_map is not None
        assert trust.clients.pem == reloading.api.config_map["client-ca-file"]
        assert trust.pem == own.cert_pem.decode() + reloading.api.config_map["client-ca-file"]


@pytest.mark.looptime
async def test_rotated_file_is_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.security.trust._FILES_SECONDS", 0.01)
    first, second = CertificateAuthority.create("first"), CertificateAuthority.create("second")
    path = tmp_path / "ca.crt"
    path.write_bytes(first.cert_pem)
    async with reloader(tmp_path, TrustOptions(client_ca_file=path)) as reloading:
        await reloading.knows()
        path.write_text("half a certificate")
        await asyncio.sleep(0.05)
        assert reloading.trust.current.clients is not None
        assert reloading.trust.current.clients.pem == first.cert_pem.decode()
        path.write_bytes(second.cert_pem)
        await reloading.becomes(
            lambda trust: trust.clients is not None and trust.clients.pem == second.cert_pem.decode()
        )


async def test_skipped_lookup_needs_no_api_server(tmp_path: Path) -> None:
    async with reloader(tmp_path, TrustOptions(skip_lookup=True)) as reloading:
        await reloading.trust.load_files()
        assert reloading.trust.problem() is None
        assert reloading.trust.current == ClientTrust()
        assert reloading.api.field_selectors == []


async def test_absent_config_map_means_no_certificates(tmp_path: Path) -> None:
    async with reloader(tmp_path) as reloading:
        reloading.api.config_map = None
        assert await reloading.knows() == ClientTrust()


async def test_ca_that_tls_refuses_is_not_trusted(tmp_path: Path) -> None:
    """The handshake and what follows it must never go by different authorities."""
    refused = asyncio.Event()

    def refuse_new(trust: ClientTrust) -> None:
        if trust.front_proxy is not None and trust.front_proxy.allowed_names == {"new"}:
            refused.set()
            raise ValueError("no context can be made of this")

    async with reloader(tmp_path, on_change=refuse_new) as reloading:
        before = await reloading.knows()
        reloading.api.publish({**Authorities().config_map(), "requestheader-allowed-names": '["new"]'})
        async with asyncio.timeout(60):
            await refused.wait()
        assert reloading.trust.current is before
        assert reloading.seen == [before]


async def test_deleted_config_map_changes_nothing(tmp_path: Path) -> None:
    async with reloader(tmp_path) as reloading:
        good = await reloading.knows()
        reloading.api.publish(None)

        async def deleted() -> bool:
            return reloading.api.sent_events == ["DELETED"]

        await eventually(deleted, within=5.0, every=0.005)
        later = Authorities().config_map()
        reloading.api.publish(later)
        await reloading.becomes(
            lambda trust: trust.clients is not None and trust.clients.pem == later["client-ca-file"]
        )
        assert reloading.seen == [good, reloading.trust.current]


DAMAGED = [
    ("client-ca-file", "garbage", "ConfigMap key client-ca-file: no PEM certificates found"),
    ("requestheader-allowed-names", "[", "ConfigMap key requestheader-allowed-names: not a JSON list"),
    ("requestheader-allowed-names", "{}", "ConfigMap key requestheader-allowed-names: not a JSON list of strings"),
    ("requestheader-group-headers", "[1]", "ConfigMap key requestheader-group-headers: not a JSON list of strings"),
]


@pytest.mark.parametrize(("key", "value", "message"), DAMAGED)
async def test_damaged_config_map_is_explained_and_leaves_the_last_good_state(
    tmp_path: Path, key: str, value: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reloader(tmp_path, published={key: value}) as reloading:
        await reloading.says(message)
    caplog.clear()
    async with reloader(tmp_path) as reloading:
        good = await reloading.knows()
        assert reloading.api.config_map is not None
        reloading.api.publish(reloading.api.config_map | {key: value})

        async def logged() -> bool:
            return any(message in logged for logged in caplog.messages)

        await eventually(logged, within=5.0, every=0.005)
        assert (reloading.trust.current, reloading.trust.problem()) == (good, None)


@pytest.mark.parametrize("content", [None, "", "garbage"])
async def test_wrong_file_is_named_with_its_flag(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    async with reloader(tmp_path, TrustOptions(client_ca_file=path)) as reloading:
        with pytest.raises(TrustError, match=r"--client-ca-file=.*ca\.crt: "):
            await reloading.trust.load_files()


async def test_api_server_that_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The adapter waits for it, logs the reason once and shows it, and loads its CAs once it exists."""
    monkeypatch.setattr("kube.security.trust._RETRY_SECONDS", (0.005, 0.01))
    caplog.set_level(logging.INFO, logger="kube.cache.store")
    async with scripted_server() as server:
        kubeconfig = server.kubeconfig(tmp_path)
        port = int(server.url.rpartition(":")[2])
    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        trust = TrustReloader(TrustOptions(), client, on_change=lambda _: None)
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


async def test_missing_right_is_explained(tmp_path: Path) -> None:
    async with reloader(tmp_path, refused=403) as reloading:
        await reloading.says("extension-apiserver-authentication-reader")
