"""What a controller does with its decisions: act on them, rehearse them, or compare them with another controller's.

The mode is a flag of the process; an annotation of a single HPA can restrict it further and never widen it. Whatever
the mode, a step reads and decides in the same way; only what follows the decision differs:

    mode      scale, status   events                            own metrics, decisions
    act       written         written                           yes
    dry-run   no              written, WouldRescale for a scale yes
    shadow    no              no                                yes, and a comparison with the built-in controller

In the last two the scale follows somebody else, so what is remembered follows that, too (`autoscaler.core.following`).
"""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What becomes of a decision."""

    ACT = "act"
    DRY_RUN = "dry-run"
    SHADOW = "shadow"

    def allows(self, other: Mode) -> bool:
        """Whether the other mode writes nothing that this one does not."""
        order = (Mode.SHADOW, Mode.DRY_RUN, Mode.ACT)
        return order.index(other) <= order.index(self)
