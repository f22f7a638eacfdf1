"""What is remembered of the scales that another controller, or another process, has made.

Rate limits reckon with the changes of the last minutes, and stabilisation with where they led. In dry-run and in shadow
mode somebody else makes the changes, so its scales have to be in the memory as if they had been ours; otherwise the
limits would differ and the decisions with them, for no other reason.

Kubernetes' controller tells of each scale in the HPA's status, all in one write: `lastScaleTime` moves on, and
`currentReplicas` and `desiredReplicas` are the counts before and after. A watch brings every such write, so no scale
is missed even where two come between two steps of ours. What somebody scales by hand is in nobody's status, and
Kubernetes' controller does not remember it either.

A process that was killed takes what it did last with it: its last save is some seconds older. Whoever acts next begins
as Kubernetes does after every restart, with the current number of replicas as a recommendation, beside all that was
saved; and with the last scale, if the status still tells how far it went.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoscaler.core.history import LONG_AGO_MS, History, Recommendation
from autoscaler.core.model import Behavior, Status
from autoscaler.core.normalize import remember_scale

# lastScaleTime is a whole second, cut off.
_SECOND_MS: Final = 999


def follow(
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
    return remember_scale(
        history,
        behavior=behavior,
        previous_replicas=new.current_replicas,
        new_replicas=new.desired_replicas,
        # It was made within that second, and before it is seen; mostly that is a moment ago.
        now_ms=(now_ms if monotonic_ms is None else monotonic_ms) - max(0, now_ms - new.last_scale_ms - _SECOND_MS),
    )


def is_behind(history: History) -> bool:
    """Whether the next step begins with the target's number of replicas as a recommendation."""
    return not (history.complete and history.recommendations)


def catch_up(
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
    if not is_behind(history):
        return history
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    if not history.complete:
        events = (*history.scale_up_events, *history.scale_down_events)
        known_ms = max((each.time_ms for each in events), default=LONG_AGO_MS) + now_ms - monotonic_ms
        if status.last_scale_ms is not None and status.last_scale_ms > known_ms:
            before = replace(status, last_scale_ms=None)
            history = follow(
                history, old=before, new=status, behavior=behavior, now_ms=now_ms, monotonic_ms=monotonic_ms
            )
    seed = Recommendation(current_replicas, monotonic_ms)
    return replace(history, recommendations=(*history.recommendations, seed), complete=True)
