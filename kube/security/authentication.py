"""Delegated authentication: by front proxy, client certificate or bearer token.

The first method that recognizes the client wins. If none does and there were credentials, the response is 401; only a
client without any credentials is system:anonymous. X-Remote-* headers count only with a certificate of the front proxy.

Upstream: authenticatorfactory.DelegatingAuthenticatorConfig
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from cachetools import LRUCache, TTLCache
from cryptography import x509
from cryptography.x509.oid import NameOID
from multidict import CIMultiDict, CIMultiDictProxy

from kube.aio.tasks import SingleFlight
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.status import StatusError, forbidden, service_unavailable, unauthorized
from kube.security.trust import ClientTrust, FrontProxy

_ANONYMOUS = "system:anonymous"
_AUTHENTICATED_GROUP = "system:authenticated"
_UNAUTHENTICATED_GROUP = "system:unauthenticated"
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  (a path)
# A certificate is verified again after this time, or when the trusted CAs change: it takes longer than most requests.
_VERIFIED_SECONDS = 10.0
_MAX_CERTIFICATES = 256
# In bytes: users are few, but they choose the headers of their requests.
_MAX_USERS = 4 * 1024 * 1024
_USER_BYTES = 512
_MAX_HEADER_NAMES = 1024
_IMPERSONATE = b"impersonate-"
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Names and values of headers as they came."""


class User(msgspec.Struct, frozen=True, cache_hash=True):
    """A user with the attributes that access rules refer to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = User(_ANONYMOUS, (_UNAUTHENTICATED_GROUP,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """TokenReviews and SubjectAccessReviews."""

    review_seconds: float = 10.0
    """Limit of one review, with its retries; the default of Kubernetes' library for API servers."""
    tokens: int = 4096
    """Results of TokenReviews that are cached, those of invalid tokens included."""
    decision_bytes: int = 16 * 2**20
    """Memory for cached results of SubjectAccessReviews; in bytes, since clients choose how long names are."""


DEFAULTS = ReviewSettings()


class TokenReviewer:
    """Reviews bearer tokens with the API server; concurrent reviews of one token share one call.

    Args:
        client: the API server.
        ttl: seconds for which a result, also a negative one, is cached. The key is the token's hash.
        settings: see ReviewSettings.
    """

    def __init__(self, client: KubeClient, *, ttl: float, settings: ReviewSettings = DEFAULTS) -> None:
        self._client = client
        self._settings = settings
        self._users: TTLCache[bytes, User | None] = TTLCache(maxsize=settings.tokens, ttl=ttl)
        self._reviews: SingleFlight[bytes, User | None] = SingleFlight()

    async def review(self, token: str) -> User | None:
        """Return the token's user; None for a token that is not valid.

        Raises:
            StatusError: 503 if the API server cannot be reached.
        """
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        try:
            return self._users[key]
        except KeyError:
            return await self._reviews.do(key, lambda: self._review(key, token))

    async def _review(self, key: bytes, token: str) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        try:
            review = await self._client.post(_TOKEN_REVIEWS, body, timeout=self._settings.review_seconds)
        except (KubeUnreachable, StatusError) as error:
            raise service_unavailable("bearer tokens cannot be reviewed now: the API server did not respond") from error
        user = self._users[key] = _reviewed_user(review)
        return user


class Authenticator:
    """Finds the user of a request.

    Args:
        trust: returns the CAs that are trusted now.
        tokens: reviews bearer tokens.
        clock: seconds since the epoch.
    """

    def __init__(
        self, trust: Callable[[], ClientTrust], tokens: TokenReviewer, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._trust = trust
        self._tokens = tokens
        self._clock = clock
        self._certificates: LRUCache[bytes, _VerifiedCertificate] = LRUCache(_MAX_CERTIFICATES)

    async def authenticate(self, certificate: bytes | None, headers: RawHeaders) -> User:
        """Return the user of a request.

        Args:
            certificate: the client's as DER, verified by one of the CAs in the TLS handshake.
            headers: the request's.

        Raises:
            StatusError: 401 for credentials that are not valid, 503 if they cannot be reviewed now.
        """
        if certificate is not None:
            user = self._verified(certificate).user(headers)
            if user is not None:
                return user
        token = _bearer_token(headers)
        user = await self._tokens.review(token) if token and _is_text(token) else None
        if user is None and (certificate is not None or token):
            raise unauthorized()
        _refuse_impersonation(headers)
        return ANONYMOUS if user is None else _with_authenticated_group(user)

    def _verified(self, certificate: bytes) -> _VerifiedCertificate:
        """Return the result of verifying a certificate; raise StatusError 401 for a malformed one."""
        trust, now = self._trust(), self._clock()
        verified = self._certificates.get(certificate)
        if verified is None or verified.trust is not trust or not verified.since <= now < verified.until:
            try:
                verified = _verify(x509.load_der_x509_certificate(certificate), trust, now)
            except ValueError:
                raise unauthorized() from None
            self._certificates[certificate] = verified
        return verified


@dataclass(frozen=True, slots=True, eq=False)
class _VerifiedCertificate:
    """The result of verifying a certificate."""

    trust: ClientTrust
    """The CAs that it was verified with."""
    since: float
    """When, in seconds since the epoch."""
    until: float
    """When it has to be verified again."""
    front_proxy: FrontProxyUsers | None
    """The users of the front proxy, if the certificate is the front proxy's."""
    client: User | None
    """The user that the certificate names, if it is a client's."""

    def user(self, headers: RawHeaders) -> User | None:
        user = self.front_proxy.user(headers) if self.front_proxy is not None else None
        if user is None and self.client is not None:
            _refuse_impersonation(headers)
            user = self.client
        return user


def _verify(certificate: x509.Certificate, trust: ClientTrust, now: float) -> _VerifiedCertificate:
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    proxy = trust.front_proxy
    if proxy and not (proxy.ca.verifies(certificate, now=moment) and _allowed(certificate, proxy)):
        proxy = None
    client = None
    if trust.clients and trust.clients.verifies(certificate, now=moment):
        named = _certificate_user(certificate)
        client = _with_authenticated_group(named) if named is not None else None
    return _VerifiedCertificate(
        trust=trust,
        since=now,
        until=min(now + _VERIFIED_SECONDS, certificate.not_valid_after_utc.timestamp()),
        front_proxy=FrontProxyUsers(proxy) if proxy is not None else None,
        client=client,
    )


class FrontProxyUsers:
    """The users that a front proxy names in headers; each combination of headers is parsed once."""

    def __init__(self, proxy: FrontProxy) -> None:
        self._proxy = proxy
        names = (*proxy.username_headers, *proxy.group_headers, *proxy.uid_headers)
        self._names = frozenset(name.lower().encode() for name in names)
        prefixes = (*proxy.extra_prefixes, _IMPERSONATE.decode())
        self._prefixes = tuple(prefix.lower().encode() for prefix in prefixes)
        self._is_relevant = functools.lru_cache(maxsize=_MAX_HEADER_NAMES)(self._describes_user)
        self._users: LRUCache[RawHeaders, User] = LRUCache(_MAX_USERS, getsizeof=_size)

    def user(self, headers: RawHeaders) -> User | None:
        """Return the user that these headers name, if any. Raises StatusError 403 for an impersonated one."""
        is_relevant = self._is_relevant
        key = tuple([header for header in headers if is_relevant(header[0])])
        try:
            return self._users[key]
        except KeyError:
            pass
        # Not every version of aiohttp removes the spaces after a raw value.
        decoded = CIMultiDict((_text(name), _text(value).strip(" \t")) for name, value in key)
        user = _remote_user(CIMultiDictProxy(decoded), self._proxy)
        if user is None:
            return None
        _refuse_impersonation(key)
        user = self._users[key] = _with_authenticated_group(user)
        return user

    def _describes_user(self, name: bytes) -> bool:
        lower = name.lower()
        return lower in self._names or lower.startswith(self._prefixes)


def _refuse_impersonation(headers: RawHeaders) -> None:
    """Refuse a request with impersonation headers. Raises StatusError 403."""
    if any(name.lower().startswith(_IMPERSONATE) for name, _ in headers):
        raise forbidden("impersonation is not possible here: send the request to the API server instead")


def _size(user: User) -> int:
    """Estimate the bytes of a user and the headers that name it."""
    texts = (user.name, user.uid, *user.groups, *(text for key, values in user.extra for text in (key, *values)))
    return _USER_BYTES + sum(100 + 4 * len(text) for text in texts)


def _allowed(certificate: x509.Certificate, proxy: FrontProxy) -> bool:
    return not proxy.allowed_names or _common_name(certificate) in proxy.allowed_names


def _remote_user(headers: CIMultiDictProxy[str], proxy: FrontProxy) -> User | None:
    """Return the user that headers name; None if they name none, or not in UTF-8."""
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
    texts = (user.name, user.uid, *user.groups, *(text for key, values in user.extra for text in (key, *values)))
    return user if all(map(_is_text, texts)) else None


def _extra_key(name: str) -> str:
    """Return the key in the rest of a header's name, percent-decoded and in lower case.

    Upstream: headerrequest.unescapeExtraKey
    """
    key = name.lower()
    return key if _NO_ESCAPE.search(key) else unquote(key)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _is_text(value: str) -> bool:
    """Return True if a header was UTF-8; other bytes became surrogates, which a review cannot contain."""
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
    """Return the last common name, as Go does."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def _bearer_token(headers: RawHeaders) -> str:
    """Return the token, "" for none. After two spaces there is none, as in Kubernetes."""
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
