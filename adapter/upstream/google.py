"""Tokens of Google's application default credentials, with google-auth."""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Callable
from typing import Any, Final

import google.auth
import requests
from google.auth.credentials import with_scopes_if_required
from google.auth.transport.requests import Request

from adapter.upstream.auth import GOOGLE_SCOPE
from adapter.upstream.credential_cache import Issued

_SECONDS: Final = 10.0
_LIFETIME_SECONDS: Final = 5 * 60.0  # if the credentials do not say


class GoogleTokens:
    """Requests tokens, each with new credentials: google-auth's own cache would return a token that was refused."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def issue(self, renew: bool) -> Issued[tuple[tuple[str, str], ...]]:  # noqa: ARG002  (every token is a new one)
        """Return the headers with a token. Blocks: it sends requests.

        Raises:
            google.auth.exceptions.GoogleAuthError: there is no token.
        """
        with requests.Session() as session:
            # Some of google-auth's requests have two minutes by default.
            request: Any = functools.partial(Request(session), timeout=_SECONDS)
            # Without scopes, google-auth does not look up the project of a federated identity at another service.
            found, _ = google.auth.default(request=request)
            credentials = with_scopes_if_required(found, [GOOGLE_SCOPE])  # type: ignore[no-untyped-call]
            credentials.refresh(request)
        headers: dict[str, str] = {}
        credentials.apply(headers)
        expiry: datetime.datetime | None = credentials.expiry  # in UTC, without a time zone
        expires = expiry.replace(tzinfo=datetime.UTC).timestamp() if expiry else self._clock() + _LIFETIME_SECONDS
        return Issued(tuple(headers.items()), expires)
