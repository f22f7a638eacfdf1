"""Go's fixed-size integers, where Kubernetes' arithmetic depends on them.

Metric values are 64-bit and replica counts 32-bit integers in Kubernetes. Sums wrap around silently, and quotients are
truncated towards zero.
"""

from __future__ import annotations

from collections.abc import Iterable

MIN_INT32 = -(2**31)
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1


def int32(number: int) -> int:
    """Wrap `number` around to 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


def int64(number: int) -> int:
    """Wrap `number` around to 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def clamp_int32(number: float) -> int:
    """Limit a whole, maybe infinite `number` to 32 bits."""
    return int(min(max(number, MIN_INT32), MAX_INT32))


def divide(dividend: int, divisor: int) -> int:
    """Return the 64-bit quotient, truncated towards zero."""
    quotient, rest = divmod(dividend, divisor)
    return int64(quotient + 1 if rest and quotient < 0 else quotient)


def total(values: Iterable[int]) -> int:
    """Return the 64-bit sum."""
    return int64(sum(values))


def mean(values: Iterable[int]) -> int:
    """Return the 64-bit sum divided by the number of values, truncated towards zero."""
    numbers = list(values)
    return divide(total(numbers), len(numbers))
