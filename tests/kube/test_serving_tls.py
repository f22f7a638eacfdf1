"""The listener's TLS: contexts that change under it, protocol versions, the self-signed certificate."""

import asyncio
import datetime
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from kube.security.tls import (
    CIPHER_SUITES,
    CertificateFiles,
    NamedCertificate,
    ServingTLS,
    TLSError,
    TLSOptions,
    self_signed_files,
)
from playground.certs import CertificateAuthority, KeyPair
from tests.eventually import eventually
from tests.kube.access_api import write_pair

NOW = datetime.datetime.now(datetime.UTC)


def serving(files: CertificateFiles, **options: Any) -> ServingTLS:
    """Return the TLS of a listener with this certificate; `options` are fields of TLSOptions."""
    return ServingTLS(TLSOptions(certificate=files, **options))


class Handshakes:
    """A TLS listener that tells each client whose certificate it showed, and clients of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.serving = CertificateAuthority.create("serving-ca")
        self.files = write_pair(directory, self.serving.issue("first", hosts=["localhost", "127.0.0.1"], server=True))
        self.port = 0

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("ssl_object").getpeercert()
        subject = dict(pair for (pair,) in certificate["subject"]) if certificate else {}
        writer.write(f"{subject.get('commonName', 'nobody')}\n".encode())
        writer.close()
        await writer.wait_closed()

    async def connect(
        self, host: str, client: KeyPair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> tuple[str, str]:
        """Whom the listener saw, and the name in its own certificate; raises if it ended the handshake."""
        context = ssl.create_default_context(cadata=self.serving.cert_pem.decode())
        context.minimum_version = context.maximum_version = version
        if client is not None:
            pair = write_pair(self.directory, client, "client")
            context.load_cert_chain(pair.cert, pair.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=host)
        try:
            line = await reader.readline()
            if not line:
                raise ConnectionResetError("the handshake was ended")
            server = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
            return line.decode().strip(), server.subject.rfc4514_string()
        finally:
            writer.close()


@asynccontextmanager
async def listening(handshakes: Handshakes, tls: ServingTLS) -> AsyncIterator[None]:
    server = await asyncio.start_server(handshakes.greet, "127.0.0.1", 0, ssl=tls.context)
    handshakes.port = server.sockets[0].getsockname()[1]
    # A refused handshake is this test's subject, not an accident to report.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with server:
        yield


@pytest.mark.parametrize(
    ("version", "host"),
    [(ssl.TLSVersion.TLSv1_2, "localhost"), (ssl.TLSVersion.TLSv1_3, "127.0.0.1")],
    ids=["a server name is sent", "no server name"],
)
async def test_new_connections_follow_the_newest_authorities(
    tmp_path: Path, version: ssl.TLSVersion, host: str
) -> None:
    handshakes = Handshakes(tmp_path)
    first, second = CertificateAuthority.create("same name"), CertificateAuthority.create("same name")
    ann, ben = first.issue("ann", client=True), second.issue("ben", client=True)
    tls = serving(handshakes.files)
    async with listening(handshakes, tls):
        assert (await handshakes.connect(host, None, version))[0] == "nobody"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshakes.connect(host, ann, version)
        for authority, trusted, refused in ((first, ann, ben), (second, ben, ann)):
            tls.trust(authority.cert_pem.decode())
            seen, _ = await handshakes.connect(host, trusted, version)
            assert seen == {"ann": "ann", "ben": "ben"}["ann" if trusted is ann else "ben"]
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await handshakes.connect(host, refused, version)
            assert (await handshakes.connect(host, None, version))[0] == "nobody"


async def test_a_trusted_intermediate_ca_needs_no_root(tmp_path: Path) -> None:
    handshakes = Handshakes(tmp_path)
    root, intermediate = CertificateAuthority.create("root"), CertificateAuthority.create("intermediate")
    of_intermediate = intermediate.certificate
    builder = x509.CertificateBuilder(
        root.certificate.subject, of_intermediate.subject, of_intermediate.public_key(), of_intermediate.serial_number
    )
    builder = builder.not_valid_before(of_intermediate.not_valid_before_utc)
    builder = builder.not_valid_after(of_intermediate.not_valid_after_utc)
    for extension in of_intermediate.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = CertificateAuthority(builder.sign(root.key, hashes.SHA256()), intermediate.key)
    tls = serving(handshakes.files)
    tls.trust(signed.cert_pem.decode())
    async with listening(handshakes, tls):
        assert (await handshakes.connect("localhost", signed.issue("ann", client=True)))[0] == "ann"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshakes.connect("localhost", root.issue("ben", client=True))


@pytest.mark.looptime
async def test_renewed_serving_certificate_is_reloaded_and_unusable_files_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CAs that cannot be used change neither the trusted ones nor the later renewal of the serving certificate."""
    monkeypatch.setattr("kube.security.tls._POLL_SECONDS", 0.01)
    handshakes = Handshakes(tmp_path)
    authority = CertificateAuthority.create("clients")
    ann = authority.issue("ann", client=True)
    tls = serving(handshakes.files)
    tls.trust(authority.cert_pem.decode())
    with pytest.raises(TLSError, match="the CAs of client certificates"):
        tls.trust("no certificate")

    async def is_second() -> bool:
        return await handshakes.connect("localhost", ann) == ("ann", "CN=second")

    async with listening(handshakes, tls), asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(tls.run())
        assert await handshakes.connect("localhost", ann) == ("ann", "CN=first")
        handshakes.files.cert.write_text("half a cert")
        await asyncio.sleep(0.05)
        assert await handshakes.connect("localhost", ann) == ("ann", "CN=first")
        write_pair(tmp_path, handshakes.serving.issue("second", hosts=["localhost"], server=True))
        await eventually(is_second, within=5.0, every=0.02)
        keeping.cancel()


async def test_older_versions_are_refused(tmp_path: Path) -> None:
    handshakes = Handshakes(tmp_path)
    async with listening(handshakes, serving(handshakes.files, minimum_tls=ssl.TLSVersion.TLSv1_3)):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshakes.connect("localhost", None, ssl.TLSVersion.TLSv1_2)


def test_unusable_files_are_named(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "no.crt", tmp_path / "no.key")
    with pytest.raises(TLSError, match=r"no\.crt"):
        serving(files)


def test_self_signed_certificate_is_made_once(tmp_path: Path) -> None:
    made = self_signed_files(tmp_path / "certs", now=NOW)
    content = made.cert.read_bytes()
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert self_signed_files(tmp_path / "certs", now=NOW).cert.read_bytes() == content
    assert sorted(path.name for path in (tmp_path / "certs").iterdir()) == ["apiserver.crt", "apiserver.key"]
    serving(made)


async def test_self_signed_certificate_is_for_this_host_and_verifies_itself(tmp_path: Path) -> None:
    handshakes = Handshakes(tmp_path)
    files = self_signed_files(tmp_path / "certs", now=NOW)
    async with listening(handshakes, serving(files)):
        for host in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
            context = ssl.create_default_context(cafile=files.cert)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", handshakes.port, ssl=context, server_hostname=host
            )
            assert await reader.readline() == b"nobody\n"
            writer.close()


@pytest.mark.parametrize("days", [360, 400, -400], ids=["ends soon", "has ended", "not valid yet"])
def test_self_signed_certificate_is_made_again_when_its_time_is_over(tmp_path: Path, days: int) -> None:
    content = self_signed_files(tmp_path, now=NOW).cert.read_bytes()
    assert self_signed_files(tmp_path, now=NOW + datetime.timedelta(days=days)).cert.read_bytes() != content


def test_damaged_self_signed_certificate_is_made_again(tmp_path: Path) -> None:
    self_signed_files(tmp_path, now=NOW).key.write_text("damaged")
    serving(self_signed_files(tmp_path, now=NOW))


def test_two_processes_can_make_a_certificate_in_one_directory_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter and the autoscaler have the same default."""
    replace = Path.replace

    def after_another_process(path: Path, target: Path) -> Path:
        monkeypatch.undo()
        self_signed_files(tmp_path, now=NOW)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", after_another_process)
    serving(self_signed_files(tmp_path, now=NOW))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["apiserver.crt", "apiserver.key"]


def test_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TLSError, match=r"--cert-dir=.*file"):
        self_signed_files(tmp_path / "file", now=NOW)


async def test_client_gets_the_certificate_for_its_server_name(tmp_path: Path) -> None:
    handshakes = Handshakes(tmp_path)
    named = []
    for label, hosts, names in (
        ("extracted", ["one.example.com", "two.example.com", "three.example.com"], ()),
        ("wild", ["*.example.com"], ("*.example.com",)),
        ("exact", ["two.example.com"], ("two.example.com",)),  # a name that was given goes before one that was found
    ):
        files = write_pair(tmp_path, handshakes.serving.issue(label, hosts=hosts, server=True), label)
        named.append(NamedCertificate(files, names))
    async with listening(handshakes, serving(handshakes.files, named_certificates=tuple(named))):
        for host, expected in (
            ("one.example.com", "extracted"),
            ("TWO.example.com", "exact"),
            ("four.example.com", "wild"),
            ("localhost", "first"),
            ("127.0.0.1", "first"),
        ):
            assert (await handshakes.connect(host, None))[1] == f"CN={expected}"


@pytest.mark.parametrize("names", [list(CIPHER_SUITES), ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]])
async def test_cipher_suites_are_those_that_were_chosen(tmp_path: Path, names: list[str]) -> None:
    handshakes = Handshakes(tmp_path)
    ciphers = [CIPHER_SUITES[name] for name in names]
    async with listening(handshakes, serving(handshakes.files, ciphers=tuple(ciphers))):
        context = ssl.create_default_context(cadata=handshakes.serving.cert_pem.decode())
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", handshakes.port, ssl=context, server_hostname="localhost"
        )
        cipher, *_ = writer.get_extra_info("cipher")
        assert cipher in ciphers
        await reader.read()
        writer.close()


async def test_suites_of_tls_13_alone_mean_nothing_older(tmp_path: Path) -> None:
    handshakes = Handshakes(tmp_path)
    async with listening(handshakes, serving(handshakes.files, ciphers=("TLS_AES_128_GCM_SHA256",))):
        assert (await handshakes.connect("localhost", None))[0] == "nobody"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshakes.connect("localhost", None, ssl.TLSVersion.TLSv1_2)
