"""Why a step ended with the replica count that it did, in one word, to count by.

The words are the reasons of the HPA's conditions, where Kubernetes has one for the case; there are few of them, so a
counter with them as label stays small.
"""

from __future__ import annotations

from typing import Final

from autoscaler.core.conditions import ABLE_TO_SCALE, SCALING_ACTIVE
from autoscaler.core.decision import Decision

_READY: Final = "ReadyForNewScale"


def reason_of(decision: Decision) -> str:
    """What had the last word on the replica count.

    Paused, StaleWatch and Fallback are ours. Of a count that the metrics ask for: what limited it, else what stabilised
    it, else ValidMetricFound. Of a count out of bounds: TooManyReplicas or TooFewReplicas. Where there is none: the
    failure.
    """
    if decision.held is not None:
        return decision.held.condition
    normalized = decision.normalized
    if normalized is None:
        return _without_metrics(decision)
    if normalized.limited:
        return normalized.limit
    if normalized.stabilization != _READY:
        return normalized.stabilization
    return "Fallback" if decision.stand_in is not None else "ValidMetricFound"


def _without_metrics(decision: Decision) -> str:
    if decision.scale_to is not None:
        return "TooManyReplicas" if decision.scale_to < (decision.current_replicas or 0) else "TooFewReplicas"
    failed = ABLE_TO_SCALE if decision.current_replicas is None else SCALING_ACTIVE
    return next(each.reason for each in decision.status.conditions if each.type == failed)
