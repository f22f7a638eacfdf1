"""The serving certificate, and delegated authentication and authorization, of one HTTPS server.

Upstream: options.RecommendedOptions (SecureServing, Authentication, Authorization)
"""

from __future__ import annotations

import asyncio
import datetime

from kube.client import KubeClient
from kube.security.authentication import Authenticator, TokenReviewer
from kube.security.authorization import AuthorizationOptions, Authorizer
from kube.security.tls import ServingTLS, self_signed_files
from kube.security.trust import TrustOptions, TrustReloader
from kube.serving.options import ServingOptions


class DelegatedAuth:
    """TLS, authentication and authorization of one server.

    Args:
        serving: the server's options.
        trust: the CAs of clients.
        authorization: the paths without review, and the TTLs of cached reviews.
        token_ttl: seconds for which results of TokenReviews are cached.
        authentication_client: the API server for TokenReviews and the CAs.
        authorization_client: the API server for SubjectAccessReviews.

    Attributes:
        tls: its `context` is the listener's.
        trust: the CAs.
        authenticator: finds the user of a request.
        authorizer: decides what the user may do.

    Raises:
        TLSError: the serving certificate cannot be used or made.
    """

    def __init__(
        self,
        serving: ServingOptions,
        trust: TrustOptions,
        authorization: AuthorizationOptions,
        *,
        token_ttl: float,
        authentication_client: KubeClient,
        authorization_client: KubeClient,
    ) -> None:
        files = serving.certificate or self_signed_files(serving.cert_dir, now=datetime.datetime.now(datetime.UTC))
        self.tls = ServingTLS(
            files, named=serving.named_certificates, minimum=serving.minimum_tls, ciphers=serving.ciphers
        )
        self.trust = TrustReloader(trust, authentication_client, lambda current: self.tls.trust(current.pem))
        tokens = TokenReviewer(authentication_client, ttl=token_ttl)
        self.authenticator = Authenticator(lambda: self.trust.current, tokens)
        self.authorizer = Authorizer(authorization_client, authorization)

    async def run(self) -> None:
        """Reload certificates and CAs when they change, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.trust.run(), name="trust")
            tasks.create_task(self.tls.run(), name="serving certificate")
