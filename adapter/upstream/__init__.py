"""HTTP to upstream servers: Prometheus, and another metrics adapter.

access              the address of a server, and how the adapter authenticates: sigv4, google, azure, oauth2
client              sends requests with TLS files, secrets in files and `auth`; removes these from a server's error
credential_cache    keeps a credential that expires, and refreshes it ahead of time
sigv4, tokens, oauth2
                    where the credentials come from

The libraries of the clouds are optional (`milliscale[aws]`, `[azure]`, `[google]`). They are imported when the first
server that needs one is opened, in a thread, where all their blocking calls are, too.
"""

from __future__ import annotations

from adapter.upstream.access import (
    Auth,
    AzureAuth,
    CredentialsError,
    GoogleAuth,
    OAuth2Auth,
    ServerAccess,
    SigV4Auth,
    UpstreamConfigError,
    header,
)
from adapter.upstream.client import Credentials, UpstreamClient, upstream_session, without_credentials

__all__ = [
    "Auth",
    "AzureAuth",
    "Credentials",
    "CredentialsError",
    "GoogleAuth",
    "OAuth2Auth",
    "ServerAccess",
    "SigV4Auth",
    "UpstreamClient",
    "UpstreamConfigError",
    "header",
    "upstream_session",
    "without_credentials",
]
