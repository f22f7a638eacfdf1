"""The replica count that one metric asks for, and the arithmetic that all metrics share.

Ratios are IEEE doubles built from integers, as in Kubernetes. Where a double does not fit an integer, the result there
depends on the processor; here a count is held at the nearest 32-bit integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autoscaler.core.integers import clamp_int32
from autoscaler.core.observation import Pod, PodListError
from autoscaler.core.pod_groups import PodGroups

Pods: TypeAlias = "Sequence[Pod] | PodListError"


class ReplicaError(ValueError):
    """No replica count can be computed from this metric; the text says why, as Kubernetes does."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The metrics API gave no usable answer (`message`: the metrics client's text)."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a ratio may be from 1 without effect."""

    scale_down: float
    scale_up: float

    def covers(self, ratio: float) -> bool:
        """Whether `ratio` is close enough to 1: bounds included, in doubles."""
        return 1.0 - self.scale_down <= ratio <= 1.0 + self.scale_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The replica count that one metric asks for, and how it came about."""

    replicas: int
    usage: int | None
    """Milli-value for the HPA's status: the average for per-pod targets, else the total. None: not a number."""
    total: int | None = None
    """Milli-value of the whole, where the metric is not one of pods."""
    ratio: float
    """Usage to target, of the pods with usable values."""
    utilization: int | None = None
    """Percent of the requests (utilization targets only)."""
    rebalanced_ratio: float | None = None
    """The ratio with missing and unready pods filled in, where that was necessary."""
    within_tolerance: bool = False
    counted: int | None = None
    """How many pods the ratio was multiplied by; None if it was not."""
    overruled: bool = False
    """The product was not used: what was assumed for some pods turned the direction, or it is no number."""
    pods: PodGroups | None = None
    """None where the pods were not looked at."""


def some_pods(pods: Pods) -> Sequence[Pod]:
    """The pods.

    Raises:
        ReplicaError: they could not be listed, or there are none.
    """
    if isinstance(pods, PodListError):
        raise ReplicaError(f"unable to get pods while calculating replica count: {pods.message}")
    if not pods:
        raise ReplicaError("no pods returned by selector while calculating replica count")
    return pods


def ratio_of(dividend: float, divisor: float) -> float:
    """The IEEE quotient: x/0 is infinite, 0/0 is not a number. Integers become doubles first."""
    dividend, divisor = float(dividend), float(divisor)
    if divisor != 0.0:
        return dividend / divisor
    return math.nan if dividend == 0.0 else math.copysign(math.inf, dividend)


def rounded_up(count: float, *, otherwise: int) -> int:
    """`count` rounded up, held within 32 bits; `otherwise` if it is not a number."""
    if math.isnan(count):
        return otherwise
    return clamp_int32(count if math.isinf(count) else math.ceil(count))
