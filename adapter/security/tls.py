"""The TLS side of the listener: its certificate, and the authorities that client certificates are checked against.

Both change while the process runs: certificates are renewed, and the authorities come from the API server, which may
not be there yet when this starts. An SSL context that is in use cannot forget an authority, so every change makes a
new context, and the listener's own context hands each new connection over to the newest one while the handshake is
still at its first message. The handshake asks for a client certificate and does without; one that no authority
vouches for ends it. Which authority it was is for authentication to find out.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from kube.certs import self_signed

_log = logging.getLogger(__name__)

MINIMUM_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
"""The names that `--tls-min-version` takes; nothing older is spoken."""

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
"""The names that `--tls-cipher-suites` takes, and OpenSSL's names for them: all that Go has
but those with RC4 and 3DES, which OpenSSL has no more."""

_TLS13_PREFIX = "TLS_"

# The names that Kubernetes' own servers use in --cert-dir.
_CERT_NAME = "apiserver.crt"
_KEY_NAME = "apiserver.key"
_LEFT = datetime.timedelta(days=7)
_POLL_SECONDS = 10.0


class TLSError(ValueError):
    """The serving certificate cannot be used or made; the message says which file."""


_Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate chain and its key, both PEM."""

    cert: Path
    key: Path

    def stamp(self) -> _Stamp:
        """What changes when the files do, also by the symlink swap of a mounted Secret.

        Raises:
            OSError: a file is not there.
        """
        return tuple((status.st_mtime_ns, status.st_ino) for status in (self.cert.stat(), self.key.stat()))


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """A certificate for clients that ask for a certain name.

    Attributes:
        files: the certificate.
        names: the names, of which the first part may be `*`; none for those in the certificate.
    """

    files: CertificateFiles
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Contexts:
    """What connections are handed over to: by the name that the client asks for, and for all others."""

    default: ssl.SSLContext
    named: Mapping[str, ssl.SSLContext]

    def choose(self, name: str | None) -> ssl.SSLContext:
        """The context for a name; one of the name itself goes before one with a `*`."""
        wanted = (name or "").lower().rstrip(".")
        return self.named.get(wanted) or self.named.get(f"*.{wanted.partition('.')[2]}") or self.default


class ServingTLS:
    """Holds the listener's context, whose connections follow the newest certificates and authorities.

    Args:
        files: the serving certificate.
        named: certificates for clients that ask for certain names.
        minimum: the oldest protocol version that is spoken.
        ciphers: the TLS 1.2 cipher suites that are spoken, by OpenSSL's names; none for its own choice.

    Raises:
        TLSError: the files cannot be used.
    """

    def __init__(
        self,
        files: CertificateFiles,
        *,
        named: Sequence[NamedCertificate] = (),
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        ciphers: Sequence[str] = (),
    ) -> None:
        self._files = files
        self._named = tuple(named)
        older = [cipher for cipher in ciphers if not cipher.startswith(_TLS13_PREFIX)]
        # Who lists suites of TLS 1.3 alone wants nothing older.
        self._minimum = minimum if older or not ciphers else ssl.TLSVersion.TLSv1_3
        self._ciphers = ":".join(older)
        self._authorities = ""
        self._stamp, self._current = self._build()
        self.context = self._new_context()
        self.context.sni_callback = self._switch

    def trust(self, authorities: str) -> None:
        """Check client certificates of new connections against these authorities (PEM; "" for none).

        Raises:
            TLSError: OpenSSL cannot read them.
        """
        previous, self._authorities = self._authorities, authorities
        try:
            self._stamp, self._current = self._build()
        except TLSError:
            self._authorities = previous
            raise

    async def run(self) -> None:
        """Take up the serving certificate whenever its files change, until cancelled; a bad one changes nothing."""
        told: str | None = None
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                if await asyncio.to_thread(self._stamps) == self._stamp:
                    continue
                self._stamp, self._current = self._build()
            except (OSError, TLSError) as error:
                if told != str(error):
                    told = str(error)
                    _log.warning("the serving certificate has changed and cannot be used; the old one stays: %s", error)
                continue
            told = None
            _log.info("took up the new serving certificate")

    def _switch(self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current.choose(name)

    def _stamps(self) -> tuple[_Stamp, ...]:
        return tuple(files.stamp() for files in (self._files, *(one.files for one in self._named)))

    def _build(self) -> tuple[tuple[_Stamp, ...], _Contexts]:
        try:
            stamps = self._stamps()
        except OSError as error:
            raise TLSError(f"cannot use the serving certificate: {error}") from error
        default = self._loaded(self._files)
        contexts = [self._loaded(one.files) for one in self._named]
        named: dict[str, ssl.SSLContext] = {}
        # Names that were given go before those that a certificate has; and of two the one that was named first.
        for is_given in (True, False):
            for one, context in zip(self._named, contexts, strict=True):
                if bool(one.names) is is_given:
                    for name in one.names or _certified_names(one.files.cert):
                        named.setdefault(name.lower(), context)
        return stamps, _Contexts(default, named)

    def _loaded(self, files: CertificateFiles) -> ssl.SSLContext:
        context = self._new_context()
        try:
            context.load_cert_chain(files.cert, files.key)
        except (OSError, ssl.SSLError) as error:
            raise TLSError(f"cannot use {files.cert} with {files.key}: {error}") from error
        if self._authorities:
            try:
                context.load_verify_locations(cadata=self._authorities)
            except ssl.SSLError as error:
                raise TLSError(f"cannot use the authorities of client certificates: {error}") from error
        return context

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.verify_mode = ssl.CERT_OPTIONAL
        # An authority that is an intermediate is trusted for itself, as Go does.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["http/1.1"])
        return context


def self_signed_files(directory: Path, *, now: datetime.datetime) -> CertificateFiles:
    """The self-signed certificate in `directory`, made there if there is none or it ends within a week of `now`.

    Raises:
        TLSError: the directory cannot be written.
    """
    files = CertificateFiles(directory / _CERT_NAME, directory / _KEY_NAME)
    if _usable(files, now):
        return files
    host = socket.gethostname()
    names = dict.fromkeys(["localhost", host, "127.0.0.1", "::1"])
    pair = self_signed(host, list(names))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write(files.key, pair.key_pem, mode=0o600)
        _write(files.cert, pair.cert_pem, mode=0o644)
    except OSError as error:
        raise TLSError(f"cannot write a self-signed certificate to --cert-dir={directory}: {error}") from error
    _log.info("made a self-signed certificate in %s", directory)
    return files


def _certified_names(path: Path) -> list[str]:
    """The DNS names that a certificate is for."""
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
    """Put a file in place in one step, never readable by more than `mode` says."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
