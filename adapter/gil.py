"""Release the GIL regularly in CPU-bound worker threads, so that the event loop is not delayed by the switch interval.

A thread that computes keeps the GIL for 5 ms after each poll of the event loop. Without this module, decoding a long
response in a thread delays the loop by up to a tenth of a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_ITEMS = 500
_SLEEP_SECONDS = 0.000_05


def releasing_gil(items: Iterable[T], *, every: int = _ITEMS) -> Iterator[T]:
    """Yield the items, and sleep briefly after `every` of them. Call it in worker threads only."""
    for number, item in enumerate(items):
        if number and not number % every:
            time.sleep(_SLEEP_SECONDS)
        yield item
