"""Free ports for servers that need a port number at their start."""

from __future__ import annotations

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below the range of outgoing connections (32768 and up on Linux), so that only another server could take the port
# before the server starts.
_RANGE: Final = range(20_000, 32_768)
_ATTEMPTS: Final = 100


def free_port() -> int:
    """Return a free port of loopback. Raises OSError if there is none."""
    for port in random.sample(_RANGE, _ATTEMPTS):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {LOOPBACK} among {_ATTEMPTS} tried")
