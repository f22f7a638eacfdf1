"""Tokens of Google's application default credentials, with google-auth, and of Microsoft Entra ID, with azure-identity.

The libraries' own caches would return a token that was refused. So every token is requested with new credentials.
"""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from adapter.upstream.access import GOOGLE_SCOPE, AzureAuth
from adapter.upstream.credential_cache import Issued

Issue: TypeAlias = Callable[[bool], Issued[tuple[tuple[str, str], ...]]]
"""Returns the headers with a new token. Blocks: it sends requests. Raises the library's errors."""

_SECONDS: Final = 10.0
_LIFETIME_SECONDS: Final = 5 * 60.0  # if the credentials do not say
# A pod has none of these; a person's machine has the Azure CLI.
_EXCLUDED: Final = ("powershell", "developer_cli", "visual_studio_code", "shared_token_cache", "broker")


def google_tokens() -> Issue:
    """Return a function that requests tokens. Raises ImportError without the library."""
    import google.auth
    import requests
    from google.auth.credentials import with_scopes_if_required
    from google.auth.transport.requests import Request

    def issue(_: bool) -> Issued[tuple[tuple[str, str], ...]]:
        with requests.Session() as session:
            # Some of google-auth's requests have two minutes by default.
            request: Any = functools.partial(Request(session), timeout=_SECONDS)
            # Without scopes, google-auth does not look up the project of a federated identity at another service.
            found, _project = google.auth.default(request=request)
            credentials = with_scopes_if_required(found, [GOOGLE_SCOPE])  # type: ignore[no-untyped-call]
            credentials.refresh(request)
        headers: dict[str, str] = {}
        credentials.apply(headers)
        expiry: datetime.datetime | None = credentials.expiry  # in UTC, without a time zone
        expires = expiry.replace(tzinfo=datetime.UTC).timestamp() if expiry else time.time() + _LIFETIME_SECONDS
        return Issued(tuple(headers.items()), expires)

    return issue


def azure_tokens(auth: AzureAuth) -> Issue:
    """Return a function that requests tokens. Raises ImportError without the library."""
    from azure.identity import DefaultAzureCredential

    options: dict[str, Any] = {f"exclude_{name}_credential": True for name in _EXCLUDED}
    options |= {"connection_timeout": _SECONDS, "read_timeout": _SECONDS, "retry_total": 1}
    if auth.client_id:
        options["managed_identity_client_id"] = auth.client_id

    def issue(_: bool) -> Issued[tuple[tuple[str, str], ...]]:
        with DefaultAzureCredential(**options) as credential:
            token = credential.get_token(auth.scope)
        return Issued((("Authorization", f"Bearer {token.token}"),), float(token.expires_on))

    return issue
