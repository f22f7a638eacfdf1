"""Flags of the adapter's HTTPS server: its address and limits. kube.serving.flags has its certificates and users.

Upstream: options.SecureServingOptions, options.ServerRunOptions
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from kube.process.flags import DURATION, POSITIVE_DURATION, option_group
from kube.serving.options import ServerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """The address of the HTTPS server, and its end."""

    bind_address: str = "0.0.0.0"  # noqa: S104  (an API server is there for the whole cluster)
    """The address to listen on; 0.0.0.0, :: and "" are all addresses of both families."""
    port: int = 6443
    """The port; 0 is any free one."""
    shutdown_delay: float = 0.0
    """Seconds that requests are still served after SIGTERM."""


_DEFAULTS, _LIMITS = ServingOptions(), ServerLimits()

serving_flags = option_group(
    "serving",
    ServingOptions,
    click.option(
        "--bind-address",
        default=_DEFAULTS.bind_address,
        help="IP address to listen on; 0.0.0.0 and :: are all addresses of both families.",
    ),
    click.option(
        "--secure-port",
        "port",
        type=click.IntRange(0, 65535),
        default=_DEFAULTS.port,
        help="Port to serve HTTPS on; 0 is any free port, which is logged.",
    ),
    click.option(
        "--shutdown-delay-duration",
        "shutdown_delay",
        type=DURATION,
        default="5s",
        help="Time to delay the termination after SIGTERM. Requests are served and /readyz fails meanwhile, so that "
        "the Service's endpoints can move. A second signal ends it.",
    ),
)

limit_flags = option_group(
    "limits",
    ServerLimits,
    click.option(
        "--max-connections",
        "connections",
        type=click.IntRange(min=1),
        default=_LIMITS.connections,
        help="Maximum number of open connections, a quarter of them in their TLS handshake. Beyond it, each new "
        "connection closes an idle one.",
    ),
    click.option(
        "--max-requests-inflight",
        "in_flight",
        type=click.IntRange(min=1),
        default=_LIMITS.in_flight,
        help="Maximum number of requests in flight. A quarter as many of each namespace can wait; more get 429.",
    ),
    click.option(
        "--request-timeout",
        "request_seconds",
        type=POSITIVE_DURATION,
        default="1m",
        help="Maximum duration of a request; its timeout parameter can only shorten it.",
    ),
)
