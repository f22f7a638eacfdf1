"""How long to wait before trying again: exponential, bounded, with jitter so that many clients do not march in step."""

from __future__ import annotations

import random as _random
from collections.abc import Callable


class Backoff:
    """A growing delay.

    Args:
        initial: the first delay, in seconds.
        maximum: no delay is longer than this, in seconds, jitter included.
        factor: how much longer each delay is than the one before.
        jitter: each delay is made up to this share longer, at random.
        random: numbers in [0, 1); a parameter so that tests are exact.
    """

    def __init__(
        self,
        initial: float,
        maximum: float,
        *,
        factor: float = 2.0,
        jitter: float = 0.2,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._initial = initial
        self._maximum = maximum
        self._factor = factor
        self._jitter = jitter
        self._random = random
        self._delay = initial

    def next(self) -> float:
        """The delay to wait now, in seconds; the following one is longer."""
        delay = min(self._delay, self._maximum)
        self._delay = min(self._delay * self._factor, self._maximum)
        return min(delay * (1 + self._jitter * self._random()), self._maximum)

    def reset(self) -> None:
        """Start over: the last try went well."""
        self._delay = self._initial
