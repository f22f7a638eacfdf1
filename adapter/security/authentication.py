"""Who is asking: front proxy, client certificate, bearer token, or nobody.

The order and the outcomes are those of Kubernetes' delegated authentication (DelegatingAuthenticatorConfig in k8s.io/
apiserver/pkg/authentication/authenticatorfactory): the first way that recognizes the client wins; if none does and
one of them found something wrong, the answer is 401; only who shows nothing at all is system:anonymous. X-Remote-*
headers count only beside a certificate of the front proxy, and are nothing but noise otherwise.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from cachetools import LRUCache, TTLCache
from cryptography import x509
from cryptography.x509.oid import NameOID
from multidict import CIMultiDict, CIMultiDictProxy

from adapter.security.trust import ClientTrust, FrontProxy
from kube.client import KubeClient, KubeUnreachable
from kube.single_flight import SingleFlight
from kube.status import StatusError, service_unavailable, unauthorized

_ANONYMOUS = "system:anonymous"
_AUTHENTICATED_GROUP = "system:authenticated"
_UNAUTHENTICATED_GROUP = "system:unauthenticated"
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  (a path)
_MAX_TOKENS = 4096
_TIMEOUT_SECONDS = 10.0
# For how long what was found out about a certificate is believed.
_BELIEVED = datetime.timedelta(seconds=10)
_MAX_HOLDERS = 256
# Of what a front proxy said of users, in bytes: users are few, but they choose what goes with their names.
_MAX_USERS = 4 * 1024 * 1024
_USER_BYTES = 512
# Headers of every forwarded request that say nothing of the user, unless a cluster's configuration has them say it.
USUAL_HEADERS = frozenset(
    {
        *(b"Host", b"User-Agent", b"Accept", b"Accept-Encoding", b"Audit-Id", b"Kubectl-Command", b"Kubectl-Session"),
        *(b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto", b"X-Forwarded-Uri"),
    }
)
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Names and values of headers as they came."""


class User(msgspec.Struct, frozen=True):
    """Somebody, as access rules know them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def anonymous(cls) -> User:
        """Who showed nothing."""
        return cls(_ANONYMOUS, (_UNAUTHENTICATED_GROUP,))


class Credentials(msgspec.Struct, frozen=True):
    """What a client showed: its certificate (DER), for which TLS found some authority to vouch, and its headers."""

    certificate: bytes | None
    headers: RawHeaders


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """The API server's answer about a token: somebody, or nobody."""

    user: User | None


class TokenReviewer:
    """Asks the API server whose bearer token it is, once for all who show it, and remembers the answer for a while.

    Args:
        client: the API server.
        ttl: seconds for which an answer, good or bad, is remembered. What is kept is the token's hash.
    """

    def __init__(self, client: KubeClient, *, ttl: float) -> None:
        self._client = client
        self._reviewed: TTLCache[bytes, _Reviewed] = TTLCache(maxsize=_MAX_TOKENS, ttl=ttl)
        self._reviews: SingleFlight[bytes, _Reviewed] = SingleFlight()

    async def review(self, token: str) -> User | None:
        """The token's user, or None if it is nobody's.

        Raises:
            StatusError: 503, because the API server could not be asked.
        """
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        reviewed = self._reviewed.get(key)
        if reviewed is None:
            reviewed = await self._reviews.do(key, lambda: self._ask(key, token))
        return reviewed.user

    async def _ask(self, key: bytes, token: str) -> _Reviewed:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            answer = await self._client.post(_TOKEN_REVIEWS, body, timeout=_TIMEOUT_SECONDS)
        except (KubeUnreachable, StatusError) as error:
            raise service_unavailable("bearer tokens cannot be reviewed now: the API server gave no answer") from error
        reviewed = self._reviewed[key] = _Reviewed(_reviewed_user(answer))
        return reviewed


class Authenticator:
    """Finds out who is asking.

    Args:
        trust: gives the authorities that are trusted now.
        tokens: reviews bearer tokens.
        now: the wall clock.
    """

    def __init__(
        self,
        trust: Callable[[], ClientTrust],
        tokens: TokenReviewer,
        *,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._trust = trust
        self._tokens = tokens
        self._now = now
        self._holders: LRUCache[bytes, _Holder] = LRUCache(_MAX_HOLDERS)

    async def authenticate(self, credentials: Credentials) -> User:
        """The user behind a request.

        Raises:
            StatusError: 401 if what was shown does not hold, 503 if it cannot be checked now.
        """
        user = self._by_certificate(credentials)
        if user is not None:
            return user
        token = _bearer_token(credentials.headers)
        if token and _is_text(token):
            user = await self._tokens.review(token)
        if user is not None:
            return _with_authenticated_group(user)
        if credentials.certificate is not None or token:
            raise unauthorized()
        return User.anonymous()

    def _by_certificate(self, credentials: Credentials) -> User | None:
        if credentials.certificate is None:
            return None
        holder = self._holder(credentials.certificate)
        if holder is None:
            raise unauthorized()
        if holder.remote is not None:
            user = holder.remote.named(credentials.headers)
            if user is not None:
                return user
        return holder.client

    def _holder(self, certificate: bytes) -> _Holder | None:
        """Whose certificate it is; None for what is none.

        What was found out is believed for some seconds, or until other authorities are trusted: to check a signature
        takes longer than all the rest of most requests.
        """
        trust, now = self._trust(), self._now()
        known = self._holders.get(certificate)
        if known is None or known.trust is not trust or not known.since <= now < known.until:
            try:
                known = _Holder.of(x509.load_der_x509_certificate(certificate), trust, now)
            except ValueError:
                return None
            self._holders[certificate] = known
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Holder:
    """What a certificate was found to be.

    Attributes:
        trust: by which authorities.
        since: when that was.
        until: for how long it is believed.
        remote: whom the headers beside it name, if it is the front proxy's.
        client: whose it is, if it is a client's.
    """

    trust: ClientTrust
    since: datetime.datetime
    until: datetime.datetime
    remote: _RemoteUsers | None
    client: User | None

    @classmethod
    def of(cls, certificate: x509.Certificate, trust: ClientTrust, now: datetime.datetime) -> _Holder:
        proxy = trust.front_proxy
        if proxy and not (proxy.authority.vouches_for(certificate, now=now) and _allowed(certificate, proxy)):
            proxy = None
        client = None
        if trust.clients and trust.clients.vouches_for(certificate, now=now):
            holder = _certificate_user(certificate)
            client = _with_authenticated_group(holder) if holder is not None else None
        return cls(
            trust=trust,
            since=now,
            until=min(now + _BELIEVED, certificate.not_valid_after_utc),
            remote=_RemoteUsers(proxy) if proxy is not None else None,
            client=client,
        )


class _RemoteUsers:
    """The users that a front proxy names, each read once from the headers that say who it is, as they came.

    Everything else in a head changes from one request to the next, such as the Audit-Id.
    """

    def __init__(self, proxy: FrontProxy) -> None:
        self._proxy = proxy
        headers = (*proxy.username_headers, *proxy.group_headers, *proxy.uid_headers)
        self._names = frozenset(header.lower().encode() for header in headers)
        self._prefixes = tuple(prefix.lower().encode() for prefix in proxy.extra_prefixes)
        self._others = frozenset(name for name in USUAL_HEADERS if not self._counts(name))
        self._users: LRUCache[RawHeaders, User] = LRUCache(_MAX_USERS, getsizeof=_size)

    def named(self, headers: RawHeaders) -> User | None:
        """The user that these headers name, or None."""
        others = self._others
        said = tuple([header for header in headers if header[0] not in others and self._counts(header[0])])
        user = self._users.get(said)
        if user is None:
            decoded = CIMultiDict((_text(name), _text(value)) for name, value in said)
            user = _remote_user(CIMultiDictProxy(decoded), self._proxy)
            if user is not None:
                user = self._users[said] = _with_authenticated_group(user)
        return user

    def _counts(self, name: bytes) -> bool:
        lower = name.lower()
        return lower in self._names or lower.startswith(self._prefixes)


def _size(user: User) -> int:
    """What a user takes, with the headers that it was read from."""
    texts = (user.name, user.uid, *user.groups, *(text for key, values in user.extra for text in (key, *values)))
    return _USER_BYTES + sum(100 + 4 * len(text) for text in texts)


def _allowed(certificate: x509.Certificate, proxy: FrontProxy) -> bool:
    return not proxy.allowed_names or _common_name(certificate) in proxy.allowed_names


def _remote_user(headers: CIMultiDictProxy[str], proxy: FrontProxy) -> User | None:
    """The user that the front proxy names in its headers; None where it names none, or not in UTF-8."""
    name = _first(headers, proxy.username_headers)
    if not name:
        return None
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        for prefix in proxy.extra_prefixes:
            if header.lower().startswith(prefix.lower()):
                extra.setdefault(_extra_key(header[len(prefix) :]), []).append(value)
                break
    user = User(
        name=name,
        groups=tuple(group for header in proxy.group_headers for group in headers.getall(header, ()) if group),
        uid=_first(headers, proxy.uid_headers),
        extra=tuple(sorted((key, tuple(values)) for key, values in extra.items())),
    )
    said = (user.name, user.uid, *user.groups, *(text for key, values in user.extra for text in (key, *values)))
    return user if all(map(_is_text, said)) else None


def _extra_key(name: str) -> str:
    """The key that a header's name stands for, percent-encoded and in any case.

    Upstream: k8s.io/apiserver/pkg/authentication/request/headerrequest.unescapeExtraKey.
    """
    key = name.lower()
    return key if _NO_ESCAPE.search(key) else unquote(key)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _is_text(value: str) -> bool:
    """Whether a header was UTF-8; other bytes arrive as surrogates, which nobody could be asked about."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := headers.get(name, ""))), "")


def _certificate_user(certificate: x509.Certificate) -> User | None:
    name = _common_name(certificate)
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return User(name, tuple(str(organization.value) for organization in organizations)) if name else None


def _common_name(certificate: x509.Certificate) -> str:
    """The last common name, which is the one that counts."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def _bearer_token(headers: RawHeaders) -> str:
    """The token, "" for none. It stands after one space; after two there is none, as in Kubernetes."""
    value = next((value for name, value in headers if name.lower() == b"authorization"), b"")
    scheme, _, rest = _text(value).strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def _reviewed_user(review: Mapping[str, Any]) -> User | None:
    status = review.get("status")
    if not isinstance(status, Mapping) or status.get("authenticated") is not True:
        return None
    user = status.get("user")
    name = user.get("username") if isinstance(user, Mapping) else None
    if not isinstance(user, Mapping) or not isinstance(name, str) or not name:
        return None
    extra = user.get("extra")
    return User(
        name=name,
        groups=_strings(user.get("groups")),
        uid=str(user.get("uid") or ""),
        extra=tuple(sorted((str(key), _strings(values)) for key, values in extra.items()))
        if isinstance(extra, Mapping)
        else (),
    )


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list) else ()


def _with_authenticated_group(user: User) -> User:
    if user.name == _ANONYMOUS or {_AUTHENTICATED_GROUP, _UNAUTHENTICATED_GROUP} & set(user.groups):
        return user
    return User(user.name, (*user.groups, _AUTHENTICATED_GROUP), user.uid, user.extra)
