"""Authenticates requests as `auth` of a server says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Protocol, TypeVar

from multidict import CIMultiDict
from yarl import URL

from adapter.upstream.access import CredentialsError, UpstreamConfigError
from adapter.upstream.auth import Auth
from adapter.upstream.credential_cache import CredentialCache, Issued, reason

T = TypeVar("T")
Headers = tuple[tuple[str, str], ...]
_LIBRARIES: Final = {
    "sigv4": ("botocore", "aws"),
    "google": ("google-auth", "google"),
    "azure": ("azure-identity", "azure"),
}


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request that is about to be sent.

    Attributes:
        method: GET or POST.
        url: with its query, as it is sent.
        headers: those that are set by the adapter.
        body: the bytes of the body; None for none.
        credential: what the request was authenticated with.
    """

    method: str
    url: URL
    headers: CIMultiDict[str] = field(repr=False)
    body: bytes | None = None
    credential: object = field(default=None, repr=False)


class Authenticator(Protocol):
    """Authenticates requests to one server."""

    refusals: ClassVar[frozenset[int]]
    """The statuses with which the server refuses a credential."""

    async def authenticate(self, request: OutgoingRequest) -> OutgoingRequest:
        """Return the request with its credential.

        Raises:
            CredentialsError: there is none.
        """
        ...

    async def renew(self, request: OutgoingRequest) -> bool:
        """Return whether a request that was refused can be sent again with another credential."""
        ...

    async def close(self) -> None:
        """Cancel what is in progress."""
        ...


class HeaderAuthenticator:
    """Adds headers that are valid for some time, such as a bearer token."""

    refusals: ClassVar = frozenset({401})

    def __init__(self, cache: CredentialCache[Headers]) -> None:
        self._cache = cache

    async def authenticate(self, request: OutgoingRequest) -> OutgoingRequest:
        """See Authenticator."""
        credential = await self._cache.get()
        headers = request.headers.copy()
        for name, value in credential:
            headers[name] = value
        return replace(request, headers=headers, credential=credential)

    async def renew(self, request: OutgoingRequest) -> bool:
        """See Authenticator."""
        assert isinstance(request.credential, tuple), "authenticate has set it"
        return await self._cache.renew(request.credential)

    async def close(self) -> None:
        """See Authenticator."""
        await self._cache.close()


def make_authenticator(auth: Auth, *, what: str) -> Authenticator:
    """Return the authenticator for a form of `auth`, after importing its library, which may take a second.

    Args:
        auth: the form.
        what: names the server in messages.

    Raises:
        UpstreamConfigError: the library is not installed, or a file cannot be used.
    """
    name = next(name for name in auth.__struct_fields__ if getattr(auth, name) is not None)
    try:
        return _make(auth, what)
    except ImportError as error:
        library, extra = _LIBRARIES.get(name, (name, name))
        raise UpstreamConfigError(
            f"{name} for {what} needs {library}: install milliscale[{extra}], or build the image with"
            " LOCK=requirements-clouds.lock"
        ) from error


def _make(auth: Auth, what: str) -> Authenticator:
    if auth.sigv4 is not None:
        from adapter.upstream.sigv4 import SigV4Authenticator

        return SigV4Authenticator(auth.sigv4, what=what)
    cache: CredentialCache[Headers]
    if auth.google is not None:
        from adapter.upstream.google import GoogleTokens

        cache = CredentialCache(in_thread(GoogleTokens().issue, "Google", what), what=f"token for {what}")
    elif auth.azure is not None:
        from adapter.upstream.azure import AzureTokens

        cache = CredentialCache(in_thread(AzureTokens(auth.azure).issue, "Azure", what), what=f"token for {what}")
    else:
        from adapter.upstream.oauth2 import OAuth2Tokens

        assert auth.oauth2 is not None, "Auth has exactly one form"
        cache = CredentialCache(OAuth2Tokens(auth.oauth2, what=what).issue, what=f"token for {what}")
    return HeaderAuthenticator(cache)


def in_thread(issue: Callable[[bool], Issued[T]], provider: str, what: str) -> Callable[[bool], Awaitable[Issued[T]]]:
    """Return a function that calls a library in a thread, and reports its errors without tokens."""

    async def issue_in_thread(renew: bool) -> Issued[T]:
        try:
            return await asyncio.to_thread(issue, renew)
        except CredentialsError:
            raise
        except Exception as error:  # noqa: BLE001  (a malformed response may cause any error in a library)
            raise CredentialsError(f"{provider} gives no credentials for {what}: {reason(error)}") from None

    return issue_in_thread
