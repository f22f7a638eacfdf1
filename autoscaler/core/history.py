"""History: the state of an HPA that the controller keeps between reconciliations, as Kubernetes' controller does.

Its times are milliseconds of a monotonic clock, as in Go: adjusting the wall clock neither shortens nor prolongs a
stabilization window. `autoscaler.loop.histories` converts the times of saved histories.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from autoscaler.core.model import Behavior, ScalingRules, Status

LONG_AGO_MS: Final = -(2**53)
"""A time before any window. (Zero may be within a window: the clock starts when the machine boots.)"""
# lastScaleTime is truncated to a whole second.
_SECOND_MS: Final = 999


class Recommendation(Struct, frozen=True):
    """A replica count that was proposed at a time (of the history's clock)."""

    replicas: int
    time_ms: int


class ScaleEvent(Struct, frozen=True):
    """A change by `change` pods (positive in both directions) at a time (of the history's clock)."""

    change: int
    time_ms: int
    outdated: bool = False
    """Older than the longest policy period, so its slot can be reused."""


class History(Struct, frozen=True, kw_only=True):
    """Recommendations and scale events of one HPA. Order matters: slots are reused in place, nothing is pruned."""

    recommendations: tuple[Recommendation, ...] = ()
    scale_up_events: tuple[ScaleEvent, ...] = ()
    scale_down_events: tuple[ScaleEvent, ...] = ()
    metric_failures: int = 0
    """Consecutive reconciliations in which the metrics were evaluated and one of them failed."""
    complete: bool = True
    """False: another process may have acted since this was saved (see `record_initial_recommendation`)."""


def store_scale_event(
    history: History, *, behavior: Behavior | None, previous_replicas: int, new_replicas: int, now_ms: int
) -> History:
    """Add a scale that succeeded at `now_ms` of the history's clock; without behavior, nothing is stored.

    Upstream: podautoscaler.storeScaleEvent.
    """
    if behavior is None:
        return history
    if new_replicas > previous_replicas:
        event = ScaleEvent(new_replicas - previous_replicas, now_ms)
        return replace(history, scale_up_events=_with_event(history.scale_up_events, event, behavior.scale_up))
    event = ScaleEvent(previous_replicas - new_replicas, now_ms)
    return replace(history, scale_down_events=_with_event(history.scale_down_events, event, behavior.scale_down))


def _with_event(events: tuple[ScaleEvent, ...], event: ScaleEvent, rules: ScalingRules) -> tuple[ScaleEvent, ...]:
    """Mark outdated events and put `event` into the last of their slots, or into a new one.

    Upstream: podautoscaler.markScaleEventsOutdated, podautoscaler.getLongestPolicyPeriod.
    """
    longest = 1000 * max((policy.period_seconds for policy in rules.policies), default=0)
    slots = [replace(each, outdated=each.outdated or each.time_ms < event.time_ms - longest) for each in events]
    outdated = [index for index, each in enumerate(slots) if each.outdated]
    if outdated:
        slots[outdated[-1]] = event
    else:
        slots.append(event)
    return tuple(slots)


def record_foreign_scale(
    history: History,
    *,
    old: Status,
    new: Status,
    behavior: Behavior | None,
    now_ms: int,
    monotonic_ms: int | None = None,
) -> History:
    """Add the scale that another controller reports in the HPA's status, if there is a new one.

    In dry-run and shadow mode another controller scales, and its scale events count towards rate limits.
    Kubernetes' controller writes `lastScaleTime`, `currentReplicas` and `desiredReplicas` (the counts before and after)
    at once.

    Args:
        history: the history before.
        old: the status as last seen.
        new: the status as seen now.
        behavior: the HPA's.
        now_ms: the current time, in milliseconds since the Unix epoch, as `lastScaleTime` is.
        monotonic_ms: the same by the history's clock; None: `now_ms`.
    """
    if new.last_scale_ms is None or new.last_scale_ms == old.last_scale_ms:
        return history
    if new.desired_replicas == new.current_replicas:
        return history
    return store_scale_event(
        history,
        behavior=behavior,
        previous_replicas=new.current_replicas,
        new_replicas=new.desired_replicas,
        # The scale happened within that second, before now, and usually just before now.
        now_ms=(now_ms if monotonic_ms is None else monotonic_ms) - max(0, now_ms - new.last_scale_ms - _SECOND_MS),
    )


def needs_initial_recommendation(history: History) -> bool:
    """Return True if `record_initial_recommendation` would change the history."""
    return not (history.complete and history.recommendations)


def record_initial_recommendation(
    history: History,
    *,
    current_replicas: int,
    status: Status,
    behavior: Behavior | None,
    now_ms: int,
    monotonic_ms: int | None = None,
) -> History:
    """Seed a new or an incomplete history with the current replicas.

    Upstream: podautoscaler.recordInitialRecommendation.

    An incomplete history was saved some seconds before its process ended, and another process may have acted since. It
    is kept, and the last scale is added if the status still shows its size.

    Args:
        history: the history before.
        current_replicas: `spec.replicas` of the scale.
        status: the HPA's status.
        behavior: the HPA's.
        now_ms: the current time, in milliseconds since the Unix epoch.
        monotonic_ms: the same by the history's clock; None: `now_ms`.
    """
    if not needs_initial_recommendation(history):
        return history
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    if not history.complete:
        events = (*history.scale_up_events, *history.scale_down_events)
        stored_ms = max((each.time_ms for each in events), default=LONG_AGO_MS) + now_ms - monotonic_ms
        if status.last_scale_ms is not None and status.last_scale_ms > stored_ms:
            history = record_foreign_scale(
                history,
                old=replace(status, last_scale_ms=None),
                new=status,
                behavior=behavior,
                now_ms=now_ms,
                monotonic_ms=monotonic_ms,
            )
    seed = Recommendation(current_replicas, monotonic_ms)
    return replace(history, recommendations=(*history.recommendations, seed), complete=True)
