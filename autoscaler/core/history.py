"""What is remembered of an HPA from step to step, as Kubernetes' controller remembers it.

Its times are milliseconds of a clock that nobody sets and whose zero means nothing, as Go's are where Kubernetes
compares them. So a wall clock that is set forward does not end a stabilization window or a policy's period early, and
one that is set back does not prolong them. What is saved or shown is converted (`autoscaler.loop.saved_history_format`,
`autoscaler.records.facts`); times that come from the API, such as a pod's start, are compared with the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from autoscaler.core.model import Behavior, ScalingRules, Status

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
    """False: another process may have acted since; the next step catches up (``record_initial_recommendation``)."""


# lastScaleTime is a whole second, cut off.
_SECOND_MS: Final = 999


def record_foreign_scale(
    history: History,
    *,
    old: Status,
    new: Status,
    behavior: Behavior | None,
    now_ms: int,
    monotonic_ms: int | None = None,
) -> History:
    """The memory after an HPA's status has changed from `old` to `new`, with the scale that this tells of, if any.

    Args:
        history: the memory before.
        old: the status as last seen.
        new: the status as seen now.
        behavior: the HPA's, without which nothing is remembered.
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
        # It was made within that second, and before it is seen; mostly that is a moment ago.
        now_ms=(now_ms if monotonic_ms is None else monotonic_ms) - max(0, now_ms - new.last_scale_ms - _SECOND_MS),
    )


def needs_initial_recommendation(history: History) -> bool:
    """Whether the next step begins with the target's number of replicas as a recommendation."""
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
    """The memory with which to take a step: itself where it is complete, and not of a new HPA.

    Args:
        history: the memory before.
        current_replicas: the target's number of replicas now, which no step may fall below early.
        status: the HPA's status now.
        behavior: the HPA's, without which no scale is remembered.
        now_ms: the current time, in milliseconds since the Unix epoch.
        monotonic_ms: the same by the history's clock; None: `now_ms`.
    """
    if not needs_initial_recommendation(history):
        return history
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    if not history.complete:
        events = (*history.scale_up_events, *history.scale_down_events)
        known_ms = max((each.time_ms for each in events), default=LONG_AGO_MS) + now_ms - monotonic_ms
        if status.last_scale_ms is not None and status.last_scale_ms > known_ms:
            before = replace(status, last_scale_ms=None)
            history = record_foreign_scale(
                history, old=before, new=status, behavior=behavior, now_ms=now_ms, monotonic_ms=monotonic_ms
            )
    seed = Recommendation(current_replicas, monotonic_ms)
    return replace(history, recommendations=(*history.recommendations, seed), complete=True)


def store_scale_event(
    history: History, *, behavior: Behavior | None, previous_replicas: int, new_replicas: int, now_ms: int
) -> History:
    """The history after a scale from `previous_replicas` to `new_replicas` succeeded at `now_ms`, by its clock.

    Nothing is remembered without behavior, which alone needs it.
    """
    if behavior is None:
        return history
    if new_replicas > previous_replicas:
        event = ScaleEvent(new_replicas - previous_replicas, now_ms)
        return replace(history, scale_up_events=_with_event(history.scale_up_events, event, behavior.scale_up))
    event = ScaleEvent(previous_replicas - new_replicas, now_ms)
    return replace(history, scale_down_events=_with_event(history.scale_down_events, event, behavior.scale_down))


def _with_event(events: tuple[ScaleEvent, ...], event: ScaleEvent, rules: ScalingRules) -> tuple[ScaleEvent, ...]:
    """`events` with the old ones marked, and `event` in the last of those, or in a new slot."""
    longest = max((policy.period_ms for policy in rules.policies), default=0)
    slots = [replace(each, outdated=each.outdated or each.time_ms < event.time_ms - longest) for each in events]
    old = [index for index, each in enumerate(slots) if each.outdated]
    if old:
        slots[old[-1]] = event
    else:
        slots.append(event)
    return tuple(slots)
