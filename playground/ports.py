"""Ports for servers that must be told theirs before they start."""

from __future__ import annotations

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below the range from which systems give ports to outgoing connections (32768 and up on Linux), so that between now and
# the server's start only another server could take the port.
_RANGE: Final = range(20_000, 32_768)
_ATTEMPTS: Final = 100


def free_port() -> int:
    """A port of loopback on which nobody listens at the moment. Raises OSError where there is none."""
    for port in random.sample(_RANGE, _ATTEMPTS):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {LOOPBACK} among {_ATTEMPTS} tried")
