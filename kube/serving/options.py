"""The options of an HTTPS server: certificates, limits, authentication and authorization."""

from __future__ import annotations

from dataclasses import dataclass, field

from kube.security.authorization import AuthorizationOptions
from kube.security.tls import TLSOptions
from kube.security.trust import TrustOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a client's connection."""

    handshake_seconds: float = 10.0
    """Limit of the TLS handshake, and of the closing one, each of which takes few round trips."""
    idle_seconds: float = 120.0
    """Time from one response to the end of the next request's head. Longer than Go clients keep an idle connection (90
    s), so that the client closes it and no request meets a closing connection."""
    body_seconds: float = 10.0
    """Time for the client to send the rest of a request's body after the response."""
    read_seconds: float = 60.0
    """Time for the client to read, while the send buffer of the connection is full. One that does not read keeps the
    memory of its response for so long."""
    head_bytes: int = 32 * 2**20
    """Memory for incomplete heads of all connections together; the longest one is closed."""
    body_bytes: int = 16 * 2**20
    """Limit of a request's body, which is discarded. Kubernetes takes bodies of up to 3 MiB, so no client is used to
    sending more than a few of them."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits on what one client's requests may cost other clients.

    Attributes:
        connections: open at a time, those in their TLS handshake included.
        in_flight: the maximum of requests in flight; a quarter as many may wait per namespace, and more get 429 at
            once.
        batch_seconds: requests that the event loop reads in one iteration are handled for so long, one after another;
            the rest of them get 429. So an overloaded process serves in time what it can serve.
        batch_requests: the last ones are served nevertheless, so that a pause of the process rejects nobody.
        request_seconds: how long a request may take; a `timeout` parameter can only shorten it.
        shutdown_seconds: how long requests in flight may take after the process gets a signal to end.
        connection: see ConnectionLimits.
    """

    connections: int = 2000
    in_flight: int = 400
    batch_seconds: float = 0.1
    batch_requests: int = 64
    request_seconds: float = 60.0
    shutdown_seconds: float = 20.0
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOptions:
    """TLS, and delegated authentication and authorization.

    Attributes:
        tls: the server's certificates.
        trust: the CAs of clients.
        token_ttl: seconds for which results of TokenReviews are cached.
        authorization: the paths without review, and the TTLs of cached reviews.
    """

    tls: TLSOptions = field(default_factory=TLSOptions)
    trust: TrustOptions = field(default_factory=TrustOptions)
    token_ttl: float = 10.0
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
