"""The start of a process, before its imports, which take half a second of CPU."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def importing() -> Iterator[None]:
    """Import modules without garbage collections, which would find nothing; SIGTERM and Ctrl-C end the process.

    The kernel ignores a SIGTERM to the first process of a container that has no handler.
    """
    gc.disable()
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()
        gc.enable()


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
