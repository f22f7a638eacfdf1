"""Whose client certificates are believed, and for what.

Two authorities matter. Certificates of the request-header authority belong to the API server's aggregation layer:
whoever holds one may say in headers for whom it speaks. Certificates of the client authority name their holder
themselves. They must never be confused, also where both authorities carry the same name; so which one issued a
certificate is decided by its signature alone.

Flags may name the authorities' files. What they leave open is read from the ConfigMap
kube-system/extension-apiserver-authentication, where every API server publishes it. Both are read again now and then,
because authorities are rotated; what cannot be read leaves the last good state.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from kube.backoff import Backoff
from kube.client import KubeClient, KubeUnreachable
from kube.status import StatusError

__all__ = ["CertificateBundle", "ClientTrust", "FrontProxy", "TrustError", "TrustKeeper", "TrustOptions"]

_log = logging.getLogger(__name__)

_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_REFRESH_SECONDS = 60.0
_RETRY_SECONDS = (1.0, 30.0)
_TIMEOUT_SECONDS = 10.0
_UNREACHABLE = "the API server, which has the authorities of client certificates, cannot be reached"


class TrustError(ValueError):
    """A certificate file or the ConfigMap does not hold what it should; the message says which."""


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """The certificates of one authority.

    A client's certificate must be issued by one of them directly; an authority that signs with an intermediate puts the
    intermediate into its bundle.
    """

    pem: str
    certificates: tuple[x509.Certificate, ...]

    @classmethod
    def parse(cls, pem: str, *, source: str) -> CertificateBundle:
        """Read PEM text.

        Raises:
            TrustError: there is no certificate in it, or it is damaged; names `source`.
        """
        try:
            certificates = tuple(x509.load_pem_x509_certificates(pem.encode()))
        except ValueError as error:
            raise TrustError(f"{source}: no PEM certificates found") from error
        # Comments between certificates may be anything; what is passed on is the certificates alone.
        return cls("".join(_pem(certificate) for certificate in certificates), certificates)

    def vouches_for(self, certificate: x509.Certificate, *, now: datetime.datetime) -> bool:
        """Tell whether the certificate is one of this authority's for a client, and valid at `now`."""
        return (
            _valid_at(certificate, now)
            and _for_clients(certificate)
            and any(_valid_at(issuer, now) and _issued_by(certificate, issuer) for issuer in self.certificates)
        )


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the aggregation layer is recognized and where it says for whom it speaks.

    Attributes:
        authority: who issues its certificates.
        allowed_names: common names that it may have; empty allows any.
        username_headers: headers that may hold the user's name; the first that is there counts.
        group_headers: headers whose values are groups.
        uid_headers: headers that may hold the user's uid.
        extra_prefixes: prefixes of headers that hold further attributes.
    """

    authority: CertificateBundle
    allowed_names: frozenset[str]
    username_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientTrust:
    """Both kinds of trust, either of which may be absent."""

    front_proxy: FrontProxy | None = None
    clients: CertificateBundle | None = None

    @property
    def pem(self) -> str:
        """Every authority's certificates, for the TLS handshake, which only asks whether anybody vouches."""
        bundles = (self.front_proxy.authority if self.front_proxy else None, self.clients)
        return "".join(bundle.pem for bundle in bundles if bundle)


@dataclass(frozen=True, slots=True)
class TrustOptions:
    """The flags: `--requestheader-*`, `--client-ca-file`, `--authentication-skip-lookup`."""

    requestheader_client_ca_file: Path | None = None
    requestheader_allowed_names: tuple[str, ...] = ()
    requestheader_username_headers: tuple[str, ...] = ("x-remote-user",)
    requestheader_group_headers: tuple[str, ...] = ("x-remote-group",)
    requestheader_uid_headers: tuple[str, ...] = ()
    requestheader_extra_headers_prefix: tuple[str, ...] = ("x-remote-extra-",)
    client_ca_file: Path | None = None
    skip_lookup: bool = False

    @property
    def needs_lookup(self) -> bool:
        """Whether the flags leave something open that the cluster's ConfigMap may say."""
        return not self.skip_lookup and (self.requestheader_client_ca_file is None or self.client_ca_file is None)


class TrustKeeper:
    """Keeps the trust current.

    Args:
        options: the flags.
        client: the API server that has the ConfigMap.
        on_change: called with every new trust before it is believed; a ValueError from it refuses the trust.
    """

    def __init__(self, options: TrustOptions, client: KubeClient, on_change: Callable[[ClientTrust], None]) -> None:
        self._options = options
        self._client = client
        self._on_change = on_change
        self._problem: str | None = "the authorities of client certificates have not been read yet"
        self.current = ClientTrust()

    def problem(self) -> str | None:
        """Why nobody can be recognized by certificate yet, or None; a later failure keeps what was read."""
        return self._problem

    async def load_files(self) -> None:
        """Read what the flags name, once, at start, where a wrong file must end the program.

        Raises:
            TrustError: a file cannot be read or holds no certificate.
        """
        self._accept(await self._from_files())
        if not self._options.needs_lookup:
            self._problem = None

    async def run(self) -> None:
        """Read everything now and then, until cancelled."""
        backoff = Backoff(*_RETRY_SECONDS)
        told: str | None = None
        while True:
            try:
                await self.refresh()
            except (ValueError, KubeUnreachable, StatusError) as error:  # TrustError, and what on_change says
                reason = _explain(error)
                if self._problem is not None:
                    # This is shown to everybody, who need not know the API server's address.
                    self._problem = _UNREACHABLE if isinstance(error, KubeUnreachable) else reason
                if told != reason:
                    _log.warning("cannot read whose client certificates to trust: %s", reason)
                    told = reason
                await asyncio.sleep(backoff.next())
                continue
            if told is not None:
                _log.info("read whose client certificates to trust")
                told = None
            backoff.reset()
            await asyncio.sleep(_REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Read everything once.

        Raises:
            TrustError: what was read is not what it should be.
            KubeUnreachable: there was no answer.
            StatusError: the API server refused.
        """
        self._accept(await self._read())
        self._problem = None

    def _accept(self, trust: ClientTrust) -> None:
        if trust != self.current:
            self._on_change(trust)
            self.current = trust

    async def _read(self) -> ClientTrust:
        trust = await self._from_files()
        if not self._options.needs_lookup:
            return trust
        try:
            published = _config_map_data(await self._client.get(_CONFIG_MAP, timeout=_TIMEOUT_SECONDS))
        except StatusError as error:
            if error.code != 404:
                raise
            published = {}
        return ClientTrust(
            front_proxy=trust.front_proxy or _published_front_proxy(published),
            clients=trust.clients or _published_bundle(published, "client-ca-file"),
        )

    async def _from_files(self) -> ClientTrust:
        options = self._options
        authority = await _bundle_file(options.requestheader_client_ca_file, flag="--requestheader-client-ca-file")
        clients = await _bundle_file(options.client_ca_file, flag="--client-ca-file")
        if authority is None:
            return ClientTrust(None, clients)
        front_proxy = FrontProxy(
            authority=authority,
            allowed_names=frozenset(options.requestheader_allowed_names),
            username_headers=options.requestheader_username_headers,
            group_headers=options.requestheader_group_headers,
            uid_headers=options.requestheader_uid_headers,
            extra_prefixes=options.requestheader_extra_headers_prefix,
        )
        return ClientTrust(front_proxy, clients)


async def _bundle_file(path: Path | None, *, flag: str) -> CertificateBundle | None:
    if path is None:
        return None
    try:
        pem = await asyncio.to_thread(path.read_text)
    except (OSError, UnicodeDecodeError) as error:
        raise TrustError(f"{flag}={path}: {error}") from error
    return CertificateBundle.parse(pem, source=f"{flag}={path}")


def _config_map_data(config_map: Mapping[str, Any]) -> Mapping[str, Any]:
    data = config_map.get("data")
    return data if isinstance(data, Mapping) else {}


def _published_bundle(data: Mapping[str, Any], key: str) -> CertificateBundle | None:
    pem = data.get(key)
    return CertificateBundle.parse(pem, source=f"ConfigMap key {key}") if isinstance(pem, str) and pem else None


def _published_front_proxy(data: Mapping[str, Any]) -> FrontProxy | None:
    authority = _published_bundle(data, "requestheader-client-ca-file")
    if authority is None:
        return None
    return FrontProxy(
        authority=authority,
        allowed_names=frozenset(_published_names(data, "requestheader-allowed-names")),
        username_headers=_published_names(data, "requestheader-username-headers"),
        group_headers=_published_names(data, "requestheader-group-headers"),
        uid_headers=_published_names(data, "requestheader-uid-headers"),
        extra_prefixes=_published_names(data, "requestheader-extra-headers-prefix"),
    )


def _published_names(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of strings, which the ConfigMap holds as JSON text."""
    try:
        names = json.loads(data.get(key) or "[]")
    except (TypeError, ValueError) as error:
        raise TrustError(f"ConfigMap key {key}: not a JSON list") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TrustError(f"ConfigMap key {key}: not a JSON list of strings")
    return tuple(names)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _valid_at(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except ValueError:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def _issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _explain(error: Exception) -> str:
    if isinstance(error, StatusError) and error.code in (401, 403):
        return (
            f"{error}; bind the adapter's service account to the Role extension-apiserver-authentication-reader "
            "in kube-system"
        )
    return str(error)
