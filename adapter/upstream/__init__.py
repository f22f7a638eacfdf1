"""HTTP to upstream servers: Prometheus, and another metrics adapter.

access              the address of a server, and how the adapter authenticates
auth                the forms of `auth`: sigv4, google, azure, oauth2
credentials         TLS files, secrets in files, and `auth`: authenticates each request
client              sends requests
redaction           removes the credentials of a request from a server's error
credential_cache    keeps a credential that expires, and refreshes it ahead of time
sigv4, google, azure, oauth2
                    where the credentials come from

The libraries of the clouds are optional (`milliscale[aws]`, `[azure]`, `[google]`). They are imported when the first
server that needs one is opened, in a thread, where all their blocking calls are, too.
"""

from __future__ import annotations

from adapter.upstream.access import CredentialsError, ServerAccess, UpstreamConfigError, header
from adapter.upstream.auth import Auth, AzureAuth, GoogleAuth, OAuth2Auth, SigV4Auth
from adapter.upstream.client import UpstreamClient
from adapter.upstream.credentials import Credentials
from adapter.upstream.redaction import without_credentials

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
    "without_credentials",
]
