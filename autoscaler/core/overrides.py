"""Where an HPA's own settings turn a decision from what Kubernetes would do: a pause, and a fallback without metrics.

Both are part of the decision, so that whoever looks at one sees them: a pause says what it kept from happening, a
fallback says what it stood in for. Kubernetes knows neither, so the words are ours.

A fallback raises and never lowers: it stands in for metrics that are not known, which is no reason to take replicas
away. The replica count that it asks for is stabilised and limited like any metric's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoscaler.core.knobs import PREFIX

if TYPE_CHECKING:
    from autoscaler.core.config import Fallback, Pause

__all__ = ["PAUSED", "Held", "StandIn", "held", "stand_in"]

PAUSED = "Paused"
"""The reason of the ScalingLimited condition while a pause holds a scale back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A scale that a pause held back."""

    pause: Pause
    replicas: int
    """What the target would have been scaled to."""
    reason: str
    """Why, in the words of the event that there would have been."""

    @property
    def message(self) -> str:
        """For the condition."""
        return f"annotation {PREFIX}paused: {self.pause} keeps the target from being scaled to {self.replicas} replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """What stands in for metrics that have been failing for too long."""

    fallback: Fallback
    failures: int
    """Steps in a row in which a metric has failed, this one included."""
    replicas: int
    """What is asked for in their place: the fallback's count, or the current one if that is higher."""

    @property
    def rescale_reason(self) -> str:
        """In the words of the event."""
        return f"metrics unavailable, fallback to {self.fallback.replicas} replicas"

    @property
    def message(self) -> str:
        """For the condition; the same at every step, so that the status does not change."""
        return (
            f"after {self.fallback.failure_threshold} or more failures in a row, annotation {PREFIX}fallback-replicas "
            f"asks for at least {self.fallback.replicas} replicas"
        )


def held(pause: Pause, *, current_replicas: int, scale_to: int | None, reason: str) -> Held | None:
    """The scale to `scale_to` replicas, for `reason`, if `pause` forbids it; None if it may happen."""
    if scale_to is None or not pause.forbids(current=current_replicas, desired=scale_to):
        return None
    return Held(pause=pause, replicas=scale_to, reason=reason)


def stand_in(fallback: Fallback | None, *, failures: int, current_replicas: int) -> StandIn | None:
    """What stands in for the failed metrics after so many failures in a row; None: nothing does yet."""
    if fallback is None or failures < fallback.failure_threshold:
        return None
    return StandIn(fallback=fallback, failures=failures, replicas=max(fallback.replicas, current_replicas))
