"""What becomes of an HPA that its API let through although it is not valid: it is told so, and left alone.

Kubernetes' own API server checks an HPA before it stores it. A CustomResourceDefinition cannot express every rule, so
the controller checks again, by the same rules and in the same words, and says what is wrong where users look first: in
the HPA's conditions and events. Nothing is scaled until the spec is valid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscaler.core.conditions import SCALING_ACTIVE, Conditions
from autoscaler.core.model import InvalidHPA, Status

INVALID_SPEC = "InvalidSpec"
"""The reason of the condition and of the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What to tell of an invalid HPA."""

    status: Status | None
    """The status to store; None: nothing changed."""
    message: str
    """For the event."""


def refuse(hpa: InvalidHPA, now_ms: int) -> Refusal:
    """What to tell of `hpa`, at a time in milliseconds since the Unix epoch."""
    conditions = Conditions(hpa.status.conditions, now_ms)
    message = f"the HPA is left alone, because its spec is not valid: {hpa.problem}"
    conditions.set(SCALING_ACTIVE, False, INVALID_SPEC, message)
    status = replace(hpa.status, conditions=conditions.all, observed_generation=hpa.generation or None)
    return Refusal(status=None if status == hpa.status else status, message=message)
