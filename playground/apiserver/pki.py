"""A cluster's certificates and kubeconfigs, as files in one folder.

Three CAs: of the API server, of clients (user is the common name, groups are organizations), and of the front proxy.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from playground.apiserver.bootstrap import FRONT_PROXY_NAME
from playground.certs import CertificateAuthority, KeyPair

_PROXY_NAMES = ("localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class KeyPairFiles:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


def client_tls(pair: KeyPairFiles | None = None) -> ssl.SSLContext:
    """Return the TLS of a client, with a certificate if one is given; the server's certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


@dataclass(frozen=True, slots=True)
class Pki:
    """The CAs, and the files made from them."""

    folder: Path
    client_ca: CertificateAuthority
    requestheader_ca: CertificateAuthority
    serving_ca: CertificateAuthority
    client_ca_file: Path
    requestheader_ca_file: Path
    serving_ca_file: Path
    serving: KeyPairFiles
    front_proxy: KeyPairFiles

    @classmethod
    def create(cls, folder: Path, *, hosts: Sequence[str] = ()) -> Pki:
        """Create everything in `folder`; blocks for some milliseconds. `hosts`: more names of the API server."""
        folder.mkdir(parents=True, exist_ok=True)
        client_ca = CertificateAuthority.create("playground-client-ca")
        requestheader_ca = CertificateAuthority.create("playground-requestheader-ca")
        serving_ca = CertificateAuthority.create("playground-serving-ca")
        return cls(
            folder=folder,
            client_ca=client_ca,
            requestheader_ca=requestheader_ca,
            serving_ca=serving_ca,
            client_ca_file=_write(folder / "client-ca.crt", client_ca.cert_pem),
            requestheader_ca_file=_write(folder / "requestheader-ca.crt", requestheader_ca.cert_pem),
            serving_ca_file=_write(folder / "serving-ca.crt", serving_ca.cert_pem),
            serving=_write_pair(
                folder / "apiserver", serving_ca.issue("kube-apiserver", hosts=(*_PROXY_NAMES, *hosts), server=True)
            ),
            front_proxy=_write_pair(
                folder / "front-proxy-client", requestheader_ca.issue(FRONT_PROXY_NAME, client=True)
            ),
        )

    def kubeconfig(self, url: str, user: str, groups: Sequence[str] = (), *, token: str | None = None) -> Path:
        """Write a kubeconfig with a new client certificate, or with a token; return its path."""
        if token is None:
            pair = self.client_ca.issue(user, organizations=groups, client=True)
            credentials = {
                "client-certificate-data": base64.b64encode(pair.cert_pem).decode(),
                "client-key-data": base64.b64encode(pair.key_pem).decode(),
            }
        else:
            credentials = {"token": token}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "playground",
                    "cluster": {
                        "server": url,
                        "certificate-authority-data": base64.b64encode(self.serving_ca.cert_pem).decode(),
                    },
                }
            ],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "playground", "context": {"cluster": "playground", "user": user}}],
            "current-context": "playground",
        }
        name = re.sub(r"[^A-Za-z0-9-]+", "-", user)
        return _write(self.folder / f"{name}.kubeconfig", yaml.safe_dump(config).encode(), private=True)


def _write_pair(stem: Path, pair: KeyPair) -> KeyPairFiles:
    return KeyPairFiles(
        certificate=_write(stem.with_suffix(".crt"), pair.cert_pem),
        key=_write(stem.with_suffix(".key"), pair.key_pem, private=True),
    )


def _write(path: Path, content: bytes, *, private: bool = False) -> Path:
    path.touch(mode=0o600 if private else 0o644)
    path.write_bytes(content)
    return path
