"""Series of the last minutes and the next ten: their values do not depend on when a test begins."""

import time

from playground.prometheus import Series


def counter(name: str, per_second: float, **labels: str) -> Series:
    """A counter that has risen for ten minutes.

    Its rate is a little higher than `per_second`: values are truncated to milli-values, and rate() may be a rounding
    error too low.
    """
    start = int(time.time()) - 600
    return Series(name, labels, [(start + step, (per_second + 0.00001) * step) for step in range(0, 1201, 10)])


def gauge(name: str, value: float, **labels: str) -> Series:
    """A gauge that has had one value for two minutes."""
    now = time.time()
    return Series(name, labels, [(now + step, value) for step in range(-120, 601, 10)])
