"""Authentication: client certificates of the cluster's CA, service account tokens, or system:anonymous.

Tokens are random strings, and not JWTs as upstream. They are valid until they expire or the service account is deleted.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube.api.mapping import GroupResource
from kube.api.status import unauthorized
from playground.apiserver.objects import Object, name_of, namespace_of, uid_of
from playground.apiserver.storage import Storage

AUTHENTICATED: Final = "system:authenticated"
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
"""The extra that identifies the certificate or token of a user."""

MASTERS: Final = "system:masters"
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user, or the anonymous one."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_json(self) -> Object:
        """Return a UserInfo of authentication.k8s.io."""
        info: Object = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def from_certificate(certificate: Mapping[str, Any] | None, der: bytes) -> User | None:
    """Return the user of a verified client certificate, given as in `ssl` and as DER; None without one."""
    if not certificate:
        return None
    parts = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    return User(name, (*groups, AUTHENTICATED), extra=extra) if name else None


@dataclass(frozen=True, slots=True)
class _Token:
    """A token: its service account, audiences, and expiry in seconds since the epoch."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    expires: float


class TokenIssuer:
    """Issues and authenticates service account tokens."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime.datetime]) -> None:
        self._storage = storage
        self._now = now
        self._tokens: dict[str, _Token] = {}

    def issue(self, account: Object, *, seconds: int = 3600, audiences: tuple[str, ...] = (ISSUER,)) -> str:
        """Return a token for a stored ServiceAccount, valid for `seconds`."""
        token = secrets.token_urlsafe(32)
        expires = self._now().timestamp() + seconds
        self._tokens[token] = _Token(namespace_of(account), name_of(account), uid_of(account), audiences, expires)
        return token

    def authenticate(self, token: str, *, audience: str = ISSUER) -> User:
        """Return the service account of a token.

        Raises:
            StatusError: 401, the token is unknown, expired, for another audience, or its account is deleted.
        """
        found = self._tokens.get(token)
        if found is None or found.expires <= self._now().timestamp() or audience not in found.audiences:
            raise unauthorized()
        account = self._storage.get(_SERVICE_ACCOUNTS, found.namespace, found.name)
        if account is None or uid_of(account) != found.uid:
            raise unauthorized()
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{found.namespace}", AUTHENTICATED)
        credential = f"JTI={hashlib.sha256(token.encode()).hexdigest()}"
        return User(
            f"system:serviceaccount:{found.namespace}:{found.name}", groups, found.uid, {CREDENTIAL_ID: (credential,)}
        )
