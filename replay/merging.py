"""Reconciliations of a replay that change nothing: the replicas stay, and there is neither overload nor a gap.

They are found without their decisions. All have the same pods, which count for all metrics. So a metric proposes more
replicas only for a higher value, and values between two with the same proposal have that, too; for others it is
computed, by the same function as in a decision. A proposal that is not the current count changes nothing as long as a
recommendation in the stabilization window holds it back, or while the replicas are at the limit. In overload, only
those with the same values change nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import evaluate
from autoscaler.core.decision import Decision
from autoscaler.core.history import LONG_AGO_MS, History, Recommendation
from autoscaler.core.model import HPA
from autoscaler.core.observation import Observation
from autoscaler.core.stabilization import Normalized, stabilization_windows
from replay.load import Series
from replay.workload import Workload

_BOUNDS: Final = ("TooFewReplicas", "TooManyReplicas")
"""Limits that stay; those of policies end with a period."""


class Merging:
    """Finds the reconciliations after one that change nothing.

    `series` are the metrics' loads, and `seen` what the HPA sees of them. `ends_ms` are the times at which one ends,
    ascending, the last the end of the load. `observe_at` observes the present pods at a later time.
    """

    def __init__(
        self,
        hpa: HPA,
        config: Config,
        *,
        series: Sequence[Series],
        seen: Sequence[Series],
        with_capacity: Sequence[tuple[Series, float]],
        ends_ms: Sequence[int],
        observe_at: Callable[[int], Observation],
    ) -> None:
        self._seen = seen
        self._changing = [*series, *seen]
        self._unseen = [each for each in series if not any(each is other for other in seen)]
        self._with_capacity = with_capacity
        self._ends_ms = ends_ms
        self._observe_at = observe_at
        self._up_ms, self._down_ms = stabilization_windows(hpa.spec.behavior, config.downscale_stabilization_ms)
        # {replicas: {proposal: its lowest and highest value} of each metric}
        self._known: dict[int, list[dict[int, tuple[float, float]]]] = {}

    def skip(self, decision: Decision, workload: Workload, now_ms: int, next_ms: int) -> tuple[int, History]:
        """Return the time of the next reconciliation that may change something, and the history before it."""
        normalized, current, history = decision.normalized, decision.current_replicas, decision.next_history
        if (
            normalized is None
            or current is None
            or normalized.desired_replicas != current
            or _is_limited_by_policy(normalized)
            or decision.scale_to is not None
            or decision.error is not None  # such as in a gap
            or now_ms < workload.settled_ms
        ):
            return next_ms, history
        latest: dict[int, int] = {}  # of equal recommendations, only the last one matters
        for each in history.recommendations:
            latest[each.replicas] = max(each.time_ms, latest.get(each.replicas, each.time_ms))
        # Higher and lower proposals change nothing before these times.
        stabilized, up_ms, down_ms = normalized.stabilized_replicas, -math.inf, -math.inf
        if stabilized == current:
            up_ms = self._up_ms + max((latest[each] for each in latest if each <= current), default=LONG_AGO_MS)
            down_ms = self._down_ms + max((latest[each] for each in latest if each >= current), default=LONG_AGO_MS)
        elif stabilized > current:
            up_ms = math.inf
        else:
            down_ms = math.inf
        step_ms, time_ms = next_ms - now_ms, next_ms
        end_ms = self._ends_ms[bisect_right(self._ends_ms, now_ms)]
        stays = self._stays(current, now_ms, next_ms)
        if not stays:  # overload goes on with the same values, and so does a gap that the HPA does not see
            end_ms = min([end_ms, *(each.next_ms(now_ms) for each in self._changing)])
        while time_ms < end_ms and (not stays or self._stays(current, time_ms, time_ms + step_ms)):
            proposed = self._proposed(decision, current, time_ms)
            if proposed is None:
                break
            if proposed == current == stabilized:
                up_ms, down_ms = time_ms + self._up_ms, time_ms + self._down_ms
            elif proposed == current or time_ms >= (up_ms if proposed > current else down_ms):
                break
            latest[proposed] = time_ms
            time_ms += step_ms
        oldest_ms = time_ms - step_ms - max(self._up_ms, self._down_ms)
        recommendations = [Recommendation(*each) for each in latest.items() if each[1] >= oldest_ms]
        return min(time_ms, self._ends_ms[-1]), replace(history, recommendations=tuple(recommendations))

    def _stays(self, replicas: int, start_ms: int, end_ms: int) -> bool:
        """Return True if no load has a gap, and there is no overload."""
        for series, limit in self._with_capacity:
            if series.exceeds(replicas * limit, start_ms, end_ms):
                return False
        return not any(math.isnan(series.at(start_ms)) for series in self._unseen)

    def _proposed(self, decision: Decision, replicas: int, time_ms: int) -> int | None:
        """Return the highest proposal at a time, with the replicas and pods of a decision; None if a metric fails."""
        known = self._known.setdefault(replicas, [{} for _ in self._seen])
        most = 0
        for series, proposals in zip(self._seen, known, strict=True):
            value = series.at(time_ms)
            for proposed, (low, high) in proposals.items():
                if low <= value <= high:
                    most = max(most, proposed)
                    break
            else:
                break
        else:
            return most
        assert decision.tolerance is not None
        evaluations = evaluate(self._observe_at(time_ms), decision.tolerance, time_ms)
        for series, proposals, each in zip(self._seen, known, evaluations, strict=True):
            if each.proposal is None:
                return None
            proposed = each.proposal.replicas
            most = max(most, proposed)
            value = series.at(time_ms)
            if value >= 0:  # the sum of an External metric counts as the largest number if it is negative
                low, high = proposals.get(proposed, (value, value))
                proposals[proposed] = min(low, value), max(high, value)
        return most


def _is_limited_by_policy(normalized: Normalized) -> bool:
    """Return True if the limit depends on earlier scale events, and so changes with time."""
    is_up = normalized.desired_replicas < normalized.stabilized_replicas
    limit = normalized.scale_up_limit if is_up else normalized.scale_down_limit
    has_policy = limit is not None and limit.policy is not None
    return normalized.limited and normalized.limit not in _BOUNDS and has_policy
