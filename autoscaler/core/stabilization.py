"""From the replica count that the metrics ask for to the one that is applied: stabilisation, rate limits, bounds.

The rules are those of Kubernetes 1.36, which differ with and without `spec.behavior` in more than the obvious: which
edge of a window still counts, whether scaling up is stabilised at all, and whether changes are remembered. The memory
is kept as Kubernetes keeps it: slots of samples that are too old are used again in place, and nothing is pruned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoscaler.core.history import History, Recommendation
from autoscaler.core.integers import MAX_INT32, MIN_INT32, clamp_int32, int32
from autoscaler.core.model import Behavior, ScalingPolicy, ScalingRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How far the rules of one direction allow to go now, and what says so."""

    replicas: int
    policy: ScalingPolicy | None = None
    """The policy that was selected; None without behavior, without policies, or where the direction is disabled."""
    period_start: int | None = None
    """The replicas at the start of the policy's period, from which it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalized:
    """What became of a proposal, step by step."""

    proposed_replicas: int
    stabilized_replicas: int
    """After stabilisation."""
    stabilization: str
    """Reason for the AbleToScale condition: ReadyForNewScale, ScaleUpStabilized or ScaleDownStabilized."""
    window_ms: int
    """The stabilisation window of the direction in which the proposal points."""
    stabilized_by: Recommendation | None
    """The earlier recommendation that changed the count: the highest or lowest in the window, of equals the latest."""
    scale_up_limit: RateLimit
    """The most that the scale-up rules allow now."""
    scale_down_limit: RateLimit | None
    """The least that the scale-down rules allow now; None without behavior, which knows no such limit."""
    desired_replicas: int
    """After rate limits and bounds: the answer."""
    limit: str
    """Reason for the ScalingLimited condition: DesiredWithinRange, or what held the count back."""
    recommendations: tuple[Recommendation, ...]
    """The memory afterwards, with this proposal in it."""

    @property
    def limited(self) -> bool:
        """Whether rate limits or bounds changed the stabilised count."""
        return self.desired_replicas != self.stabilized_replicas


def normalize(
    *,
    proposed_replicas: int,
    current_replicas: int,
    min_replicas: int,
    max_replicas: int,
    behavior: Behavior | None,
    downscale_stabilization_ms: int,
    history: History,
    now_ms: int,
) -> Normalized:
    """Apply stabilisation, rate limits and bounds to `proposed_replicas`.

    Args:
        proposed_replicas: what the metrics ask for.
        current_replicas: `spec.replicas` of the scale.
        min_replicas: the HPA's lower bound.
        max_replicas: the HPA's upper bound.
        behavior: the HPA's, defaulted; None selects Kubernetes' older rules.
        downscale_stabilization_ms: the window for scaling down where behavior sets none.
        history: earlier recommendations and scale events.
        now_ms: the current time, by the history's clock.
    """
    latest = Recommendation(proposed_replicas, now_ms)
    if behavior is None:
        cutoff = now_ms - downscale_stabilization_ms
        recent = [each for each in history.recommendations if each.time_ms >= cutoff]
        stabilized = max([proposed_replicas, *(each.replicas for each in recent)])
        stabilization, window_ms = "ScaleDownStabilized", downscale_stabilization_ms
        up_limit, down_limit = RateLimit(replicas=max(2 * current_replicas, 4)), None
        desired, limit = _bounded(stabilized, min_replicas, max_replicas, up_limit.replicas)
    else:
        up_window = behavior.scale_up.stabilization_window_ms or 0
        down_window = behavior.scale_down.stabilization_window_ms
        down_window = downscale_stabilization_ms if down_window is None else down_window
        up_cutoff, cutoff_down = now_ms - up_window, now_ms - down_window
        stabilized = _stabilized(latest, current_replicas, history.recommendations, up_cutoff, cutoff_down)
        upwards = proposed_replicas >= current_replicas
        stabilization, window_ms = ("ScaleUpStabilized", up_window) if upwards else ("ScaleDownStabilized", down_window)
        recent = [each for each in history.recommendations if each.time_ms > now_ms - window_ms]
        up_limit = _scale_up_limit(behavior.scale_up, current_replicas, history, now_ms)
        down_limit = _scale_down_limit(behavior.scale_down, current_replicas, history, now_ms)
        desired, limit = _rate_limited(
            stabilized,
            current_replicas,
            min_replicas,
            max_replicas,
            up_limit=up_limit.replicas,
            down_limit=down_limit.replicas,
        )
        cutoff = min(up_cutoff, cutoff_down)
    return Normalized(
        proposed_replicas=proposed_replicas,
        stabilized_replicas=stabilized,
        stabilization="ReadyForNewScale" if stabilized == proposed_replicas else stabilization,
        window_ms=window_ms,
        stabilized_by=_stabilizer(recent, proposed_replicas, stabilized),
        scale_up_limit=up_limit,
        scale_down_limit=down_limit,
        desired_replicas=desired,
        limit=limit,
        recommendations=_remembered(history.recommendations, latest, cutoff),
    )


# --- stabilisation -------------------------------------------------------------------------------------------------


def _stabilized(
    latest: Recommendation,
    current_replicas: int,
    recommendations: tuple[Recommendation, ...],
    up_cutoff: int,
    down_cutoff: int,
) -> int:
    """The current count, moved no further than every recommendation within the direction's window agrees to."""
    least = min([latest.replicas, *(each.replicas for each in recommendations if each.time_ms > up_cutoff)])
    most = max([latest.replicas, *(each.replicas for each in recommendations if each.time_ms > down_cutoff)])
    return min(max(current_replicas, least), most)


def _stabilizer(
    recent: list[Recommendation], proposed_replicas: int, stabilized_replicas: int
) -> Recommendation | None:
    """Which of the recommendations in the window kept `proposed_replicas` from being taken; None if it was taken."""
    if stabilized_replicas == proposed_replicas or not recent:
        return None
    up = -1 if stabilized_replicas < proposed_replicas else 1
    return max(recent, key=lambda each: (up * each.replicas, each.time_ms))


def _remembered(
    recommendations: tuple[Recommendation, ...], latest: Recommendation, cutoff: int
) -> tuple[Recommendation, ...]:
    """`latest` in the last slot that is older than `cutoff`, or in a new one."""
    slots = list(recommendations)
    old = [index for index, each in enumerate(slots) if each.time_ms < cutoff]
    if old:
        slots[old[-1]] = latest
    else:
        slots.append(latest)
    return tuple(slots)


# --- limits --------------------------------------------------------------------------------------------------------


def _bounded(replicas: int, min_replicas: int, max_replicas: int, up_limit: int) -> tuple[int, str]:
    if replicas < min_replicas:
        return min_replicas, "TooFewReplicas"
    most = min(max_replicas, up_limit)
    if replicas > most:
        return most, "ScaleUpLimit" if up_limit < max_replicas else "TooManyReplicas"
    return replicas, "DesiredWithinRange"


def _rate_limited(
    replicas: int, current_replicas: int, min_replicas: int, max_replicas: int, *, up_limit: int, down_limit: int
) -> tuple[int, str]:
    if replicas > current_replicas:
        # The limit may be below what is there already, if the rules were tightened.
        up_limit = max(up_limit, current_replicas)
        most = min(max_replicas, up_limit)
        if replicas > most:
            return most, "ScaleUpLimit" if up_limit < max_replicas else "TooManyReplicas"
    elif replicas < current_replicas:
        down_limit = min(down_limit, current_replicas)
        least = max(min_replicas, down_limit)
        if replicas < least:
            return least, "ScaleDownLimit" if down_limit > min_replicas else "TooFewReplicas"
    return replicas, "DesiredWithinRange"


def _scale_up_limit(rules: ScalingRules, current_replicas: int, history: History, now_ms: int) -> RateLimit:
    if rules.select_policy == "Disabled":
        return RateLimit(replicas=current_replicas)
    limits = []
    for policy in rules.policies:
        start = _period_start(policy, current_replicas, history, now_ms)
        if policy.type == "Pods":
            most = int32(start + policy.value)
        else:
            most = clamp_int32(math.ceil(start * (1 + policy.value / 100)))
        limits.append(RateLimit(replicas=most, policy=policy, period_start=start))
    if rules.select_policy == "Min":
        return min(limits, key=_replicas, default=RateLimit(replicas=MAX_INT32))
    return max(limits, key=_replicas, default=RateLimit(replicas=MIN_INT32))


def _scale_down_limit(rules: ScalingRules, current_replicas: int, history: History, now_ms: int) -> RateLimit:
    if rules.select_policy == "Disabled":
        return RateLimit(replicas=current_replicas)
    limits = []
    for policy in rules.policies:
        start = _period_start(policy, current_replicas, history, now_ms)
        if policy.type == "Pods":
            least = int32(start - policy.value)
        else:
            least = clamp_int32(math.trunc(start * (1 - policy.value / 100)))
        limits.append(RateLimit(replicas=least, policy=policy, period_start=start))
    if rules.select_policy == "Min":
        return max(limits, key=_replicas, default=RateLimit(replicas=MIN_INT32))
    return min(limits, key=_replicas, default=RateLimit(replicas=MAX_INT32))


def _replicas(limit: RateLimit) -> int:
    return limit.replicas


def _period_start(policy: ScalingPolicy, current_replicas: int, history: History, now_ms: int) -> int:
    """The replicas at the start of the policy's period, reckoned back from the changes made since."""
    cutoff = now_ms - policy.period_ms
    added = sum(each.change for each in history.scale_up_events if each.time_ms > cutoff)
    deleted = sum(each.change for each in history.scale_down_events if each.time_ms > cutoff)
    return int32(current_replicas - added + deleted)
