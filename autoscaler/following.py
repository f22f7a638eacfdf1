"""What a controller that does not act remembers: the scales that another controller makes.

Rate limits reckon with the changes of the last minutes, and stabilisation with where they led. In dry-run and in shadow
mode somebody else makes the changes, so its scales have to be in the memory as if they had been ours; otherwise the
limits would differ and the decisions with them, for no other reason.

Kubernetes' controller tells of each scale in the HPA's status, all in one write: `lastScaleTime` moves on, and
`currentReplicas` and `desiredReplicas` are the counts before and after. A watch brings every such write, so no scale
is missed even where two come between two steps of ours. What somebody scales by hand is in nobody's status, and
Kubernetes' controller does not remember it either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autoscaler.normalize import remember_scale

if TYPE_CHECKING:
    from autoscaler.model import Behavior, History, Status

__all__ = ["follow"]

# lastScaleTime is a whole second, cut off.
_SECOND_MS: Final = 999


def follow(history: History, *, old: Status, new: Status, behavior: Behavior | None, now_ms: int) -> History:
    """The memory after an HPA's status has changed from `old` to `new`, with the scale that this tells of, if any.

    Args:
        history: the memory before.
        old: the status as last seen.
        new: the status as seen now.
        behavior: the HPA's, without which nothing is remembered.
        now_ms: the current time, in milliseconds since the Unix epoch.
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
        now_ms=min(now_ms, new.last_scale_ms + _SECOND_MS),
    )
