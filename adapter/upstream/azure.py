"""Tokens of Microsoft Entra ID, with azure-identity."""

from __future__ import annotations

from typing import Any, Final

from azure.identity import DefaultAzureCredential

from adapter.upstream.auth import AzureAuth
from adapter.upstream.credential_cache import Issued

_SECONDS: Final = 10.0
# A pod has none of these; a person's machine has the Azure CLI.
_EXCLUDED: Final = ("powershell", "developer_cli", "visual_studio_code", "shared_token_cache", "broker")


class AzureTokens:
    """Requests tokens, each with a new credential: azure-identity's own cache would return a token that was refused."""

    def __init__(self, auth: AzureAuth) -> None:
        self._auth = auth

    def issue(self, renew: bool) -> Issued[tuple[tuple[str, str], ...]]:  # noqa: ARG002  (every token is a new one)
        """Return the header with a token. Blocks: it sends requests.

        Raises:
            azure.core.exceptions.AzureError, ValueError: there is no token.
        """
        options: dict[str, Any] = {f"exclude_{name}_credential": True for name in _EXCLUDED}
        options |= {"connection_timeout": _SECONDS, "read_timeout": _SECONDS, "retry_total": 1}
        if self._auth.client_id:
            options["managed_identity_client_id"] = self._auth.client_id
        with DefaultAzureCredential(**options) as credential:
            token = credential.get_token(self._auth.scope)
        return Issued((("Authorization", f"Bearer {token.token}"),), float(token.expires_on))
