"""Free ports for servers that need a port number at their start."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below the range of outgoing connections (32768 and up on Linux), so that only another server could take the port
# before the server starts.
_RANGE: Final = range(20_000, 32_768)
_ATTEMPTS: Final = 100
_given: Final[set[int]] = set()


def free_port() -> int:
    """Return a free port of loopback, which no other call returns while this process lives.

    A server listens seconds after its port was chosen, and until then the port looks free to others: each process
    holds a lock on one byte for each of its ports, in a file that the processes of one user share.

    Raises OSError if there is none.
    """
    for port in random.sample(_RANGE, _ATTEMPTS):
        if port not in _given and _locked(port) and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port on {LOOPBACK} among {_ATTEMPTS} tried")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _locked(port: int) -> bool:
    """Lock the port against other processes; the lock ends with this process."""
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    """Open the shared file, once: POSIX drops a process' locks when it closes any descriptor of it."""
    path = Path(tempfile.gettempdir()) / f"milliscale-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
