"""A credential that expires: refreshed ahead of time, by one call for all callers."""

from __future__ import annotations

import asyncio
import logging
import random as _random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from adapter.upstream.access import CredentialsError
from kube.aio.tasks import SingleFlight
from kube.api.retries import Backoff

T = TypeVar("T")
_log = logging.getLogger(__name__)

# A credential is refreshed after this part of its lifetime, plus a random part, so that many adapters do not refresh at
# the same time.
_REFRESH_AFTER: Final = 0.7
_JITTER: Final = 0.15
# Not used in its last seconds, which a request may take to arrive. Short lifetimes lose a tenth.
_MARGIN_SECONDS: Final = 10.0
_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 30.0
# A server that refuses every credential must not cause one request for credentials per query.
_RENEWAL_SECONDS: Final = 30.0
_SHOWN: Final = 1000
# Tokens and keys: long texts without spaces. Names of roles have colons and slashes.
_OPAQUE: Final = re.compile(r"[A-Za-z0-9_.~+=%-]{33,}")


@dataclass(frozen=True, slots=True)
class Issued(Generic[T]):
    """A credential, and when it expires, in seconds since the epoch."""

    value: T = field(repr=False)
    expires: float


class CredentialCache(Generic[T]):
    """Keeps a credential, and replaces it before it expires.

    It is refreshed when it is used after 70 to 85 % of its lifetime, in the background. If that fails, the current one
    stays in use until it expires.
    """

    def __init__(
        self,
        issue: Callable[[bool], Awaitable[Issued[T]]],
        *,
        what: str,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Request nothing yet.

        Args:
            issue: requests a credential; its argument is True if a cached one must not be returned. Raises
                CredentialsError.
            what: names the credential in the log.
            clock: returns seconds since the epoch.
            random: returns numbers in [0, 1).
        """
        self._issue = issue
        self._what = what
        self._clock = clock
        self._random = random
        self._issued: Issued[T] | None = None
        self._refresh_at = 0.0
        self._renew_at = 0.0
        self._calls: SingleFlight[str, T] = SingleFlight(goes_on=True)
        self._failure = ""
        self._backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, random=random)

    async def get(self) -> T:
        """Return a credential that is valid now.

        Raises:
            CredentialsError: there is none. After a failure the same error is raised for some seconds, without a call.
        """
        now = self._clock()
        issued = self._issued
        if issued is None or now >= issued.expires:
            if self._failure and now < self._refresh_at:
                raise CredentialsError(self._failure)
            return await self._calls.do("", lambda: self._refresh(renew=False))
        if now >= self._refresh_at:
            self._calls.start("", lambda: self._refresh(renew=False))
        return issued.value

    async def renew(self, refused: T) -> bool:
        """Replace a credential that the server has refused; return whether there is another one now.

        At most one renewal in 30 seconds is tried.
        """
        if self._issued is None or self._issued.value != refused:
            return True
        now = self._clock()
        if now < self._renew_at:
            return False
        self._renew_at = now + _RENEWAL_SECONDS
        try:
            return await self._calls.do("", lambda: self._refresh(renew=True)) != refused
        except CredentialsError:
            return False

    async def close(self) -> None:
        """Cancel a refresh in progress."""
        await self._calls.close()

    async def _refresh(self, *, renew: bool) -> T:
        try:
            issued = await self._issue(renew)
        except CredentialsError as error:
            self._refresh_at = self._clock() + self._backoff.next()
            if str(error) != self._failure:
                self._failure = str(error)
                _log.warning("%s", error)
            raise
        now = self._clock()
        lifetime = max(issued.expires - now, 0.0)
        self._issued = Issued(issued.value, issued.expires - min(_MARGIN_SECONDS, lifetime / 10))
        self._refresh_at = now + max(lifetime * (_REFRESH_AFTER + _JITTER * self._random()), _FIRST_RETRY_SECONDS)
        self._backoff.reset()
        if self._failure:
            self._failure = ""
            _log.info("%s: there is a credential again", self._what)
        return issued.value


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


def reason(error: BaseException) -> str:
    """Return an error of a library on one line that is not too long and has no token in it."""
    text = _OPAQUE.sub("...", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:_SHOWN]}" if text else type(error).__name__
