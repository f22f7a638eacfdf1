"""The listener's TLS: its certificate, and the CAs that client certificates are verified with.

Both change while the process runs: certificates are renewed, and the CAs come from the API server, which may not be
available yet at the start. A CA cannot be removed from an SSL context, so every change makes a new context, and the
listener's own context passes each new connection on to the newest one during the first message of the handshake. The
handshake requests a client certificate but does not require it; a certificate that no CA verifies ends it.
`kube.security.authentication` finds out which CA verified it.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import socket
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.process.files import FilesVersion, files_version

_log = logging.getLogger(__name__)

MINIMUM_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
"""The values of `--tls-min-version`; older versions are not supported."""

CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    # Those of TLS 1.3 cannot be chosen, in Go as here; listing them is usual and harmless.
    "TLS_AES_128_GCM_SHA256": "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384": "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256": "TLS_CHACHA20_POLY1305_SHA256",
}
"""The values of `--tls-cipher-suites`, with OpenSSL's names: all of Go's
except those with RC4 and 3DES, which OpenSSL no longer supports."""

_TLS13_PREFIX = "TLS_"

# The names that Kubernetes' own servers use in --cert-dir.
_CERT_NAME = "apiserver.crt"
_KEY_NAME = "apiserver.key"
_VALID = datetime.timedelta(days=365)
_LEFT = datetime.timedelta(days=7)
_SKEW = datetime.timedelta(hours=1)  # clocks differ between machines
_POLL_SECONDS = 10.0


class TLSError(ValueError):
    """The serving certificate cannot be used or made; the message says which file."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate chain and its key, both PEM."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """A certificate for clients that request a certain server name (SNI)."""

    files: CertificateFiles
    """The certificate."""
    names: tuple[str, ...] = ()
    """The names, of which the first part may be `*`; none for those in the certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """The certificates of a server."""

    cert_dir: Path = Path("apiserver.local.config/certificates")
    """Directory of the self-signed certificate, if `certificate` is None."""
    certificate: CertificateFiles | None = None
    """The serving certificate."""
    named_certificates: tuple[NamedCertificate, ...] = ()
    """Certificates for certain server names (SNI)."""
    minimum_tls: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    """The minimum TLS version."""
    ciphers: tuple[str, ...] = ()
    """OpenSSL names of the TLS 1.2 cipher suites; empty for OpenSSL's choice."""


class ServingTLS:
    """Holds the listener's context, whose connections use the newest certificates and CAs.

    Args:
        options: see TLSOptions.

    Raises:
        TLSError: the files cannot be used, or a self-signed certificate cannot be made.
    """

    def __init__(self, options: TLSOptions) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self._files = options.certificate or self_signed_files(options.cert_dir, now=now)
        self._named = options.named_certificates
        older = [cipher for cipher in options.ciphers if not cipher.startswith(_TLS13_PREFIX)]
        # A list of TLS 1.3 suites alone excludes older versions.
        self._minimum = options.minimum_tls if older or not options.ciphers else ssl.TLSVersion.TLSv1_3
        self._ciphers = ":".join(older)
        self._ca_pem = ""
        self._version, self._default, self._by_name = self._build()
        self.context = self._new_context()
        self.context.sni_callback = self._switch

    def trust(self, ca_pem: str) -> None:
        """Verify client certificates of new connections with these CAs (PEM; "" for none).

        Raises:
            TLSError: OpenSSL cannot read them.
        """
        previous, self._ca_pem = self._ca_pem, ca_pem
        try:
            self._version, self._default, self._by_name = self._build()
        except TLSError:
            self._ca_pem = previous
            raise

    async def run(self) -> None:
        """Reload the serving certificate whenever its files change, until cancelled; a bad one changes nothing."""
        logged: str | None = None
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if await asyncio.to_thread(self._version_of_files) == self._version:
                continue
            try:
                self._version, self._default, self._by_name = self._build()
            except TLSError as error:
                if logged != str(error):
                    logged = str(error)
                    _log.warning("the serving certificate has changed and cannot be used; the old one stays: %s", error)
                continue
            logged = None
            _log.info("reloaded the serving certificate")

    def _switch(self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        """Use the context of the server name that the client requests: of the exact one, or of one with a `*`."""
        wanted = (name or "").lower().rstrip(".")
        named = self._by_name.get(wanted) or self._by_name.get(f"*.{wanted.partition('.')[2]}")
        connection.context = named or self._default

    def _version_of_files(self) -> FilesVersion:
        pairs = (self._files, *(one.files for one in self._named))
        return files_version(*(path for files in pairs for path in (files.cert, files.key)))

    def _build(self) -> tuple[FilesVersion, ssl.SSLContext, Mapping[str, ssl.SSLContext]]:
        """Return the version of the files, the context of connections, and those by server name."""
        version = self._version_of_files()
        default = self._loaded(self._files)
        contexts = [self._loaded(one.files) for one in self._named]
        named: dict[str, ssl.SSLContext] = {}
        # Configured names are preferred to those in a certificate, and the first certificate to the others.
        for is_given in (True, False):
            for one, context in zip(self._named, contexts, strict=True):
                if bool(one.names) is is_given:
                    for name in one.names or _certified_names(one.files.cert):
                        named.setdefault(name.lower(), context)
        return version, default, named

    def _loaded(self, files: CertificateFiles) -> ssl.SSLContext:
        context = self._new_context()
        try:
            context.load_cert_chain(files.cert, files.key)
        except (OSError, ssl.SSLError) as error:
            raise TLSError(f"cannot use {files.cert} with {files.key}: {error}") from error
        if self._ca_pem:
            try:
                context.load_verify_locations(cadata=self._ca_pem)
            except ssl.SSLError as error:
                raise TLSError(f"cannot use the CAs of client certificates: {error}") from error
        return context

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.verify_mode = ssl.CERT_OPTIONAL
        # An intermediate CA is trusted by itself, as in Go.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["http/1.1"])
        return context


def self_signed_files(directory: Path, *, now: datetime.datetime) -> CertificateFiles:
    """Return the self-signed certificate in `directory`; make one if there is none or it ends within a week of `now`.

    Raises:
        TLSError: the directory cannot be written.
    """
    files = CertificateFiles(directory / _CERT_NAME, directory / _KEY_NAME)
    if _usable(files, now):
        return files
    certificate, key = _self_signed(socket.gethostname(), now)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write(files.key, key, mode=0o600)
        _write(files.cert, certificate, mode=0o644)
    except OSError as error:
        raise TLSError(f"cannot write a self-signed certificate to --cert-dir={directory}: {error}") from error
    _log.info("made a self-signed certificate in %s", directory)
    return files


def _self_signed(host: str, now: datetime.datetime) -> tuple[bytes, bytes]:
    """Return a certificate for a host and loopback, and its key: PEM. P-256 is fast, and every client accepts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    names = [x509.DNSName(each) for each in dict.fromkeys(("localhost", host))]
    addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - _SKEW).not_valid_after(now + _VALID)
    builder = builder.add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return certificate, key.private_bytes(*form, serialization.NoEncryption())


def _certified_names(path: Path) -> list[str]:
    """Return the DNS names in a certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (OSError, ValueError) as error:
        raise TLSError(f"cannot use {path}: {error}") from error
    return alternatives.get_values_for_type(x509.DNSName)


def _usable(files: CertificateFiles, now: datetime.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.cert.read_bytes())
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.cert, files.key)
    except (OSError, ValueError, ssl.SSLError):
        return False
    return certificate.not_valid_before_utc <= now and now + _LEFT < certificate.not_valid_after_utc


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file in one step; it is never readable by more than `mode` says."""
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        new = Path(directory, path.name)
        new.touch(mode)
        new.write_bytes(content)
        new.replace(path)
