"""What is remembered of an HPA from step to step, as Kubernetes' controller remembers it.

Its times are milliseconds of a clock that nobody sets and whose zero means nothing, as Go's are where Kubernetes
compares them. So a wall clock that is set forward does not end a stabilization window or a policy's period early, and
one that is set back does not prolong them. What is saved or shown is converted (`autoscaler.loop.saved_history_format`,
`autoscaler.records.facts`); times that come from the API, such as a pod's start, are compared with the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONG_AGO_MS: Final = -(2**53)
"""A time before any window; zero is not, on a machine that has just started."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A replica count that was proposed at a time (of the history's clock)."""

    replicas: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A change that was made: `change` pods (positive, whatever the direction) at a time."""

    change: int
    time_ms: int
    outdated: bool = False
    """It was found older than the longest policy period: its slot may be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The controller's memory of one HPA.

    Order matters: slots are used again in place, as in Kubernetes, and nothing is pruned.
    """

    recommendations: tuple[Recommendation, ...] = ()
    scale_up_events: tuple[ScaleEvent, ...] = ()
    scale_down_events: tuple[ScaleEvent, ...] = ()
    metric_failures: int = 0
    """Steps in a row in which the metrics mattered and one of them failed."""
    complete: bool = True
    """False: another process may have acted since; the next step catches up (`autoscaler.core.following`)."""
