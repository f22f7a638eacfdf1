"""Who asks: client certificates of the cluster's CA, service account tokens, or nobody (system:anonymous).

Tokens are JWTs as a real API server makes them (issuer, subject, expiry, the account's namespace, name and uid), signed
with a key that lives as long as the server; they stop working when the service account is deleted.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from kube.mapping import GroupResource
from kube.status import unauthorized
from playground.apiserver.objects import Object, uid_of
from playground.apiserver.storage import Storage

AUTHENTICATED: Final = "system:authenticated"
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
"""The extra that says by which certificate or token somebody was authenticated."""

MASTERS: Final = "system:masters"
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated caller, or the anonymous one."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_json(self) -> Object:
        """authentication.k8s.io UserInfo."""
        info: Object = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def from_certificate(certificate: Mapping[str, Any] | None, der: bytes) -> User | None:
    """The user that a verified client certificate names, given as `ssl` shows it and as DER; None without one."""
    if not certificate:
        return None
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    return User(name, (*groups, AUTHENTICATED), extra=extra) if name else None


class _Claims(msgspec.Struct):
    """The part of a token's claims that is looked at."""

    iss: str
    sub: str
    exp: int
    aud: list[str]
    uid: str = ""
    jti: str = ""


class TokenIssuer:
    """Makes and checks service account tokens."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime.datetime]) -> None:
        self._storage = storage
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())

    def issue(self, account: Object, *, seconds: int = 3600, audiences: tuple[str, ...] = (ISSUER,)) -> str:
        """A token for a stored ServiceAccount, valid for `seconds`."""
        metadata = account["metadata"]
        now = int(self._now().timestamp())
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "aud": list(audiences),
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "uid": metadata["uid"],
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": metadata["namespace"],
                "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        signed = (
            f"{_encode(msgspec.json.encode({'alg': 'ES256', 'typ': 'JWT'}))}.{_encode(msgspec.json.encode(claims))}"
        )
        return f"{signed}.{_encode(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))}"

    def authenticate(self, token: str, *, audience: str = ISSUER) -> User:
        """The service account that a token stands for.

        Raises:
            StatusError: 401, the token is not ours, has expired, is for somebody else, or its account is gone.
        """
        signed, _, signature = token.rpartition(".")
        try:
            self._key.public_key().verify(_decode(signature), signed.encode(), ec.ECDSA(hashes.SHA256()))
            claims = msgspec.json.decode(_decode(signed.partition(".")[2]), type=_Claims)
        except (InvalidSignature, binascii.Error, msgspec.MsgspecError, UnicodeError, ValueError) as error:
            raise unauthorized() from error
        _, _, namespace, name = claims.sub.split(":")
        account = self._storage.get(_SERVICE_ACCOUNTS, namespace, name)
        if account is None or uid_of(account) != claims.uid:
            raise unauthorized()
        if claims.exp <= self._now().timestamp() or audience not in claims.aud:
            raise unauthorized()
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return User(claims.sub, groups, claims.uid, {CREDENTIAL_ID: (f"JTI={claims.jti}",)})


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
