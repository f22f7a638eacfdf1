"""The CAs of client certificates.

There are two. A certificate of the request-header CA belongs to the API server's aggregation layer, which names users
in headers. A certificate of the client CA names its own user. They must never be confused, even if both CAs have the
same name; so the signature alone decides which one issued a certificate.

Flags may name files with the CAs. A CA without a flag is read from the ConfigMap
kube-system/extension-apiserver-authentication, where every API server publishes it. CAs are rotated, so the ConfigMap
is watched and the files are read again every minute. After an error the last good CAs stay in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from kube.api.client import KubeClient
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.cache.store import Key, Store

_log = logging.getLogger(__name__)

_CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
_CONFIG_MAP = "extension-apiserver-authentication"
_FILES_SECONDS = 60.0
_RETRY_SECONDS = (1.0, 30.0)
_UNREAD = "the CAs of client certificates have not been read yet"
_UNREACHABLE = "the API server, which has the CAs of client certificates, cannot be reached"


class TrustError(ValueError):
    """A certificate file or the ConfigMap does not hold what it should; the message says which."""


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """The certificates of one CA.

    One of them must have issued the client's certificate directly. A CA that signs with an intermediate must have the
    intermediate in its bundle.
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
        # Text between certificates may be anything, so it is not passed on.
        return cls("".join(_pem(certificate) for certificate in certificates), certificates)

    def verifies(self, certificate: x509.Certificate, *, now: datetime.datetime) -> bool:
        """Return True if this CA issued the certificate for a client, and it is valid at `now`."""
        return (
            _valid_at(certificate, now)
            and _for_clients(certificate)
            and any(_valid_at(issuer, now) and _issued_by(certificate, issuer) for issuer in self.certificates)
        )


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the aggregation layer is authenticated, and which headers name the user."""

    ca: CertificateBundle
    """Issues its certificates."""
    allowed_names: frozenset[str]
    """Common names that it may have; empty allows any."""
    username_headers: tuple[str, ...]
    """Headers that may hold the user's name; the first that is there counts."""
    group_headers: tuple[str, ...]
    """Headers whose values are groups."""
    uid_headers: tuple[str, ...]
    """Headers that may hold the user's uid."""
    extra_prefixes: tuple[str, ...]
    """Prefixes of headers that hold further attributes."""


@dataclass(frozen=True, slots=True)
class ClientTrust:
    """Both kinds of trust, either of which may be absent."""

    front_proxy: FrontProxy | None = None
    clients: CertificateBundle | None = None

    @property
    def pem(self) -> str:
        """The certificates of both CAs, for the TLS handshake, where it does not matter which one verifies."""
        bundles = (self.front_proxy.ca if self.front_proxy else None, self.clients)
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
        """True if the flags leave something to the cluster's ConfigMap."""
        return not self.skip_lookup and (self.requestheader_client_ca_file is None or self.client_ca_file is None)


class TrustReloader:
    """Reloads the CAs and header names when the ConfigMap or a file changes.

    Args:
        options: the flags.
        client: the API server that has the ConfigMap.
        on_change: called with the new CAs before they are used; a ValueError from it refuses them.
    """

    def __init__(self, options: TrustOptions, client: KubeClient, on_change: Callable[[ClientTrust], None]) -> None:
        self._options = options
        self._on_change = on_change
        # The selector matters: the right to this one ConfigMap is all that the process needs.
        self._config_maps = Store(
            client,
            _CONFIG_MAPS,
            _published_data,
            field_selector=f"metadata.name={_CONFIG_MAP}",
            on_change=self._config_map_changed,
            backoff=Backoff(*_RETRY_SECONDS),
        )
        self._published: Mapping[str, str] = {}
        self._changed = asyncio.Event()
        self._problem: str | None = _UNREAD
        self.current = ClientTrust()

    def problem(self) -> str | None:
        """Return why no client certificate can be verified yet; None after the first load, whatever fails later."""
        failure = self._config_maps.failure
        if self._problem is None or failure is None:
            return self._problem
        if not isinstance(failure, StatusError):
            return _UNREACHABLE  # everybody can read this, so it has no address of the API server
        if failure.code not in (401, 403):
            return str(failure)
        return (
            f"{failure}; bind this pod's service account to the Role extension-apiserver-authentication-reader "
            "in kube-system"
        )

    async def load_files(self) -> None:
        """Read the files that the flags name, at start, when an invalid file must end the program.

        Raises:
            TrustError: a file cannot be read or holds no certificate.
        """
        self._accept(await self._from_files())
        if not self._options.needs_lookup:
            self._problem = None

    async def run(self) -> None:
        """Follow the ConfigMap and the files, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            if self._options.needs_lookup:
                tasks.create_task(self._config_maps.run())
                tasks.create_task(self._await_first_list())

    async def _follow(self) -> None:
        logged: str | None = None
        while True:
            self._changed.clear()
            try:
                await self._load()
            except ValueError as error:  # TrustError, and what on_change says
                reason = str(error)
                if self._problem is not None:
                    self._problem = reason
                if logged != reason:
                    _log.warning("cannot load the CAs of client certificates; the last ones stay in use: %s", reason)
                logged = reason
            else:
                if logged is not None:
                    _log.info("loaded the CAs of client certificates")
                logged = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FILES_SECONDS):
                    await self._changed.wait()

    async def _load(self) -> None:
        trust = await self._from_files()
        if not self._options.needs_lookup:
            self._accept(trust)
        elif self._config_maps.synced:
            published = self._published
            front_proxy = trust.front_proxy or _front_proxy(
                _published_bundle(published, "requestheader-client-ca-file"), partial(_names, published)
            )
            self._accept(ClientTrust(front_proxy, trust.clients or _published_bundle(published, "client-ca-file")))
        else:
            return
        self._problem = None

    async def _await_first_list(self) -> None:
        """Reload after the first list, even if it has no such ConfigMap."""
        await self._config_maps.wait_synced()
        self._changed.set()

    def _config_map_changed(self, _key: Key, _old: object, new: Mapping[str, str] | None) -> None:
        """Store the new data. A deletion is ignored, because the API server creates the ConfigMap again at once."""
        if new is not None:
            self._published = new
            self._changed.set()

    def _accept(self, trust: ClientTrust) -> None:
        if trust != self.current:
            self._on_change(trust)
            self.current = trust

    async def _from_files(self) -> ClientTrust:
        options = self._options
        ca = await _bundle_file(options.requestheader_client_ca_file, flag="--requestheader-client-ca-file")
        clients = await _bundle_file(options.client_ca_file, flag="--client-ca-file")
        return ClientTrust(_front_proxy(ca, lambda name: getattr(options, name.replace("-", "_"))), clients)


async def _bundle_file(path: Path | None, *, flag: str) -> CertificateBundle | None:
    if path is None:
        return None
    try:
        pem = await asyncio.to_thread(path.read_text)
    except (OSError, UnicodeDecodeError) as error:
        raise TrustError(f"{flag}={path}: {error}") from error
    return CertificateBundle.parse(pem, source=f"{flag}={path}")


def _published_data(config_map: Mapping[str, Any]) -> Mapping[str, str]:
    data = config_map.get("data")
    return {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, Mapping) else {}


def _published_bundle(data: Mapping[str, str], key: str) -> CertificateBundle | None:
    pem = data.get(key)
    return CertificateBundle.parse(pem, source=f"ConfigMap key {key}") if pem else None


def _front_proxy(ca: CertificateBundle | None, names: Callable[[str], tuple[str, ...]]) -> FrontProxy | None:
    """Return the front proxy with this CA; `names` returns the value of a flag, or of a key of the ConfigMap."""
    if ca is None:
        return None
    return FrontProxy(
        ca=ca,
        allowed_names=frozenset(names("requestheader-allowed-names")),
        username_headers=names("requestheader-username-headers"),
        group_headers=names("requestheader-group-headers"),
        uid_headers=names("requestheader-uid-headers"),
        extra_prefixes=names("requestheader-extra-headers-prefix"),
    )


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """A list of strings, which the ConfigMap holds as JSON text."""
    try:
        names = json.loads(data.get(key) or "[]")
    except ValueError as error:
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
