"""Flags of the adapter's HTTPS server: its address and limits. kube.serving.flags has its certificates and users.

Upstream: options.SecureServingOptions, options.ServerRunOptions
"""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from kube.process.flags import DURATION, POSITIVE_DURATION, option_group
from kube.serving.options import ServerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """The HTTPS server."""

    bind_address: str = "0.0.0.0"  # noqa: S104  (an API server is there for the whole cluster)
    """The address to listen on; 0.0.0.0, :: and "" are all addresses of both families."""
    port: int = 6443
    """The port; 0 is any free one."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    """On connections and requests."""
    shutdown_delay: float = 0.0
    """Seconds that requests are still served after SIGTERM."""


_DEFAULTS = ServingOptions()


def _serving_options(
    *,
    bind_address: str,
    secure_port: int,
    max_connections: int,
    max_requests_inflight: int,
    request_timeout: float,
    shutdown_delay_duration: float,
) -> ServingOptions:
    return ServingOptions(
        bind_address=bind_address,
        port=secure_port,
        limits=ServerLimits(
            connections=max_connections, in_flight=max_requests_inflight, request_seconds=request_timeout
        ),
        shutdown_delay=shutdown_delay_duration,
    )


serving_flags = option_group(
    "serving",
    _serving_options,
    click.option(
        "--bind-address",
        default=_DEFAULTS.bind_address,
        help="IP address to listen on; 0.0.0.0 and :: are all addresses of both families.",
    ),
    click.option(
        "--secure-port",
        type=click.IntRange(0, 65535),
        default=_DEFAULTS.port,
        help="Port to serve HTTPS on; 0 is any free port, which is logged.",
    ),
    click.option(
        "--max-connections",
        type=click.IntRange(min=1),
        default=_DEFAULTS.limits.connections,
        help="Maximum number of open connections, a quarter of them in their TLS handshake. Beyond it, each new "
        "connection closes an idle one.",
    ),
    click.option(
        "--max-requests-inflight",
        type=click.IntRange(min=1),
        default=_DEFAULTS.limits.in_flight,
        help="Maximum number of requests in flight. A quarter as many of each namespace can wait; more get 429.",
    ),
    click.option(
        "--request-timeout",
        type=POSITIVE_DURATION,
        default="1m",
        help="Maximum duration of a request; its timeout parameter can only shorten it.",
    ),
    click.option(
        "--shutdown-delay-duration",
        type=DURATION,
        default="5s",
        help="Time to delay the termination after SIGTERM. Requests are served and /readyz fails meanwhile, so that "
        "the Service's endpoints can move. A second signal ends it.",
    ),
)
