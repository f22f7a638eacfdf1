"""Long work in a thread that leaves the event loop its turns.

A thread that computes gives the interpreter away when another one has waited for it for 5 ms, and an event loop that is
busy waits so each time that it has looked for I/O, or has had 5 ms itself. While a long answer of Prometheus is read,
that makes the loop a tenth of a second late at times. So whoever goes through very many things in a thread pauses after
some of them, for less than a tenth of a millisecond: then the loop has its turn at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = 500
_PAUSE_SECONDS = 0.000_05


def leaving_turns(items: Iterable[T]) -> Iterator[T]:
    """The items, with pauses among them where they are more than 500; not for use on the loop then."""
    for number, item in enumerate(items):
        if number and not number % _AT_ONCE:
            pause()
        yield item


def pause() -> None:
    """Let other threads go on."""
    time.sleep(_PAUSE_SECONDS)
