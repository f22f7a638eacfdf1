"""The conditions of an HPA's status during a decision, and Kubernetes' messages for fixed reasons.

`kubectl describe` shows them, and alerts match on them.
"""

from __future__ import annotations

from msgspec.structs import replace

from autoscaler.core.model import HPA, Condition, Status
from autoscaler.core.stabilization import Normalized

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"

INVALID_SPEC = "InvalidSpec"
"""Reason of the ScalingActive condition, and of the event, of an HPA that cannot be decoded."""

_MESSAGES = {
    "DesiredWithinRange": "the desired count is within the acceptable range",
    "NotScaledToZero": "the HPA controller did not scale the workload to zero",
    "ReadyForNewScale": "recommended size matches current size",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
    "ScaleDownStabilized": (
        "recent recommendations were higher than current one, applying the highest recent recommendation"
    ),
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleUpStabilized": (
        "recent recommendations were lower than current one, applying the lowest recent recommendation"
    ),
    "ScaledToZero": "the HPA controller scaled the workload to zero",
    "ScalingDisabled": "scaling is disabled since the replica count of the target is zero",
    "SucceededGetScale": "the HPA controller was able to get the target's current scale",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
}


class Conditions:
    """A list of conditions that can be changed.

    A condition keeps its position, and its transition time until its status changes.
    """

    def __init__(self, conditions: tuple[Condition, ...], now_ms: int) -> None:
        self._conditions = list(conditions)
        self._now_ms = now_ms

    def set(
        self, type_: str, status: bool, reason: str, message: str = "", *, stored: tuple[Condition, ...] = ()
    ) -> None:
        """Set one condition; without `message`, the message of `reason`. Upstream: podautoscaler.setConditionInList.

        With `stored`, the transition time is relative to those conditions, not to what this reconciliation set before.
        """
        new = Condition(
            type=type_,
            status="True" if status else "False",
            reason=reason,
            message=message or _MESSAGES[reason],
            last_transition_ms=self._now_ms,
        )
        for index, old in enumerate(self._conditions):
            if old.type == type_:
                before = next((each for each in stored if each.type == type_), old)
                if before.status == new.status:
                    new = replace(new, last_transition_ms=before.last_transition_ms)
                self._conditions[index] = new
                return
        self._conditions.append(new)

    def set_normalized(self, normalized: Normalized) -> None:
        """Set the conditions about stabilization and limits."""
        self.set(ABLE_TO_SCALE, True, normalized.stabilization)
        self.set(SCALING_LIMITED, normalized.limited, normalized.limit)

    def remove(self, type_: str, *reasons: str) -> None:
        """Remove one condition, if present (with one of the reasons). Upstream: podautoscaler.removeCondition."""
        self._conditions = [
            each for each in self._conditions if each.type != type_ or (reasons and each.reason not in reasons)
        ]

    @property
    def all(self) -> tuple[Condition, ...]:
        """The current conditions."""
        return tuple(self._conditions)


def report_invalid_spec(hpa: HPA, now_ms: int) -> tuple[Status | None, str]:
    """Return the status (None: it did not change) and the event's message for an HPA that cannot be decoded."""
    conditions = Conditions(hpa.status.conditions, now_ms)
    message = f"the HPA is left alone, because its spec is not valid: {hpa.problem}"
    conditions.set(SCALING_ACTIVE, False, INVALID_SPEC, message)
    status = replace(hpa.status, conditions=conditions.all, observed_generation=hpa.generation or None)
    return None if status == hpa.status else status, message
