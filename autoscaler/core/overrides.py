"""Where a decision differs from what Kubernetes would do: a pause, a fallback without metrics, and stale objects.

All are part of the decision, so that whoever looks at one sees them: a pause and stale objects say what they kept from
happening, a fallback says what it stood in for. Kubernetes knows none of them, so the words are ours.

A fallback raises and never lowers: it stands in for metrics that are not known, which is no reason to take replicas
away. The replica count that it asks for is stabilised and limited like any metric's.

Objects that may be out of date (`Observation.stale`) are no reason to take replicas away either: pods that are missing
in them would look like load that is gone. What asks for fewer replicas asks for the current count then. That count is
also what is remembered, so that the stabilisation window begins anew when the objects are known again.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.core.config import Fallback, Pause
from autoscaler.core.knobs import PREFIX

PAUSED = "Paused"
"""The reason of the ScalingLimited condition while a pause holds a scale back."""


STALE = "StaleWatch"
"""The reason of the ScalingLimited condition while stale objects hold a scale-down back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A scale that a pause or stale objects held back."""

    pause: Pause | None = None
    stale: tuple[str, ...] = ()
    """The resources that may be out of date; empty: it was the pause."""
    replicas: int
    """What the target would have been scaled to."""
    reason: str
    """Why, in the words of the event that there would have been."""

    @property
    def condition(self) -> str:
        """The reason of the ScalingLimited condition."""
        return STALE if self.stale else PAUSED

    @property
    def message(self) -> str:
        """For the condition."""
        if self.stale:
            return (
                f"the watch on {' and '.join(self.stale)} is silent or fails, so what is known may be out of date, "
                f"which keeps the target from being scaled down to {self.replicas} replicas"
            )
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


def held_as_stale(stale: tuple[str, ...], *, current_replicas: int, desired: int, reason: str) -> Held | None:
    """The scale-down to `desired` replicas, for `reason`, if the resources in `stale` may be out of date."""
    return Held(stale=stale, replicas=desired, reason=reason) if stale and desired < current_replicas else None


def stand_in(fallback: Fallback | None, *, failures: int, current_replicas: int) -> StandIn | None:
    """What stands in for the failed metrics after so many failures in a row; None: nothing does yet."""
    if fallback is None or failures < fallback.failure_threshold:
        return None
    return StandIn(fallback=fallback, failures=failures, replicas=max(fallback.replicas, current_replicas))
