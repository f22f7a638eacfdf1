"""Release the GIL regularly in CPU-bound worker threads, so that the event loop is not delayed by the switch interval.

A thread that computes keeps the GIL for 5 ms while another thread waits for it, each time that the event loop has
looked for I/O. While a long response is decoded in a thread, the loop would be a tenth of a second late at times.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_ITEMS = 500
_SLEEP_SECONDS = 0.000_05


def releasing_gil(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, and sleep for a moment after every 500; use it in worker threads only where there are more."""
    for number, item in enumerate(items):
        if number and not number % _ITEMS:
            time.sleep(_SLEEP_SECONDS)
        yield item
