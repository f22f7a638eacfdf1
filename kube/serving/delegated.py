"""The serving certificate, and delegated authentication and authorization, of one HTTPS server.

Upstream: options.RecommendedOptions (SecureServing, Authentication, Authorization)
"""

from __future__ import annotations

import asyncio

from kube.api.client import KubeClient
from kube.security.authentication import DEFAULTS, Authenticator, ReviewSettings, TokenReviewer
from kube.security.authorization import Authorizer
from kube.security.tls import ServingTLS
from kube.security.trust import TrustReloader
from kube.serving.options import AuthOptions


class DelegatedAuth:
    """TLS, authentication and authorization of one server.

    Args:
        options: see AuthOptions.
        authentication_client: the API server for TokenReviews and the CAs.
        authorization_client: the API server for SubjectAccessReviews.
        settings: see ReviewSettings.

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
        options: AuthOptions,
        *,
        authentication_client: KubeClient,
        authorization_client: KubeClient,
        settings: ReviewSettings = DEFAULTS,
    ) -> None:
        self.tls = ServingTLS(options.tls)
        self.trust = TrustReloader(options.trust, authentication_client, lambda current: self.tls.trust(current.pem))
        tokens = TokenReviewer(authentication_client, ttl=options.token_ttl, settings=settings)
        self.authenticator = Authenticator(lambda: self.trust.current, tokens)
        self.authorizer = Authorizer(authorization_client, options.authorization, settings=settings)

    async def run(self) -> None:
        """Reload certificates and CAs when they change, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.trust.run(), name="trust")
            tasks.create_task(self.tls.run(), name="serving certificate")
