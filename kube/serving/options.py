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
    """Limits on what one client's requests may cost other clients."""

    connections: int = 2000
    """Open at a time, those in their TLS handshake included."""
    in_flight: int = 400
    """The maximum of requests in flight; a quarter as many may wait per namespace, and more get 429 at once."""
    batch_seconds: float = 0.1
    """Requests that the event loop reads in one iteration are handled for so long, one after another; the rest of them
    get 429. So an overloaded process serves in time what it can serve."""
    batch_requests: int = 64
    """The last ones are served nevertheless, so that a pause of the process rejects nobody."""
    request_seconds: float = 60.0
    """How long a request may take; a `timeout` parameter can only shorten it."""
    shutdown_seconds: float = 20.0
    """How long requests in flight may take after the process gets a signal to end."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    """See ConnectionLimits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOptions:
    """TLS, and delegated authentication and authorization."""

    tls: TLSOptions = field(default_factory=TLSOptions)
    """The server's certificates."""
    trust: TrustOptions = field(default_factory=TrustOptions)
    """The CAs of clients."""
    token_ttl: float = 10.0
    """Seconds for which results of TokenReviews are cached."""
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    """The paths without review, and the TTLs of cached reviews."""
